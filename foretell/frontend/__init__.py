"""Stage 1: an ONNX model comes in, untrusted; a graph of canonical operators goes out."""
