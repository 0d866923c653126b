"""The workflow: a versioned graph of steps, with the delivery, retry, isolation and routing of each."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from gnomon.core.agents.spec import AgentSpec
from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.breakers import StepBreaker
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.pings import Ping

SECOND_MS = 1000
#: The name of the only step of a job that has no graph.
ONLY_STEP = "main"
#: The function that a step with a command calls: workers that can run commands offer it.
SHELL = "gnomon.shell"
#: The function that a step with an HTTP call calls.
HTTP = "gnomon.http"
#: The function that a step with an agent calls: workers with the extra `agents` offer it.
AGENT = "gnomon.agent"
#: The beginning of the names of compensations. No step of a definition can have such a name.
COMPENSATION = "compensate:"


class Delivery(StrEnum):
    """The delivery guarantee of a workflow's tasks."""

    #: A lost attempt is retried.
    AT_LEAST_ONCE = "at_least_once"
    #: A task is never started a second time.
    AT_MOST_ONCE = "at_most_once"


class Isolation(StrEnum):
    """Where a function runs."""

    #: In the worker's process: a coroutine on a loop of its own, anything else on a thread.
    NONE = "none"
    #: In a process of its own, which can be killed with everything that it started.
    PROCESS = "process"


class When(StrEnum):
    """The outcome that the steps before a step must have for it to run."""

    ALL_SUCCESS = "all_success"
    #: They are over, however they ended: for clean-up.
    ALL_DONE = "all_done"
    #: They are over, and at least one of them did not succeed: for alerts.
    ANY_FAILED = "any_failed"


class Priority(StrEnum):
    """The order among tasks that wait for a worker."""

    CRITICAL = "critical"
    INTERACTIVE = "interactive"
    BATCH = "batch"


