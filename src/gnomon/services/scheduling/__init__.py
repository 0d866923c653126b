"""Decide when: own shards of schedules, register them, and decide every tick."""
