"""The way from one schema to the next, one file a step."""
