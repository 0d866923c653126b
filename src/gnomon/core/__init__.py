"""The pure core: no I/O, no clock, no randomness. Time is an argument."""
