"""What runs in the user's interpreter: one process per model instance, and `pb_utils`.

Standard library and NumPy only, Python 3.9+. Nothing here knows a front end, a scheduler or a
configuration file; it meets the runtime only in `devkit.transport.messages`.
"""
