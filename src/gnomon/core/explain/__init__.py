"""Why a tick became what it became, why there was none, and what a run waits for: from evidence, never by guessing.

The ledger, the revisions and the pauses of a schedule go in, with its runs and who could carry them out; sentences that
a person reads come out, with what they rest on.
"""
