"""The control API: how a face sees and steers a runtime over its Unix sockets."""
