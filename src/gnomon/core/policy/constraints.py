"""Constraints: the limits under which the policy lets a task run, and the step that is executed under them."""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, Isolation, RetryPolicy, Step


class Constraints(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The limits of a task. None: the policy sets no such limit."""

    #: How long one attempt may take.
    max_runtime_ms: int | None = None
    #: How many attempts the task may have, the first one included.
    max_attempts: int | None = None
    #: How many bytes of JSON its output may have.
    max_output_bytes: int | None = None
    #: A function runs in a process of its own.
    isolation: Isolation | None = None
    #: False: its command may not use the network.
    network: bool | None = None
    #: How many tasks that the same rule has let run may be in flight at once.
    max_concurrent: int | None = None
    #: How much of each meter of a budget the attempt may spend.
    spend: tuple[tuple[str, int], ...] = ()

    def as_data(self) -> dict[str, Any]:
        """The limits that are set, by name."""
        set_ones = {name: value for name, value in asdict(self).items() if value is not None and name != "spend"}
        return set_ones | ({"spend": dict(self.spend)} if self.spend else {})


def constrained_step(step: Step, limits: Constraints | None) -> Step:
    """The step as it is executed under these limits: they only ever tighten it."""
    if limits is None:
        return step
    changes: dict[str, Any] = {}
    if limits.max_runtime_ms is not None:
        changes["timeout_ms"] = _least(step.timeout_ms, limits.max_runtime_ms)
    # A retry would say that what its tools have changed may be changed again. Without one it has a single attempt.
    single = step.retry is None and step.agent is not None and step.agent.changes_something
    if limits.max_attempts is not None and not single:
        retry = step.retry or RetryPolicy(max_attempts=1)
        changes["retry"] = replace(retry, max_attempts=min(retry.max_attempts, limits.max_attempts))
    if limits.isolation is Isolation.PROCESS and step.function not in (SHELL, HTTP, AGENT):
        changes["isolation"] = Isolation.PROCESS
    if limits.network is False:
        changes["network"] = False
        if step.agent is not None:
            changes["agent"] = replace(step.agent, network=False)
    return replace(step, **changes) if changes else step


def unenforceable(step: Step, limits: Constraints) -> str | None:
    """Why these limits cannot be enforced on the step; None if they can."""
    if limits.network is False and not step.is_command and not step.is_agent:
        called = "an HTTP call" if step.is_http_call else f"the function {step.function}"
        return f"network: false can only be enforced on commands, and this is {called}"
    return None


def _least(own: int | None, limit: int) -> int:
    return limit if own is None else min(own, limit)
