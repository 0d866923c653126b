"""Runs: the graph of steps, task states, admission, outcomes, retries and routing."""
