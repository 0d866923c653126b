"""The functions behind jobs.yaml, and a few jobs that are written beside their functions.

`make run` starts all of this; within seconds something of every kind has run.
"""

import asyncio
import random
import time

import gnomon

# ---- named in jobs.yaml ---------------------------------------------------------------------------


@gnomon.function("gateway/health-probe")
async def probe(ctx: gnomon.Context, providers: list[str] = ["alpha", "beta"]) -> dict[str, float]:  # noqa: B006 - read only
    """Ask every provider how it is."""
    latencies = {}
    for provider in providers:
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        latencies[provider] = round(time.perf_counter() - began, 4)
    ctx.log(f"asked {len(providers)} providers")
    return latencies


@gnomon.function("billing/reconcile")
def reconcile(ctx: gnomon.Context) -> dict[str, int]:
    """Add everything up. A plain function runs on a thread, so it may take its time."""
    total = sum(range(100_000))
    ctx.logger.info("the sum is %d", total)
    return {"checked": 100_000, "drift": 0}


@gnomon.function("billing/send-invoices")
async def send_invoices(ctx: gnomon.Context) -> str:
    """Whatever is sent to the outside carries the key: a second attempt is then no second invoice."""
    return f"sent under {ctx.idempotency_key[:12]}"


@gnomon.function("search/warm-cache")
async def warm_cache(top_k: int = 1000) -> int:
    """Inputs are checked against the signature before the function is called."""
    return top_k


@gnomon.function("storage/backup")
def back_up(ctx: gnomon.Context) -> str:
    """In a process of its own: a timeout ends it with everything that it started."""
    print("copying")  # noqa: T201 - what a process prints is part of its log
    return f"backup of {ctx.planned_at:%Y-%m-%d}"


@gnomon.function("queues/probe")
async def queue_depth() -> int:
    """How much there is to do."""
    return random.randrange(100)  # noqa: S311 - no secret


@gnomon.function("demo/flaky")
async def flaky(ctx: gnomon.Context) -> str:
    """Fails at first; the retry policy of its job tries again."""
    if ctx.attempt == 1:
        raise ConnectionError("the other side is not there yet")
    return f"worked at attempt {ctx.attempt}"


# ---- written beside its function ------------------------------------------------------------------


@gnomon.job(every="5s", tags=["demo"])
async def heartbeat(ctx: gnomon.Context) -> str:
    """The smallest job there is."""
    return f"planned for {ctx.planned_at:%H:%M:%S}"


@gnomon.job(every="10s", tags=["demo"])
async def wait_for_it(ctx: gnomon.Context) -> gnomon.Snooze | str:
    """Not ready yet? Say so, and be called again: that is no failure."""
    late = time.time() - ctx.planned_at.timestamp()
    return gnomon.Snooze(1) if late < 1 else "ready now"
