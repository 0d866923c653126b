"""The functions of jobs.yaml and demo.yaml, and two jobs that are declared in Python.

`make run` starts all of them; within seconds one of every kind has run.
"""

import asyncio
import random
import time

import gnomon

# ---- functions named in the jobs files ------------------------------------------------------------


@gnomon.function("gateway/health-probe")
async def probe(ctx: gnomon.Context, providers: list[str] = ["alpha", "beta"]) -> dict[str, float]:  # noqa: B006 - read only
    """Measure the latency of every provider."""
    latencies = {}
    for provider in providers:
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        latencies[provider] = round(time.perf_counter() - began, 4)
    ctx.log(f"probed {len(providers)} providers")
    return latencies


@gnomon.function("billing/reconcile")
def reconcile(ctx: gnomon.Context) -> dict[str, int]:
    """Add up all entries. A plain function runs on a thread, so it may block."""
    total = sum(range(100_000))
    ctx.logger.info("the sum is %d", total)
    return {"checked": 100_000, "drift": 0}


@gnomon.function("billing/send-invoices")
async def send_invoices(ctx: gnomon.Context) -> str:
    """Send invoices with the idempotency key, so that a second attempt sends no second invoice."""
    return f"sent under {ctx.idempotency_key[:12]}"


@gnomon.function("search/warm-cache")
async def warm_cache(top_k: int = 1000) -> int:
    """Warm the cache. Gnomon checks the input against the signature before the call."""
    return top_k


@gnomon.function("storage/backup")
def back_up(ctx: gnomon.Context) -> str:
    """Make a backup in a separate process: a timeout ends it with all of its child processes."""
    print("copying")  # noqa: T201 - the output of a process is part of its log
    return f"backup of {ctx.planned_at:%Y-%m-%d}"


@gnomon.function("queues/probe")
async def queue_depth() -> int:
    """Return the number of queued messages."""
    return random.randrange(100)  # noqa: S311 - not a secret


@gnomon.function("demo/flaky")
async def flaky(ctx: gnomon.Context) -> str:
    """Fail on the first attempt; the retry policy of the job retries it."""
    if ctx.attempt == 1:
        raise ConnectionError("connection refused")
    return f"worked at attempt {ctx.attempt}"


# ---- jobs declared in Python ----------------------------------------------------------------------


@gnomon.job(every="5s", tags=["demo"])
async def heartbeat(ctx: gnomon.Context) -> str:
    """A minimal job."""
    return f"planned for {ctx.planned_at:%H:%M:%S}"


@gnomon.job(every="10s", tags=["demo"])
async def wait_for_it(ctx: gnomon.Context) -> gnomon.Snooze | str:
    """Return a Snooze until the data is ready; a snoozed attempt is not a failure."""
    late = time.time() - ctx.planned_at.timestamp()
    return gnomon.Snooze(1) if late < 1 else "ready now"
