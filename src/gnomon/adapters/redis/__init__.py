"""Redis: leases, counters and what was seen before."""
