"""Holds the module that `import triton_python_backend_utils` finds outside a server."""
