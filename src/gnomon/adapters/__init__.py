"""Implementations of the ports: databases, message buses, files, HTTP, tokens and the host system."""
