"""Redis: leases and the deduplication of messages."""
