"""Functions of the jobs that readers of the dashboard look at."""

import time

import gnomon


@gnomon.function("pages/quick")
def quick(ctx: gnomon.Context) -> str:
    """Ends at once."""
    ctx.log("made it")
    return "made"


@gnomon.function("pages/broken")
def broken() -> None:
    """Fails for good."""
    raise gnomon.GiveUp("the disk is full")


@gnomon.function("pages/slow")
def slow(ctx: gnomon.Context) -> None:
    """Says lines until somebody cancels it, for a minute at most."""
    for number in range(600):
        ctx.log(f"line {number}")
        time.sleep(0.1)
