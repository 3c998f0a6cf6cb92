"""The terminal workbench. A face: it never imports the runtime."""
