"""Tools around a finished model: export it, and prove the export on the real server."""
