"""The data of the store in memory: plain dictionaries that all its parts share."""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, ValuesView

from msgspec import Struct

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.sessions import StoredTurn
from gnomon.core.announcements.model import Announcement
from gnomon.core.approvals.model import Approval
from gnomon.core.audit import AuditEntry, SignedCheckpoint, StoredAuditEntry, as_recorded
from gnomon.core.ids import SHARDS
from gnomon.core.model import Attempt, DeadLetter, LogLine, Run, RunId, Schedule, ScheduleUid, Task, TaskId, Tick
from gnomon.core.named_breakers import BreakerKey, NamedBreaker
from gnomon.core.output_policy.ruling import StoredOutputRuling
from gnomon.core.policy.budgets import BudgetWindow, Reservation
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.policy.shadow import DifferenceKey, PolicyShadow, ShadowDifference
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.backfill import Backfill, BackfillTick
from gnomon.core.runs.external_events import EventBatch, EventEffect, ExternalEvent
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.states import TERMINAL, check_initial, check_transition
from gnomon.core.runs.workflow import Workflow
from gnomon.core.tokens import TokenRecord
from gnomon.ports.schedules import Pause, Revision
from gnomon.ports.sign_in_codes import SignInCode
from gnomon.ports.tasks import AttemptRef, WorkerInfo


class TaskTable(MutableMapping[TaskId, Task]):
    """All tasks. Every write checks the state of the task against the table of transitions.

    `live` holds the tasks that have not ended: most queries are about these.
    """

    def __init__(self) -> None:
        self._rows: dict[TaskId, Task] = {}
        self.live: dict[TaskId, Task] = {}
        #: Those of them with a deadline.
        self.limited: dict[TaskId, Task] = {}

    def __getitem__(self, task_id: TaskId) -> Task:
        return self._rows[task_id]

    def __setitem__(self, task_id: TaskId, task: Task) -> None:
        current = self._rows.get(task_id)
        if current is None:
            check_initial(task_id, task.state)
        elif task.state is not current.state:
            check_transition(task_id, current.state, task.state)
        self._put(task)

    def _put(self, task: Task) -> None:
        self._rows[task.task_id] = task
        if task.state in TERMINAL:
            self.live.pop(task.task_id, None)
            self.limited.pop(task.task_id, None)
        else:
            self.live[task.task_id] = task
            if task.deadline_at is not None:
                self.limited[task.task_id] = task

    def __delitem__(self, task_id: TaskId) -> None:
        del self._rows[task_id]
        self.live.pop(task_id, None)
        self.limited.pop(task_id, None)

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> ValuesView[Task]:
        """The rows themselves: the inherited view looks each one up by its key."""
        return self._rows.values()

    def add(self, tasks: Iterable[Task]) -> None:
        """Add new tasks."""
        for task in tasks:
            self[task.task_id] = task


class UsageRow(Struct, frozen=True):
    """The usage of one attempt of an agent."""

    run_id: RunId
    tenant: str
    job: str
    at: int
    spent: AgentSpending


