"""Frequent queries use an index, however long the history is and however many schedules there are."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from msgspec.structs import replace

from contracts.store import ALL_SHARDS, MINUTE, NOON, minutely
from gnomon.adapters.sql import (
    SqlStore,
    approval_votes,
    approvals,
    audit,
    backfills,
    calendar,
    cancellation,
    dead_letters,
    external_events,
    fan_out,
    history,
    invariants,
    launches,
    ledger,
    open_postgres,
    open_sqlite,
    overview,
    placement,
    retention,
    runs,
    schedules,
    schema,
    tasks,
    workflows,
)
from gnomon.adapters.sql.unreadable import MAX_REMEMBERED, UnreadableSchedules
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.ids import SHARDS, run_id
from gnomon.core.ledger.plan import plan
from gnomon.core.model import (
    LogLine,
    Overlap,
    Reason,
    Result,
    Run,
    RunId,
    RunSource,
    RunStatus,
    TaskId,
    TickKind,
    TickStatus,
)
from gnomon.core.retention import RetainedSchedule, RetentionHorizons
from gnomon.core.runs.admission import AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import OnEvent
from gnomon.ports.approvals import ApprovalFilter
from gnomon.ports.audit import AuditQuery
from gnomon.ports.maintenance import FIRST_OPEN_RUN, HISTORY_START, RetentionBatch, RetentionKind
from gnomon.ports.runs import LetterQuery, RunQuery
from gnomon.ports.schedules import JobChangeset, ScheduleOrder, TenantTickQuery
from gnomon.ports.tasks import TakeFilter
from support.postgres_server import postgres
from support.task_steps import LEASE, admission, completion_of, runs_of, take_task, workflow

SOME = frozenset(range(100))
SCHEDULE = minutely(overlap=Overlap.QUEUE)
REPLACING = minutely("replacing", overlap=Overlap.REPLACE)
UID = SCHEDULE.uid
READABLE = UnreadableSchedules()
#: Of the ticks at one, two, three and four past noon, in the order in which the store is prepared.
FAILED, DISPATCHED, RUNNING, QUEUED = (run_id(UID, NOON + minute * MINUTE) for minute in (1, 2, 3, 4))

IN_TIME = TenantTickQuery(tenant="default", before=(NOON * 2, "x"), down_to=(NOON, "y"), limit=10)

Asked = Callable[[sa.Connection], Any]


def _some_unreadable() -> UnreadableSchedules:
    unreadable = UnreadableSchedules()
    unreadable.pairs = frozenset((f"sch_{number}", 1) for number in range(MAX_REMEMBERED))
    return unreadable


def wanted(name: str, schedule: Any = SCHEDULE, **changes: Any) -> LaunchRequest:  # noqa: ANN401 - any field of a run
    run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.API, now=NOON)
    return LaunchRequest(run=replace(run, **changes), first_steps=("main",), input=b"{}", force=schedule is SCHEDULE)


# Preparing a store takes longer than all questions to it.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=["sqlite", 18], ids=str, scope="module", loop_scope="module")
async def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqlStore]:
    """A store with runs in every state that anything below asks for."""
    if request.param == "sqlite":
        store = await open_sqlite(str(tmp_path_factory.mktemp("plans") / "gnomon.db"))
        await prepare(store)
        yield store
        await store.close()
        return
    async with postgres(request.param).database() as url:
        store = await open_postgres(url)
        await prepare(store)
        yield store
        await store.close()


async def prepare(store: SqlStore) -> None:
    await prepare_runs(store)
    await prepare_graphs(store)
    for number in (1, 2):
        await store.events.emit(event(number), now=NOON)


async def prepare_runs(store: SqlStore) -> None:
    await store.schedules.add(
        [replace(SCHEDULE, spec=replace(SCHEDULE.spec, overlap=Overlap.ALLOW))], actor="a", tzdata=""
    )
    await store.schedules.add([REPLACING], actor="a", tzdata="")
    terms = await store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
    for minute in (1, 2, 3):
        found = await store.schedules.find("default", "report")
        assert found is not None
        await store.ledger.decide([plan(found, now=NOON + minute * MINUTE)], now=NOON + minute * MINUTE, terms=terms)
    failed, dispatched, running = await runs_of(store, SCHEDULE)
    lost = await take_task(store, "w1", failed, now=NOON)
    definition = workflow(dead_letter=True)
    assert await store.attempts.report(
        [completion_of(lost, Result.FAILED, now=NOON, definition=definition, logs=(LINE,))]
    )
    await take_task(store, "w1", dispatched, now=NOON, begin=False)
    await take_task(store, "w1", running, now=NOON)
    found = await store.schedules.find("default", "report")
    assert found is not None
    queueing = replace(found, spec=SCHEDULE.spec, revision=2)
    assert await store.schedules.change(plan(found, now=NOON), queueing, now=NOON, actor="a", tzdata="")
    await store.ledger.decide([plan(queueing, now=NOON + 4 * MINUTE)], now=NOON + 4 * MINUTE, terms=terms)
    await store.runs.launch([wanted("waits"), wanted("ready"), wanted("b", REPLACING)], now=NOON)
    [ready] = [one.task for one in await store.tasks.waiting(NOON, limit=10) if one.run.run_id == "run_ready"]
    await store.tasks.admit([admission(ready)], now=NOON)


# ---- graphs and events ---------------------------------------------------------------------------

LEAF = workflow("leaf")
GRAPH = Workflow(
    workflow_id="graph",
    version=1,
    steps=(
        Step(name="many", function="f", foreach=[1, 2, 3], max_parallel=2),
        Step(name="one", function="f", foreach=[1]),
        Step(name="sub", workflow="leaf"),
        Step(name="wait"),
        Step(name="last", function="f", depends_on=("many", "one", "sub")),
    ),
    max_parallel=4,
)
LISTENING = [
    replace(minutely(name, trigger=trigger, overlap=Overlap.REPLACE), next_fire_at=None)
    for name, trigger in {"listens": OnEvent("drift"), "gathers": OnEvent("drift", debounce_ms=1)}.items()
]


def event(number: int) -> ExternalEvent:
    return ExternalEvent(event_id=f"evt_{number}", name="drift", emitted_at=NOON, actor="ada")


async def prepare_graphs(store: SqlStore) -> None:
    """A run all of whose steps wait for what is in hand, and one none of whose steps has begun."""
    wish = JobChangeset(workflows=[GRAPH, LEAF], added=LISTENING)
    assert await store.jobs.apply(wish, now=NOON, actor="a", tzdata="")
    names = ("graph", "fresh")
    await store.runs.launch([replace(graph_launch(name), first_steps=GRAPH.first_steps) for name in names], now=NOON)
    ready = [one for one in await store.tasks.waiting(NOON, limit=100) if one.run.run_id == "run_graph"]
    done = await store.tasks.fan_out([fan_out_of(one) for one in ready if one.task.step != "wait"], now=NOON)
    assert done.started
    inner = [one.task for one in await store.tasks.waiting(NOON, limit=100) if one.task.parent or one.run.parent_task]
    await store.tasks.admit([admission(task) for task in inner], now=NOON)
    assert len(await store.attempts.take("w2", limit=100, lease_ms=LEASE, now=NOON)) > len(inner) - 1


def graph_launch(name: str) -> LaunchRequest:
    return wanted(name, workflow_id="graph", schedule_uid=None, schedule_id=None)


def fan_out_of(one: ReadyTask) -> FanOut:
    step = GRAPH.step(one.task.step)
    assert step is not None
    request = AdmissionRequest(waiting=one, workflow=GRAPH, step=step, input={})
    made = prepare_task(request, {}, LEAF, now=NOON)
    assert isinstance(made, FanOut)
    return made


def write_fan_outs(conn: sa.Connection, *steps: str) -> None:
    """Steps of the run that has not begun do."""
    ready = [one for one in tasks.waiting(conn, NOON, 100) if one.run.run_id == "run_fresh" and one.task.step in steps]
    assert len(fan_out.fan_out(conn, [fan_out_of(one) for one in ready], NOON).started) == len(steps)


def ended_in_graph(conn: sa.Connection, step: str, definition: Workflow = GRAPH) -> None:
    """Everything that is in hand of a step ends well."""
    found = [one for one in tasks.open_attempts(conn, TaskId(""), 100, 0).attempts if one.attempt.worker == "w2"]
    held = [ReadyTask(task=one.task, run=one.run) for one in found if one.task.step == step]
    endings = [completion_of(one, Result.SUCCEEDED, now=NOON, definition=definition, output=b"1") for one in held]
    assert endings
    assert len(tasks.report(conn, endings)) == len(endings)


LINE = LogLine(NOON, "info", "done")


def task_of(conn: sa.Connection, run: str) -> Any:  # noqa: ANN401 - a task
    return history.tasks(conn, [Run(**dict.fromkeys(Run.__struct_fields__, run))])[0]  # type: ignore[arg-type]


def reported(conn: sa.Connection, run: str, result: Result, **shown: Any) -> Any:  # noqa: ANN401
    """The end of what is in hand of that run, alone of its schedule, so that another has its turn."""
    [held] = [one for one in tasks.open_attempts(conn, TaskId(""), 10, 0).attempts if one.run.run_id == run]
    given = ReadyTask(task=held.task, run=held.run)
    assert tasks.report(conn, [completion_of(given, result, now=NOON, definition=workflow(dead_letter=True), **shown)])


def repair_runs(conn: sa.Connection) -> None:
    """A run whose steps were never made, and one all of whose tasks are over."""
    conn.exec_driver_sql("DELETE FROM task WHERE run_id = 'run_fresh'")
    conn.exec_driver_sql("UPDATE task SET state = 'SUCCEEDED' WHERE run_id = 'run_ready'")
    assert len(invariants.repair_runs(conn, [RunId("run_fresh"), RunId("run_ready")], NOON)) == 2


def recount_runs(conn: sa.Connection) -> None:
    """A schedule of which nothing but what waits is left."""
    conn.execute(sa.update(schema.run).where(schema.run.c.run_id.in_([DISPATCHED, RUNNING])).values(completed_at=NOON))
    assert invariants.recount_runs(conn, [UID], NOON) == [UID]


PAST = RetainedSchedule(
    uid=UID, tenant="default", schedule_id="report", workflow_id="report", mark_at=NOON, catchup_window_ms=0
)
AGED = RetentionHorizons(NOON * 2, NOON * 2)
LOTS = [
    RetentionBatch(kind=RetentionKind.RUNS, names=(FAILED,)),
    RetentionBatch(kind=RetentionKind.TICKS, uid=UID, names=(NOON,)),
    RetentionBatch(kind=RetentionKind.EVENTS, names=("evt_1",)),
    RetentionBatch(kind=RetentionKind.DEAD_LETTERS, names=("dl_1",)),
    RetentionBatch(kind=RetentionKind.SCHEDULES, names=(UID,)),
]


def at_once(conn: sa.Connection, *, begin: bool) -> Sequence[ReadyTask]:
    """As PostgreSQL does it."""
    if conn.dialect.name == "sqlite":
        return tasks.take(conn, "w1", 10, NOON, NOON, begin=begin)
    return tasks.take_on_postgres(conn, "w1", 10, LEASE, NOON, begin=begin, known={}, reach=TakeFilter())


def of_two_tenants(conn: sa.Connection) -> Sequence[ReadyTask]:
    for run, tenant in {"run_waits": "other", "run_ready": "default"}.items():
        at = {"tenant": tenant, "state": TaskState.SCHEDULED.value}
        conn.execute(sa.update(schema.task).where(schema.task.c.task_id == task_of(conn, run).task_id).values(at))
    assert tasks.waiting(conn, NOON, 1, in_turns=True)
    taken = at_once(conn, begin=False)
    assert {one.task.tenant for one in taken} == {"default", "other"}
    return taken


WAITING = ApprovalFilter(tenant="default", status=ApprovalStatus.WAITING)
QUERIES: dict[str, Asked] = {
    "approvals": lambda conn: approvals.page(conn, ApprovalFilter(tenant="default"), "apr_9", 10),
    "approvals that wait": lambda conn: approvals.page(conn, WAITING, "apr_9", 10),
    "approvals of a task": lambda conn: approvals.of_task(conn, "task_1"),
    "approvals of commands": lambda conn: approvals.standing(conn, "default", ["report"]),
    "next approval to expire": approval_votes.next_expiry,
    "approvals that have expired": lambda conn: approval_votes.expire(conn, NOON, 10),
    "approvals of an earlier policy": lambda conn: approval_votes.reopen(conn, 9, None, NOON, 10),
    "tasks that wait for votes": lambda conn: approval_votes.awaiting_tasks(conn, TaskId(""), 10),
    "due": lambda conn: ledger.due(conn, NOON, ALL_SHARDS, 10, READABLE),
    "due of some shards": lambda conn: ledger.due(conn, NOON, SOME, 10, READABLE),
    "next due": lambda conn: ledger.next_due_at(conn, ALL_SHARDS, READABLE),
    "next due of some shards": lambda conn: ledger.next_due_at(conn, SOME, READABLE),
    "due but for unreadable ones": lambda conn: ledger.due(conn, NOON, SOME, 10, _some_unreadable()),
    "next due but for unreadable ones": lambda conn: ledger.next_due_at(conn, ALL_SHARDS, _some_unreadable()),
    "terms": lambda conn: ledger.terms_of(conn, [1, 2]),
    "find": lambda conn: schedules.find(conn, "default", "report"),
    "page": lambda conn: schedules.page(conn, "default", "", 10, READABLE),
    "schedules by next fire": lambda conn: schedules.in_order(conn, "default", ScheduleOrder.NEXT, None, 9, READABLE),
    "schedules after a next fire": lambda conn: schedules.in_order(
        conn, "default", ScheduleOrder.NEXT, (NOON, "sch_1"), 9, READABLE
    ),
    "newest ticks": lambda conn: history.newest_ticks(conn, [UID], 20),
    "recent histories": lambda conn: history.recent(conn, [SCHEDULE], 3),
    "ticks": lambda conn: history.ticks(conn, UID, NOON * 2, 10),
    "runs": lambda conn: history.runs(conn, UID, NOON * 2, 10),
    "tasks": lambda conn: history.tasks(conn, history.runs(conn, UID, NOON * 2, 10)),
    "revisions": lambda conn: history.revisions(conn, UID),
    "pauses": lambda conn: history.pauses(conn, UID),
    "gone": lambda conn: history.deleted(conn, "default", "report", 10),
    "open backfills": lambda conn: backfills.list_open(conn, 10),
    "what has run": lambda conn: backfills.times_already_run(conn, UID, NOON, NOON * 2),
    "backfills of a job": lambda conn: backfills.page(conn, "default", "report", None, 10),
    "backfills after one": lambda conn: backfills.page(conn, "default", None, (NOON, "bf_1"), 10),
    "waiting": lambda conn: tasks.waiting(conn, NOON, 10),
    "turned away": lambda conn: tasks.unroutable_tasks(conn, (NOON, ""), 10),
    "next available": tasks.next_available_at,
    "admit": lambda conn: tasks.admit(conn, [admission(task_of(conn, "run_waits"))], NOON, lambda _: NOON),
    "turn away": lambda conn: tasks.admit(
        conn,
        [admission(task_of(conn, "run_waits"), schedule_uid=UID, state=TaskState.FAILED, dead_letter="no_workers")],
        NOON,
        lambda _: NOON,
    ),
    "take": lambda conn: tasks.take(conn, "w1", 10, NOON, NOON, begin=True),
    "take from a pool": lambda conn: tasks.take(
        conn, "w1", 10, NOON, NOON, begin=True, reach=TakeFilter("gpu", ("f", "g"))
    ),
    "take of two tenants": of_two_tenants,
    "take and begin": lambda conn: at_once(conn, begin=True),
    "take to send": lambda conn: at_once(conn, begin=False),
    "placements": lambda conn: placement.placements(conn, [task_of(conn, "run_waits").task_id]),
    "recall": lambda conn: placement.recall_stranded(conn, NOON),
    "begin": lambda conn: tasks.begin(conn, [(task_of(conn, DISPATCHED).task_id, 1)], NOON),
    "renew": lambda conn: tasks.renew(conn, "w1", [(task_of(conn, RUNNING).task_id, 1)], NOON + LEASE),
    "asked to stop": lambda conn: tasks.cancel_requests(conn, "w1"),
    "open attempts": lambda conn: tasks.open_attempts(conn, TaskId(""), 10, NOON),
    "report": lambda conn: reported(conn, RUNNING, Result.SUCCEEDED, output=b"1", logs=(LINE,)),
    "report by a worker": lambda conn: reported(conn, RUNNING, Result.NEVER_STARTED, reported_by="w1"),
    "report for good": lambda conn: reported(conn, RUNNING, Result.FAILED),
    "cancel": lambda conn: cancellation.cancel(conn, QUEUED, "no", NOON),
    "cancel what runs": lambda conn: cancellation.cancel(conn, RUNNING, "no", NOON),
    "supersede": lambda conn: cancellation.supersede(conn, {UID: RunId("run_new")}, NOON),
    "cancel queued": lambda conn: cancellation.cancel_queued(conn, UID, NOON),
    "launch": lambda conn: launches.launch(conn, [wanted("new", replay_of="dl_1")], NOON),
    "launch and replace": lambda conn: launches.launch(conn, [wanted("c", REPLACING), wanted("d", REPLACING)], NOON),
    "find run": lambda conn: runs.find_run(conn, FAILED),
    "list runs": lambda conn: runs.list_runs(conn, RunQuery()),
    "list runs on": lambda conn: runs.list_runs(conn, RunQuery(after=(NOON, FAILED), status=RunStatus.FAILED)),
    "list runs of a job": lambda conn: runs.list_runs(conn, RunQuery(schedule_id="report", after=(NOON, FAILED))),
    "list runs since": lambda conn: runs.list_runs(
        conn, RunQuery(source=RunSource.API, since=NOON, until=NOON + MINUTE, down_to=(NOON, FAILED))
    ),
    "place of a run": lambda conn: runs.run_position(conn, RunQuery(until=NOON, after=(NOON, FAILED)), 2),
    "place of a run of a job": lambda conn: runs.run_position(conn, RunQuery(schedule_id="report"), 2),
    "attempts": lambda conn: dead_letters.attempts(conn, [task_of(conn, FAILED).task_id]),
    "payload": lambda conn: runs.payload(conn, "run_ready", "input"),
    "log": lambda conn: runs.log_lines(conn, task_of(conn, FAILED).task_id, 0, 10),
    "find dead letter": lambda conn: dead_letters.find(conn, "default", "dl_1"),
    "dead letters": lambda conn: dead_letters.page(conn, LetterQuery(limit=10)),
    "dead letters of a job": lambda conn: dead_letters.page(conn, LetterQuery(job="report", after=(NOON, "dl"))),
    "unresolved dead letters": lambda conn: dead_letters.page(conn, LetterQuery(unresolved=True, oldest_first=True)),
    "dead letters of a step": lambda conn: dead_letters.search(
        conn, LetterQuery(unresolved=True, since=NOON, step="main", error="it", error_line="it broke", scan=1)
    ),
    "dead letters of an execution": lambda conn: dead_letters.of_execution(conn, "default", ["dl_1"]),
    "resolve": lambda conn: dead_letters.resolve(conn, "default", ["dl_1", "dl_2"], "ada", NOON),
    "fan out": lambda conn: write_fan_outs(conn, "many", "one", "sub"),
    "fan out at once": lambda conn: write_fan_outs(conn, "wait"),
    "report items": lambda conn: ended_in_graph(conn, "many"),
    "report the last item": lambda conn: ended_in_graph(conn, "one"),
    "report what a step waits for": lambda conn: ended_in_graph(conn, "main", LEAF),
    "cancel a graph": lambda conn: cancellation.cancel(conn, RunId("run_graph"), "no", NOON),
    "cancel a graph that has not begun": lambda conn: cancellation.cancel(conn, RunId("run_fresh"), "no", NOON),
    "payloads": lambda conn: runs.payloads(conn, ["run_graph"], "input"),
    "emit": lambda conn: external_events.emit(conn, event(3), NOON, READABLE),
    "emit again": lambda conn: external_events.emit(conn, event(1), NOON, READABLE),
    "next gathering": external_events.next_batch_at,
    "close gatherings": lambda conn: external_events.close_batches(conn, NOON + 1, 10, READABLE),
    "find event": lambda conn: external_events.find(conn, "evt_1"),
    "list events": lambda conn: external_events.page(conn, "default", None, None, 10),
    "list events of a name": lambda conn: external_events.page(conn, "default", "drift", (NOON, "evt_2"), 10),
    "entries": lambda conn: external_events.effects(conn, ["evt_1", "evt_2"]),
    "workflow": lambda conn: workflows.workflow(conn, "default", "report", 1),
    "newest workflow": lambda conn: workflows.workflow(conn, "default", "report", None),
    "page of workflows": lambda conn: workflows.list_workflows(conn, "default", "", 10),
    "pasts": lambda conn: retention.retained_schedules(conn, "", 10),
    "tenants": retention.tenants,
    "aged runs": lambda conn: retention.expired_runs(conn, PAST, AGED, HISTORY_START, 10),
    "aged runs of no schedule": lambda conn: retention.expired_runs(conn, None, AGED, HISTORY_START, 10),
    "aged ticks": lambda conn: retention.expired_ticks(conn, PAST, AGED, HISTORY_START, 10),
    "aged events": lambda conn: retention.expired_events(conn, "default", NOON * 2, HISTORY_START, 10),
    "aged dead letters": lambda conn: retention.expired_dead_letters(conn, "default", NOON * 2, HISTORY_START, 10),
    "aged schedule": lambda conn: retention.expired_schedule(conn, UID),
    "remove": lambda conn: [retention.remove(conn, lot, 10) for lot in LOTS],
    "ailing": lambda conn: invariants.stuck_runs(conn, NOON * 2, FIRST_OPEN_RUN, 10),
    "ailing of schedules": lambda conn: invariants.stuck_runs(conn, NOON * 2, ("a", 0), 1),
    "mend": repair_runs,
    "idle schedules": lambda conn: invariants.schedules_without_next_fire(conn, "", 10, READABLE),
    "give next fire": lambda conn: invariants.set_next_fire(conn, SCHEDULE, NOON),
    "orphans": lambda conn: invariants.orphaned_attempts(conn, NOON * 2, 10),
    "oldest due": lambda conn: invariants.oldest_due(conn, NOON),
    "counted": lambda conn: invariants.counted(conn, "", 10),
    "recount": recount_runs,
    "newest workflows": lambda conn: workflows.newest_workflows(conn, "default", ["report", "other"]),
    "lock unresolved dead letters": lambda conn: dead_letters.lock_unresolved(conn, "default", ["dl_1", "dl_2"]),
    "ticks of a tenant": lambda conn: history.tenant_ticks(conn, IN_TIME),
    "rare ticks of a tenant": lambda conn: history.tenant_ticks(
        conn, replace(IN_TIME, kind=TickKind.MISSED, reason=Reason.OVERLAP, status=TickStatus.FAILED)
    ),
    "position of a tick": lambda conn: history.tick_position(conn, IN_TIME, 10),
    "ticks that reach an instant": lambda conn: history.tenant_ticks(conn, replace(IN_TIME, reaching=NOON)),
    "position of a tick for several times": lambda conn: history.tick_position(
        conn, replace(IN_TIME, reaching=NOON), 10
    ),
    "rows for several ticks": lambda conn: calendar.ranges(conn, [UID], NOON, NOON + MINUTE),
    "sums that are open": lambda conn: calendar.sum_ended(conn, ("", 0)),
    "ticks that are not on time": lambda conn: overview.ticks(conn, "default", NOON, NOON + MINUTE, 10),
    "failed runs": lambda conn: overview.failed_runs(conn, "default", NOON, NOON + MINUTE, 10),
    "open runs": lambda conn: overview.open_runs(conn, "default", 10),
    "totals": lambda conn: overview.totals(conn, "default", 10),
    "audit": lambda conn: audit.page(conn, AuditQuery(before=99, actor="ada", since_at=NOON)),
    "audit of a job": lambda conn: audit.page(conn, AuditQuery(kind="job", name="report")),
    "audit of the chain": lambda conn: audit.sealed(conn, 1, 10),
    "anything to seal": lambda conn: audit.has_work(conn, None),
    "seal": lambda conn: audit.seal(conn, 10),
}


@pytest.mark.parametrize("asked", QUERIES.values(), ids=QUERIES)
async def test_no_query_walks_through_a_table_or_sorts(store: SqlStore, asked: Asked) -> None:
    plans = await explained(store, asked)

    assert plans
    assert [step for step in plans if _sorts(step) or _walks(step)] == []


async def test_the_steps_of_a_run_are_found_without_reading_its_items(store: SqlStore) -> None:
    plans = await explained(store, lambda conn: ended_in_graph(conn, "one"))

    asked = [step.partition(" <- ")[0] for step in plans if "AND parent IS NULL" in step.partition(" <- ")[2]]
    assert [
        step
        for step in asked
        if "(run_id=? AND parent=?)" in step or ("Index Cond" in step and "parent IS NULL" in step)
    ]


async def test_audit_entries_of_one_kind_are_found_without_reading_the_others(store: SqlStore) -> None:
    def entries_of_one_kind(conn: sa.Connection) -> None:
        if conn.dialect.name == "postgresql":
            # Of so few entries, reading all in their order can cost as little.
            conn.exec_driver_sql("DROP INDEX audit_listed")
        audit.page(conn, AuditQuery(kind="database", action="restore"))

    plans = await explained(store, entries_of_one_kind)

    asked = [step.partition(" <- ")[0] for step in plans]
    assert [step for step in asked if "(tenant=? AND kind=?)" in step or ("Index Cond" in step and "(kind = " in step)]


async def explained(store: SqlStore, asked: Asked) -> list[str]:
    """The plans of all that is asked; the store is as before."""

    def explain(conn: sa.Connection) -> list[str]:
        with conn.begin_nested() as undone:
            plans = EXPLAINED[conn.dialect.name](conn, asked)
            undone.rollback()
        return plans

    return await store.transactions.write(explain)


def _on_sqlite(conn: sa.Connection, asked: Asked) -> list[str]:
    driver = conn.connection.dbapi_connection
    assert driver is not None
    statements: list[str] = []
    driver.set_trace_callback(statements.append)
    try:
        asked(conn)
    finally:
        driver.set_trace_callback(None)
    questions = [said for said in statements if said.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))]
    found = [(driver.execute(f"EXPLAIN QUERY PLAN {said}"), said) for said in questions]
    return [f"{row[3]} <- {said}" for rows, said in found for row in rows]


def _on_postgresql(conn: sa.Connection, asked: Asked) -> list[str]:
    # Tables as small as these would be read through because that is quicker.
    conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
    plans: list[str] = []

    @sa.event.listens_for(conn, "before_cursor_execute")
    def explain(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:  # noqa: ANN401
        if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            cursor.execute(f"EXPLAIN {statement}", parameters)
            plans.extend(f"{row[0].strip()} <- {statement}" for row in cursor.fetchall())

    asked(conn)
    return plans


EXPLAINED = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}


def _sorts(step: str) -> bool:
    return "TEMP B-TREE" in step


def _walks(step: str) -> bool:
    """A scan is a walk through all of it, but for an index that is read in order until enough is found."""
    if step.startswith(("Seq Scan", "->  Seq Scan")):
        return True
    # There are as many keys, and as many rows, as were given; what was found is no more than the limit.
    given = ("SCAN json_each ", "SCAN v <-", "SCAN found <-")
    return step.startswith("SCAN") and not step.startswith(given) and "USING" not in step and "CONSTANT" not in step
