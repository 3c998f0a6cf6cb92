"""Models of other backends, run by Python models so that a mixed repository works on the bench.

`NAME/model.py` is a Python-based backend of its own: it serves every model whose config names the
backend, in the model's own interpreter, with that interpreter's PyTorch or ONNX Runtime. Nothing
here is the real backend: answers are the library's, speed and GPU placement are not Triton's.
"""
