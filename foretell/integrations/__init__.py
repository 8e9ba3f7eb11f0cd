"""foretell behind the interfaces of others, such as onnx.backend."""
