"""Composition: build the services on their adapters and run them as one process."""
