"""The HTTP API: a thin door into the same rooms as the command line."""