class RoutingRequirements(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requirements of a step on the worker that runs it."""

    #: The pool of workers; None if it follows from the topic.
    pool: str | None = None
    #: The topic, by which pools.yaml selects pools; None for the name of the function.
    topic: str | None = None
    #: Capabilities that its pool must have; in lower case.
    requires: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    priority: Priority = Priority.INTERACTIVE


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """How often and when a failed attempt is retried."""

    #: The number of attempts, the first and lost ones included.
    max_attempts: int = 3
    initial_delay_ms: int = 30 * SECOND_MS
    multiplier: float = 2.0
    max_delay_ms: int = 300 * SECOND_MS
    #: The fraction by which a delay may be longer or shorter.
    jitter: float = 0.1
    #: The most that is added to a delay, besides that, also beyond its limit.
    jitter_ms: int = 0


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a workflow: a function call, a command, an HTTP call, an agent, another workflow, or a delay."""

    name: str
    #: Empty if it runs another workflow, or only waits.
    function: str = ""
    #: The shell command, if its function is SHELL; its input may then have `env`, `workdir` and `stdin`.
    command: str = ""
    #: Whether its command starts only on a worker that can confine it completely.
    sandbox: SandboxMode = SandboxMode.AUTO
    #: Whether its command may use the network.
    network: bool = True
    #: The steps that must be over before this one starts.
    depends_on: tuple[str, ...] = ()
    when: When = When.ALL_SUCCESS
    #: The step is skipped unless this condition holds.
    condition: str | None = None
    #: May refer to outputs of steps before it: `${steps.extract.output.path}`. If its function is HTTP: the call; if it
    #: is AGENT: the prompt.
    input: dict[str, Any] = {}
    #: The agent, if its function is AGENT.
    agent: AgentSpec | None = None
    #: Another workflow to run and wait for.
    workflow: str | None = None
    #: The step runs once for each item of this list, or of the list that this reference names.
    foreach: str | list[Any] | None = None
    #: How many items run at once.
    max_parallel: int | None = None
    #: How long to wait, after the steps before it are over, before it starts.
    delay_ms: int | None = None
    #: The instant to wait for, or a reference to one.
    delay_until: str | None = None
    #: How long one attempt may take; None for the default of the worker.
    timeout_ms: int | None = None
    #: How long it may take from the creation of its task to its end, waits and retries included; None: any time.
    deadline_ms: int | None = None
    #: None: a failed attempt is not retried, a lost one is.
    retry: RetryPolicy | None = None
    isolation: Isolation = Isolation.NONE
    #: None: any worker with the function may run it.
    route: RoutingRequirements | None = None
    #: The capability that it uses, such as `payments.transfer`, and its risks: rules of the policy match them.
    capability: str = ""
    risk_tags: tuple[str, ...] = ()
    #: Its tasks start only while this breaker lets them.
    breaker: StepBreaker | None = None
    #: The step that undoes this one if the run is rolled back. It is in no graph; its name is `compensate:NAME`.
    compensate: "Step | None" = None

    @property
    def undo(self) -> "Step | None":
        """The step that undoes this one: its compensation, or the rollback of the runs of its workflow."""
        if self.compensate is not None or self.workflow is None:
            return self.compensate
        at_once = None if self.foreach is None else 1
        return Step(
            name=f"{COMPENSATION}{self.name}", workflow=self.workflow, foreach=self.foreach, max_parallel=at_once
        )

    @property
    def topic(self) -> str:
        """Its topic: that of its route, else the name of its function."""
        return self.function if self.route is None or self.route.topic is None else self.route.topic

    @property
    def is_command(self) -> bool:
        """Whether the step runs a shell command."""
        return self.function == SHELL

    @property
    def is_http_call(self) -> bool:
        """Whether the step calls a URL."""
        return self.function == HTTP

    @property
    def is_agent(self) -> bool:
        """Whether a model works on its prompt."""
        return self.function == AGENT

    @property
    def plain(self) -> bool:
        """Whether the step only calls its function with the input of the run."""
        more = self.input or self.foreach or self.condition or self.delay_ms or self.delay_until
        return bool(self.function) and not more


class RunDeadlines(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a run and its first tasks may take, from their creation to their end."""

    run_ms: int | None = None
    #: By step: only of the steps whose tasks are created together with the run.
    steps_ms: dict[str, int] = {}


class Workflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A versioned graph of steps. A simple job has a workflow with a single step. A version never changes."""

    workflow_id: str
    version: int
    steps: tuple[Step, ...]
    tenant: str = "default"
    description: str = ""
    tags: tuple[str, ...] = ()
    #: The input of every run that was not triggered with an input of its own.
    input: dict[str, Any] = {}
    #: A JSON Schema that inputs must satisfy.
    input_schema: dict[str, Any] | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    #: Whether a run that fails after all its attempts leaves a dead letter.
    dead_letter: bool = False
    #: How many steps of a run may run at once.
    max_parallel: int | None = None
    #: How long a run may take from its creation to its end; None: any time.
    deadline_ms: int | None = None
    #: Whether runs exclude each other by a lock that other programs can see.
    lock: bool = False
    #: How long the history of its runs is kept; None for the default.
    retention_days: int | None = None
    #: How many of the newest runs that have ended are kept; None for all of them.
    retention_runs: int | None = None
    #: The URL that is called when a run starts and ends.
    ping: Ping | None = None
    #: The rules by which its runs and ticks are announced.
    announce: tuple[AnnounceRule, ...] = ()
    #: The ends of steps that roll a run back, besides that one gave up for good.
    rollback_on: tuple[str, ...] = ()
    #: Where this version comes from (`core/jobs/origins`): it decides which policy its commands are under.
    origin: str = ""

    @property
    def all_steps(self) -> "tuple[Step, ...]":
        """The steps of its graph, and their compensations."""
        return (*self.steps, *(step.compensate for step in self.steps if step.compensate is not None))

    @property
    def may_be_undone(self) -> bool:
        """Whether any of its steps can be undone: it has a compensation, or another workflow may have some."""
        return any(step.compensate is not None or step.workflow is not None for step in self.steps)

    @property
    def has_commands(self) -> bool:
        """Whether one of its steps runs a shell command."""
        return any(step.is_command for step in self.all_steps)

    @property
    def has_agents(self) -> bool:
        """Whether a model works on one of its steps."""
        return any(step.is_agent for step in self.steps)

    @property
    def runs_others(self) -> bool:
        """Whether one of its steps runs another workflow."""
        return any(step.workflow is not None for step in self.steps)

    @property
    def first_steps(self) -> tuple[str, ...]:
        """The steps that depend on no other step."""
        return tuple(step.name for step in self.steps if not step.depends_on)

    @property
    def deadlines(self) -> RunDeadlines | None:
        """The deadlines of a run and of its first steps; None if there are none."""
        first = {one.name: one.deadline_ms for one in self.steps if one.deadline_ms is not None and not one.depends_on}
        return RunDeadlines(run_ms=self.deadline_ms, steps_ms=first) if first or self.deadline_ms is not None else None

    @property
    def is_single_step(self) -> bool:
        """Whether a run of it has exactly one task."""
        return len(self.steps) == 1 and not self.steps[0].foreach and not self.may_be_undone

    def step(self, name: str) -> Step | None:
        """The step or the compensation of that name, whatever the number of its rollback."""
        found = name.removeprefix(COMPENSATION).partition("#")[0]
        one = next((step for step in self.steps if step.name == found), None)
        return one if one is None or not name.startswith(COMPENSATION) else one.undo


class AlteredWorkflow(Workflow, frozen=True, kw_only=True, omit_defaults=True):
    """A version whose stored content is not that of its digest: somebody changed it after it was registered."""
