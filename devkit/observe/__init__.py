"""What is seen of a runtime: the log, recordings, gauges. Listens at taps, never on the path."""
