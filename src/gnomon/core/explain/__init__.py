"""Explanations (`gnomon why`): why a tick fired or not, why there was none, and what a run waits for.

The functions are pure. They take evidence (ledger entries, revisions and pauses of a schedule, its runs, the live
workers) and return sentences for people, with the facts that they rest on. They never guess.
"""
