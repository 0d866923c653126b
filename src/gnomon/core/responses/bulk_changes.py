"""Responses about changes of many objects: the outcome of each."""

from gnomon.core.responses.base import Response
from gnomon.core.responses.jobs import TicksSwallowed


class JobChanged(Response, frozen=True, kw_only=True):
    """The outcome of a change of one of many jobs; in a preview, the expected one."""

    job: str
    #: `paused`, `resumed`, `started`, `queued` or `already`, or `unchanged`; null if it was refused.
    became: str | None
    #: Why nothing was changed.
    refused: str | None
    #: The execution that was started.
    execution_id: str | None = None
    #: The planned times that the pause has suppressed, and how many of them run after all.
    swallowed: TicksSwallowed | None = None
    runs: int | None = None


class ExecutionCancelled(Response, frozen=True, kw_only=True):
    """The outcome of the cancellation of one of many executions; in a preview, the expected one."""

    execution_id: str
    job: str | None
    #: `cancelled`, `asked` while running attempts have been asked to stop, or `unchanged` if it had ended.
    became: str | None
    refused: str | None
