"""The pure part: no I/O, no clock, no dice. Time comes in as an argument."""