class MemoryTables:
    """The tables of the store in memory, and its clock."""

    def __init__(self, now: Callable[[], int]) -> None:  # noqa: PLR0915 - a statement for each table
        self.now = now
        self.schedules: dict[ScheduleUid, Schedule] = {}
        #: By tenant and name.
        self.names: dict[tuple[str, str], ScheduleUid] = {}
        self.revisions: dict[ScheduleUid, list[Revision]] = {}
        self.pauses: dict[ScheduleUid, list[Pause]] = {}
        self.ticks: dict[tuple[ScheduleUid, int], Tick] = {}
        #: The newest planned time of a tick that had a run and was removed by retention.
        self.ticks_removed_until: dict[ScheduleUid, int] = {}
        #: By tenant and workflow id, all versions.
        self.workflows: dict[tuple[str, str], list[Workflow]] = {}
        #: By tenant, workflow id and version: when it was made, and by whom.
        self.workflow_created_at: dict[tuple[str, str, int], int] = {}
        self.workflow_authors: dict[tuple[str, str, int], str] = {}
        self.runs: dict[RunId, Run] = {}
        #: How many tasks the sub-runs of a run have together.
        self.sub_run_tasks: dict[RunId, int] = {}
        self.tasks = TaskTable()
        self.attempts: dict[AttemptRef, Attempt] = {}
        #: By run or task, and kind: input or output.
        self.payloads: dict[tuple[str, str], bytes] = {}
        self.logs: dict[TaskId, list[LogLine]] = {}
        self.placements: dict[TaskId, Placement] = {}
        #: Since when no worker was found for a task that was not attempted since; old while it waits for no route.
        self.unroutable_since: dict[TaskId, int] = {}
        self.dead_letters: dict[str, DeadLetter] = {}
        self.announcements: dict[str, Announcement] = {}
        #: By announcement: the holder of its claim, and until when.
        self.announcement_claims: dict[str, tuple[str, int]] = {}
        #: How many runs have failed in a row, of jobs whose announcements depend on it.
        self.failure_streaks: dict[str, int] = {}
        self.backfills: dict[str, Backfill] = {}
        self.backfill_ticks: dict[tuple[str, int], BackfillTick] = {}
        self.events: dict[str, ExternalEvent] = {}
        self.effects: dict[tuple[str, ScheduleUid], EventEffect] = {}
        self.event_batches: dict[ScheduleUid, EventBatch] = {}
        #: By name: the registration, and until when the worker counts as alive.
        self.workers: dict[str, tuple[WorkerInfo, int]] = {}
        self.terms = dict.fromkeys(range(SHARDS), 0)
        #: By shard: the holder, and until when.
        self.shard_leases: dict[int, tuple[str, int]] = {}
        #: By node: until when it counts as alive.
        self.nodes: dict[str, int] = {}
        #: By name: the holder, and until when.
        self.singleton_leases: dict[str, tuple[str, int]] = {}
        self.audit: list[StoredAuditEntry] = []
        #: By the key that has signed them.
        self.audit_checkpoints: dict[str, SignedCheckpoint] = {}
        #: By tenant and id; and the instants before which all tokens are revoked, by tenant.
        self.tokens: dict[tuple[str, str], TokenRecord] = {}
        self.token_cutoffs: dict[str, int] = {}
        #: By tenant and subject of their callers.
        self.sign_in_codes: dict[tuple[str, str], SignInCode] = {}
        self.approvals: dict[str, Approval] = {}
        #: The windows of budgets with their ends, and what attempts have reserved of them.
        self.budget_windows, self.budget_ends = dict[str, BudgetWindow](), dict[str, int]()
        self.reservations: dict[AttemptRef, tuple[Reservation, ...]] = {}
        self.breakers: dict[BreakerKey, NamedBreaker] = {}
        #: By version, from 1; and the rows of rulings by task.
        self.policy_versions: list[PolicyVersion] = []
        #: By number; only the last one is kept.
        self.policy_shadows: dict[int, PolicyShadow] = {}
        self.shadow_differences: dict[DifferenceKey, ShadowDifference] = {}
        self.rulings: dict[TaskId, list[StoredRuling]] = {}
        #: The permission that a task itself keeps: version and rule, and the digest of what was asked.
        self.permissions: dict[TaskId, tuple[str, bytes]] = {}
        #: By task and number of the attempt: the rulings on outputs, and what is held back.
        self.output_rulings: dict[AttemptRef, StoredOutputRuling] = {}
        self.held_outputs: dict[AttemptRef, bytes] = {}
        #: The tasks whose stored outputs have to be checked, and since when.
        self.output_checks: dict[TaskId, int] = {}
        #: By tenant and digest of the content: the tasks whose outputs were released.
        self.output_exemptions: dict[tuple[str, str], TaskId] = {}
        #: By tenant and name of a session: the task that holds it, and since when; and its turns, by task.
        self.session_holders: dict[tuple[str, str], tuple[str, int]] = {}
        self.session_turns: dict[tuple[str, str], dict[TaskId, StoredTurn]] = {}
        #: The usage of agents, by task and number of the attempt.
        self.agent_usage: dict[AttemptRef, UsageRow] = {}
        #: The logs of running attempts, by place.
        self.agent_logs: dict[AttemptRef, dict[int, LogLine]] = {}
        #: Tenant and time of each counted action, by task and number of the attempt.
        self.actions: dict[AttemptRef, tuple[str, int]] = {}

    def write_audit(self, entries: Iterable[AuditEntry | None]) -> None:
        """Add entries to the audit trail. None stands for no entry."""
        for entry in entries:
            if entry is not None:
                self.audit.append(StoredAuditEntry(number=len(self.audit) + 1, entry=as_recorded(entry)))
