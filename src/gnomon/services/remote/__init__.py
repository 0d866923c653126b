"""Execute tasks on remote workers over a message bus."""
