"""Background upkeep: retention, repair, invariants, audit sealing, backfills, pings and watched files."""
