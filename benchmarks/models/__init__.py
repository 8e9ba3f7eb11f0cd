"""The suite `models`: whole architectures with random weights, at batch one.

convnets, transformers   written here, layer by layer, in the nodes of an export with batch norms folded
light                    architectures that the onnx package brings along, in the nodes of older exporters
"""
