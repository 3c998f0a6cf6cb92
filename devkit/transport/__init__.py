"""The hallway that the runtime and the stubs share: dtypes, shared memory, messages, channel.

Standard library and NumPy only, Python 3.9+: this package also runs in users' interpreters.
"""
