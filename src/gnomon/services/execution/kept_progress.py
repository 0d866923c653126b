"""Keeps the progress of running attempts, their lines without what the policy of outputs forbids."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from gnomon.core.runs.progress import AttemptProgress, with_clean_lines
from gnomon.errors import Unavailable
from gnomon.ports.output_policy import OutputPolicy
from gnomon.ports.tasks import Attempts


async def keep_progress(
    attempts: Attempts,
    progress: Sequence[AttemptProgress],
    policy: OutputPolicy | None,
    *,
    now: int,
    worker: str | None = None,
) -> bool:
    """Keep all of it, in one commit if the store can; False if no lines were kept, because nobody knows the policy.

    That of an attempt which has ended, or is another's, is not kept. `worker` is the remote worker that reports; None
    for our own processes.
    """
    try:
        clean, complete = [await _clean(one, policy) for one in progress], True
    except Unavailable:
        clean, complete = [replace(one, lines=(), known=0) for one in progress if one.spent is not None], False
    await asyncio.gather(*(attempts.keep_progress(one, worker=worker, now=now) for one in clean))
    return complete


async def _clean(progress: AttemptProgress, policy: OutputPolicy | None) -> AttemptProgress:
    lines = progress.lines
    if policy is not None and lines:
        lines = await policy.clean_lines(lines)
    return with_clean_lines(progress, lines)
