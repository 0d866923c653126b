"""NATS: leases, hints and the queue to workers elsewhere."""
