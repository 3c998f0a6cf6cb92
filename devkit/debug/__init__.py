"""The debugger: DAP, a session with one process, breakpoints, sources. No engine, no face."""
