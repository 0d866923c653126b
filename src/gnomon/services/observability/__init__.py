"""Health, metrics and the stream of changes."""
