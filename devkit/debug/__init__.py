"""Debugging of stubs: the DAP client and its sessions. Runs in the faces."""
