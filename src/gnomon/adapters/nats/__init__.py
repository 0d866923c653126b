"""NATS: leases, hints, and the message bus between servers and remote workers."""
