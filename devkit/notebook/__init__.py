"""The notebook face: `%%model`, `%%config`, `%devkit`, and what they show.

Runs in the user's kernel and speaks to the runtime through `devkit.control.client` only. No model
runs here: the kernel may restart, and the models go on.
"""
