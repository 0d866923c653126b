"""Settings: sections, sources and validation."""
