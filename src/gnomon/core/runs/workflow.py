"""What runs: a versioned graph of steps, and how each of them is to be tried."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from gnomon.core.pings import Ping

SECOND_MS = 1000
#: The name of the only step of a job that has no graph.
ONLY_STEP = "main"
#: The function that a step with a command calls: workers that can run commands offer it.
SHELL = "gnomon.shell"


class Delivery(StrEnum):
    """What is promised about starting the work."""

    #: An attempt whose worker was lost is followed by another.
    AT_LEAST_ONCE = "at_least_once"
    #: There is no second start, ever.
    AT_MOST_ONCE = "at_most_once"


class Isolation(StrEnum):
    """Where a function runs."""

    #: In the worker's process: a coroutine on a loop of its own, anything else on a thread.
    NONE = "none"
    #: In a process of its own, which can be killed with everything that it started.
    PROCESS = "process"


class When(StrEnum):
    """What must have become of the steps that a step depends on."""

    ALL_SUCCESS = "all_success"
    #: They are over, however they ended: for cleaning up.
    ALL_DONE = "all_done"
    #: They are over, and at least one of them did not succeed: for telling someone.
    ANY_FAILED = "any_failed"


class Priority(StrEnum):
    """Which of the tasks that wait for a worker go first."""

    CRITICAL = "critical"
    INTERACTIVE = "interactive"
    BATCH = "batch"


class RoutingRequirements(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step asks of those who run it."""

    #: The pool of workers that it is for; None if that follows from the topic.
    pool: str | None = None
    #: What it is about, by which pools are found; None for the name of its function.
    topic: str | None = None
    #: Capabilities that its pool must have; in lower case.
    requires: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    priority: Priority = Priority.INTERACTIVE


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """How often and when a failed attempt is followed by another."""

    #: All attempts together, the first and lost ones included.
    max_attempts: int = 3
    initial_delay_ms: int = 30 * SECOND_MS
    multiplier: float = 2.0
    max_delay_ms: int = 300 * SECOND_MS
    #: By which share a delay may be longer or shorter.
    jitter: float = 0.1


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of a workflow's work."""

    name: str
    #: Empty if it runs another workflow, or only waits.
    function: str = ""
    #: What a shell runs, if its function is SHELL; then its input may have `env`, `workdir` and `stdin`.
    command: str = ""
    #: The steps that must be over before this one starts.
    depends_on: tuple[str, ...] = ()
    when: When = When.ALL_SUCCESS
    #: Skipped unless this holds.
    condition: str | None = None
    #: May take outputs of steps before it: `${steps.extract.output.path}`.
    input: dict[str, Any] = {}
    #: Another workflow to run and wait for.
    workflow: str | None = None
    #: Done once for each item of a list, or of what a reference leads to.
    foreach: str | list[Any] | None = None
    #: How many items are done at once.
    max_parallel: int | None = None
    #: How long to wait, after the steps before it are over, before it starts.
    delay_ms: int | None = None
    #: The instant to wait for, or a reference to one.
    delay_until: str | None = None
    #: How long one attempt may take; None for the default of the worker.
    timeout_ms: int | None = None
    #: None: what fails is not tried again, and what was lost with its worker is.
    retry: RetryPolicy | None = None
    isolation: Isolation = Isolation.NONE
    #: None: whoever is there may run it.
    route: RoutingRequirements | None = None

    @property
    def is_command(self) -> bool:
        """Whether a shell runs it."""
        return self.function == SHELL

    @property
    def plain(self) -> bool:
        """Whether it only calls its function, with what its run was given."""
        more = self.input or self.foreach or self.condition or self.delay_ms or self.delay_until
        return bool(self.function) and not more


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What runs: a versioned graph of steps. A simple job is one with a single step. A version never changes."""

    workflow_id: str
    version: int
    steps: tuple[Step, ...]
    tenant: str = "default"
    description: str = ""
    tags: tuple[str, ...] = ()
    #: What every run is given, unless it was triggered with something else.
    input: dict[str, Any] = {}
    #: A JSON Schema that inputs must satisfy.
    input_schema: dict[str, Any] | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    #: Whether a run that has failed for good leaves a dead letter.
    dead_letter: bool = False
    #: How many steps of a run are under way at once.
    max_parallel: int | None = None
    #: Whether the runs exclude each other by a lock that others can see.
    lock: bool = False
    #: How long its history is kept; None for the default.
    retention_days: int | None = None
    #: What is called when a run starts and ends.
    ping: Ping | None = None

    @property
    def first_steps(self) -> tuple[str, ...]:
        """The steps that wait for no other."""
        return tuple(step.name for step in self.steps if not step.depends_on)

    @property
    def is_single_step(self) -> bool:
        """Whether a run of it has one task and never another."""
        return len(self.steps) == 1 and not self.steps[0].foreach

    def step(self, name: str) -> Step | None:
        """The step of that name."""
        return next((step for step in self.steps if step.name == name), None)
