"""The routing of tasks: a table of cases, one row each."""

from typing import Any

import pytest

from gnomon.core.jobs.fields import FieldReader
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.routing_fields import read_pools, read_route, route_as_data
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import WORK_FIELDS
from gnomon.core.runs.routing import (
    Pools,
    ReasonCode,
    Unroutable,
    WorkerCandidate,
    WorkerPlacement,
    hold_back_ms,
    is_relieved,
    route,
)
from gnomon.core.runs.workflow import Priority, RoutingRequirements
from gnomon.errors import FieldError

pytestmark = pytest.mark.req("R-10", "R-11")

POOLS = Pools(
    topics={"encode": ("gpu-eu", "gpu-us"), "report": ("reports",), "ghost": ("nowhere",)},
    capabilities={"gpu-eu": frozenset({"gpu", "ffmpeg"}), "gpu-us": frozenset({"gpu"}), "reports": frozenset()},
)
NO_POOLS, NO_WORKERS, OVERLOADED = ReasonCode.NO_POOL_MAPPING, ReasonCode.NO_WORKERS, ReasonCode.POOL_OVERLOADED


def candidate(worker: str, pool: str = "gpu-eu", **about: Any) -> WorkerCandidate:  # noqa: ANN401 - any field of a seat
    said: dict[str, Any] = {"functions": frozenset({"encode", "report"}), "slots": 10} | about
    return WorkerCandidate(worker=worker, pool=pool, **said)


def went(
    wanted: RoutingRequirements, *candidates: WorkerCandidate, pools: Pools | None = POOLS, function: str = "encode"
) -> tuple[Any, ...] | ReasonCode:
    """The worker that was chosen, its pool, and whether the task is for it alone; or why there is none."""
    found = route(function, wanted, candidates, pools)
    if isinstance(found, Unroutable):
        return found.code
    return found.worker, found.placement.pool, found.placement.directed_to is not None


# ---- with a table of pools -----------------------------------------------------------------------

EU, US = candidate("w1"), candidate("w2", "gpu-us")
CASES: dict[str, tuple[RoutingRequirements, tuple[WorkerCandidate, ...], object]] = {
    "a topic goes to its pools": (
        RoutingRequirements(topic="report"),
        (EU, candidate("w3", "reports")),
        ("w3", "reports", False),
    ),
    "the function is the topic if none is said": (RoutingRequirements(), (EU,), ("w1", "gpu-eu", False)),
    "an unknown topic": (RoutingRequirements(topic="unheard.of"), (EU,), NO_POOLS),
    "a topic is matched as a whole": (RoutingRequirements(topic="encod"), (EU,), NO_POOLS),
    "nobody is there": (RoutingRequirements(), (), NO_WORKERS),
    "nobody of its pools is there": (RoutingRequirements(), (candidate("w3", "reports"),), NO_WORKERS),
    "nobody of its pools can run it": (
        RoutingRequirements(),
        (candidate("w1", functions=frozenset({"report"})),),
        NO_WORKERS,
    ),
    "what is required narrows the pools": (
        RoutingRequirements(requires=("ffmpeg",)),
        (US, EU),
        ("w1", "gpu-eu", False),
    ),
    "all of what is required must be there": (RoutingRequirements(requires=("gpu", "ffmpeg")), (US,), NO_WORKERS),
    "no pool has what is required": (RoutingRequirements(requires=("tpu",)), (EU, US), NO_POOLS),
    "a pool that declares nothing has nothing": (
        RoutingRequirements(topic="report", requires=("gpu",)),
        (EU,),
        NO_POOLS,
    ),
    "a pool that is not described has nothing": (
        RoutingRequirements(topic="ghost", requires=("gpu",)),
        (EU,),
        NO_POOLS,
    ),
    "a pool that is not described can be gone to": (
        RoutingRequirements(topic="ghost"),
        (candidate("w4", "nowhere"),),
        ("w4", "nowhere", False),
    ),
    "the worker's own capabilities do not count": (
        RoutingRequirements(topic="report", requires=("gpu",)),
        (candidate("w3", "reports", capabilities=frozenset({"gpu"})),),
        NO_POOLS,
    ),
    "the preferred pool": (RoutingRequirements(labels={"preferred_pool": "gpu-us"}), (EU, US), ("w2", "gpu-us", False)),
    "the pool that was said": (RoutingRequirements(pool="gpu-us"), (EU, US), ("w2", "gpu-us", False)),
    "a preferred pool that is not the topic's": (
        RoutingRequirements(labels={"preferred_pool": "reports"}),
        (EU, US),
        NO_POOLS,
    ),
    "nobody of the preferred pool is there": (RoutingRequirements(pool="gpu-us"), (EU,), NO_WORKERS),
    "the preferred worker, whatever its score": (
        RoutingRequirements(labels={"preferred_worker_id": "w2"}),
        (EU, candidate("w2", "gpu-us", active=8)),
        ("w2", "gpu-us", True),
    ),
    "a preferred worker that is not there": (
        RoutingRequirements(labels={"preferred_worker_id": "w9"}),
        (EU,),
        ("w1", "gpu-eu", False),
    ),
    "a preferred worker that is overloaded": (
        RoutingRequirements(labels={"preferred_worker_id": "w2"}),
        (EU, candidate("w2", active=9)),
        ("w1", "gpu-eu", False),
    ),
    "a preferred worker of another pool": (
        RoutingRequirements(labels={"preferred_worker_id": "w3"}),
        (EU, candidate("w3", "reports")),
        ("w1", "gpu-eu", False),
    ),
    "a preferred worker that placement rules out": (
        RoutingRequirements(labels={"preferred_worker_id": "w1", "node.zone": "eu"}),
        (EU, candidate("w2", labels={"node.zone": "eu"})),
        ("w2", "gpu-eu", True),
    ),
    "placement by label": (
        RoutingRequirements(labels={"placement.zone": "eu"}),
        (EU, candidate("w2", labels={"placement.zone": "eu", "more": "x"})),
        ("w2", "gpu-eu", True),
    ),
    "a constraint": (
        RoutingRequirements(labels={"constraint.disk": "ssd"}),
        (EU, candidate("w2", labels={"constraint.disk": "ssd"})),
        ("w2", "gpu-eu", True),
    ),
    "the label's value counts": (
        RoutingRequirements(labels={"node.zone": "eu"}),
        (candidate("w2", labels={"node.zone": "us"}),),
        NO_WORKERS,
    ),
    "the label's whole key counts": (
        RoutingRequirements(labels={"node.zone": "eu"}),
        (candidate("w2", labels={"zone": "eu"}),),
        NO_WORKERS,
    ),
    "all labels must match": (
        RoutingRequirements(labels={"node.zone": "eu", "node.arch": "arm"}),
        (candidate("w2", labels={"node.zone": "eu"}),),
        NO_WORKERS,
    ),
    "other labels do not matter": (RoutingRequirements(labels={"team": "red"}), (EU,), ("w1", "gpu-eu", False)),
    "the least busy": (
        RoutingRequirements(),
        (candidate("w1", active=3), candidate("w2", "gpu-us", active=2)),
        ("w2", "gpu-us", False),
    ),
    "a busy machine counts as less than a task": (
        RoutingRequirements(),
        (candidate("w1", active=1, cpu=0), candidate("w2", active=0, cpu=89)),
        ("w2", "gpu-eu", False),
    ),
    "cpu and gpu are added": (
        RoutingRequirements(),
        (candidate("w1", cpu=50, gpu=30), candidate("w2", cpu=79, gpu=0)),
        ("w2", "gpu-eu", False),
    ),
    "the order of pools gives no preference": (
        RoutingRequirements(),
        (candidate("w1", active=1), US),
        ("w2", "gpu-us", False),
    ),
    "among equals the one with the fewest lately": (
        RoutingRequirements(),
        (candidate("w1", recent=2), candidate("w2", recent=1), candidate("w3", recent=2)),
        ("w2", "gpu-eu", False),
    ),
    "then the first by name": (
        RoutingRequirements(),
        (candidate("w3"), candidate("w1"), candidate("w2")),
        ("w1", "gpu-eu", False),
    ),
    "nine of ten slots are too many": (RoutingRequirements(), (candidate("w1", active=9),), OVERLOADED),
    "eight of nine are not": (RoutingRequirements(), (candidate("w1", active=8, slots=9),), ("w1", "gpu-eu", False)),
    "none of one is not": (RoutingRequirements(), (candidate("w1", slots=1),), ("w1", "gpu-eu", False)),
    "one of one is": (RoutingRequirements(), (candidate("w1", active=1, slots=1),), OVERLOADED),
    "ninety percent of cpu is too much": (RoutingRequirements(), (candidate("w1", cpu=90),), OVERLOADED),
    "so it is of gpu": (RoutingRequirements(), (candidate("w1", gpu=100),), OVERLOADED),
    "without slots only the machine counts": (
        RoutingRequirements(),
        (candidate("w1", slots=0, active=99),),
        ("w1", "gpu-eu", False),
    ),
    "the overloaded are passed over": (
        RoutingRequirements(),
        (candidate("w1", active=9), candidate("w2", active=8)),
        ("w2", "gpu-eu", False),
    ),
    "all that fit are overloaded": (
        RoutingRequirements(labels={"node.zone": "eu"}),
        (candidate("w1", active=10, labels={"node.zone": "eu"}), candidate("w2")),
        OVERLOADED,
    ),
}


@pytest.mark.parametrize(("wanted", "candidates", "expected"), CASES.values(), ids=CASES)
def test_with_a_table_of_pools(
    wanted: RoutingRequirements, candidates: tuple[WorkerCandidate, ...], expected: object
) -> None:
    assert went(wanted, *candidates) == expected


def test_a_star_is_every_topic_that_is_not_named() -> None:
    pools = Pools(topics={"report": ("reports",), "*": ("rest",)})
    candidates = [candidate("w1", "rest"), candidate("w2", "reports")]

    assert went(RoutingRequirements(), *candidates, pools=pools) == ("w1", "rest", False)
    assert went(RoutingRequirements(), *candidates, pools=pools, function="report") == ("w2", "reports", False)


# ---- without one ---------------------------------------------------------------------------------

PLAIN: dict[str, tuple[RoutingRequirements, tuple[WorkerCandidate, ...], object]] = {
    "the default pool": (RoutingRequirements(), (EU, candidate("w2", "default")), ("w2", None, False)),
    "the pool that was said": (RoutingRequirements(pool="gpu-us"), (EU, US), ("w2", "gpu-us", False)),
    "the preferred pool": (RoutingRequirements(labels={"preferred_pool": "gpu-us"}), (EU, US), ("w2", "gpu-us", False)),
    "nobody of that pool is there": (RoutingRequirements(pool="tpu"), (EU, US), NO_WORKERS),
    "whoever is busy takes it later": (
        RoutingRequirements(),
        (candidate("w2", "default", active=10, cpu=99),),
        ("w2", None, False),
    ),
    "the topic does not matter": (
        RoutingRequirements(topic="unheard.of"),
        (candidate("w2", "default"),),
        ("w2", None, False),
    ),
    "what is required, the worker must have": (
        RoutingRequirements(requires=("gpu", "ffmpeg")),
        (
            candidate("w1", "default", capabilities=frozenset({"gpu"})),
            candidate("w2", "default", capabilities=frozenset({"gpu", "ffmpeg", "x"})),
        ),
        ("w2", None, True),
    ),
    "nobody has what is required": (RoutingRequirements(requires=("gpu",)), (candidate("w2", "default"),), NO_WORKERS),
    "placement": (
        RoutingRequirements(labels={"node.zone": "eu"}),
        (candidate("w1", "default"), candidate("w2", "default", labels={"node.zone": "eu"})),
        ("w2", None, True),
    ),
    "the only one that fits has enough to do": (
        RoutingRequirements(labels={"node.zone": "eu"}),
        (candidate("w2", "default", active=9, labels={"node.zone": "eu"}),),
        OVERLOADED,
    ),
}


@pytest.mark.parametrize(("wanted", "candidates", "expected"), PLAIN.values(), ids=PLAIN)
def test_without_a_table_of_pools(
    wanted: RoutingRequirements, candidates: tuple[WorkerCandidate, ...], expected: object
) -> None:
    assert went(wanted, *candidates, pools=None) == expected


def test_in_a_pool_that_is_mixed_the_task_says_what_it_calls() -> None:
    able, other = candidate("w1", "default"), candidate("w2", "default", functions=frozenset({"report"}))

    mixed, alike = (route("encode", None, candidates, None) for candidates in ([able, other], [able]))

    assert isinstance(mixed, WorkerPlacement)
    assert isinstance(alike, WorkerPlacement)
    assert (mixed.placement.function, alike.placement.function) == ("encode", None)


@pytest.mark.parametrize(
    ("priority", "rank"), [(Priority.CRITICAL, -1), (Priority.INTERACTIVE, 0), (Priority.BATCH, 1)]
)
def test_the_priority_is_the_rank(priority: Priority, rank: int) -> None:
    found = route("encode", RoutingRequirements(priority=priority), [candidate("w1", "default")], None)

    assert isinstance(found, WorkerPlacement)
    assert found.placement.rank == rank


@pytest.mark.parametrize(
    ("wanted", "candidates", "pools", "said"),
    [
        (RoutingRequirements(topic="t"), (), POOLS, "no_pool_mapping: no pool is named for the topic 't'"),
        (RoutingRequirements(pool="x"), (), POOLS, "no_pool_mapping: the topic 'encode' does not go to pool 'x'"),
        (
            RoutingRequirements(requires=("tpu",)),
            (),
            POOLS,
            "no_pool_mapping: no pool of the topic 'encode' has all of tpu",
        ),
        (RoutingRequirements(), (), None, "no_workers: no worker has registered the function 'encode'"),
        (RoutingRequirements(pool="x"), (), None, "no_workers: no worker of pool 'x' is alive"),
        (
            RoutingRequirements(pool="x"),
            (candidate("w1", "x", functions=frozenset()),),
            None,
            "no_workers: no worker of pool 'x' has registered the function 'encode'",
        ),
        (
            RoutingRequirements(labels={"node.a": "b"}),
            (EU,),
            POOLS,
            "no_workers: no worker of the pools 'gpu-eu', 'gpu-us' has the labels or capabilities that it asks for",
        ),
        (
            RoutingRequirements(topic="report"),
            (candidate("w1", "reports", active=9),),
            POOLS,
            "pool_overloaded: w1 of pool 'reports' is overloaded",
        ),
        (
            RoutingRequirements(),
            (candidate("w1", active=9), candidate("w2", cpu=95)),
            POOLS,
            "pool_overloaded: all 2 workers of the pools 'gpu-eu', 'gpu-us' are overloaded",
        ),
    ],
)
def test_why_it_goes_nowhere_is_said(
    wanted: RoutingRequirements, candidates: tuple[WorkerCandidate, ...], pools: Pools | None, said: str
) -> None:
    assert str(route("encode", wanted, candidates, pools)) == said


# ---- as people write it --------------------------------------------------------------------------


def test_a_job_says_it_for_all_of_its_steps_and_a_step_says_it_better() -> None:
    said = {
        "name": "j",
        "pool": "gpu",
        "labels": {"node.zone": "eu", "team": "red"},
        "dag": [
            {"step": "a", "function": "f"},
            {"step": "b", "function": "g", "pool": "cpu", "labels": {"team": "blue"}, "requires": [" GPU ", "gpu"]},
            {"step": "c", "command": "true", "priority": "critical"},
        ],
    }

    first, second, third = read_job(said, Defaults(), now=0).workflow.steps

    assert first.route == RoutingRequirements(pool="gpu", labels={"node.zone": "eu", "team": "red"})
    assert second.route == RoutingRequirements(
        pool="cpu", labels={"node.zone": "eu", "team": "blue"}, requires=("gpu",)
    )
    assert third.route is not None
    assert (third.route.pool, third.route.priority) == ("gpu", Priority.CRITICAL)


def test_default_values_are_no_requirements() -> None:
    assert read_route(FieldReader({"priority": "interactive", "requires": []}, WORK_FIELDS)) is None


def test_a_route_is_said_again_as_it_was() -> None:
    said = {"pool": "gpu", "topic": "t", "requires": ["a"], "labels": {"x": "y"}, "priority": "batch"}

    assert dict(route_as_data(read_route(FieldReader(said, WORK_FIELDS)))) == said


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"pool": "Not A Name"}, "pool"),
        ({"pool": None}, "pool"),
        ({"topic": " "}, "topic"),
        ({"topic": 5}, "topic"),
        ({"requires": "gpu"}, "requires"),
        ({"requires": [""]}, "requires[0]"),
        ({"requires": ["x"] * 51}, "requires"),
        ({"labels": ["a"]}, "labels"),
        ({"labels": {"a": 5}}, "labels.a"),
        ({"labels": {"": "x"}}, "labels"),
        ({"labels": {"a": "x\0"}}, "labels.a"),
        ({"labels": {f"l{n}": "x" for n in range(51)}}, "labels"),
        ({"priority": "urgent"}, "priority"),
        ({"pool": "a", "labels": {"preferred_pool": "b"}}, "pool"),
    ],
)
def test_contradicting_requirements_are_refused(said: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_route(FieldReader(said, WORK_FIELDS))

    assert refused.value.field == field


def test_a_table_of_pools_is_read() -> None:
    table = read_pools(
        {"topics": {"a": "one", "b": ["one", "two", "one"]}, "pools": {"one": {"requires": ["GPU"]}, "two": None}}
    )

    assert table.topics == {"a": ("one",), "b": ("one", "two")}
    assert table.capabilities == {"one": frozenset({"gpu"}), "two": frozenset()}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ([], ""),
        ({}, "topics"),
        ({"topics": {}}, "topics"),
        ({"topics": ["a"]}, "topics"),
        ({"topics": {"": "one"}}, "topics"),
        ({"topics": {"a": []}}, "topics.a"),
        ({"topics": {"a": ""}}, "topics.a"),
        ({"topics": {"a": [5]}}, "topics.a[0]"),
        ({"topics": {"a": "one"}, "pools": []}, "pools"),
        ({"topics": {"a": "one"}, "pools": {"Bad Name": {}}}, "pools"),
        ({"topics": {"a": "one"}, "pools": {"one": {"requires": "gpu"}}}, "pools.one.requires"),
        ({"topics": {"a": "one"}, "pools": {"one": {"needs": []}}}, "pools.one.needs"),
        ({"topics": {"a": "one"}, "more": {}}, "more"),
    ],
)
def test_a_table_that_is_wrong_is_refused(said: object, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_pools(said)

    assert refused.value.field == field


# ---- workers that take tasks themselves ----------------------------------------------------------

BUSY, IDLE = candidate("w1", cpu=99), candidate("w2", cpu=1)
SCARCE = frozenset({"encode", "report", "rare"})


@pytest.mark.parametrize(
    ("own", "others", "relieved", "hold_ms"),
    [
        (BUSY, (IDLE,), True, 2_000),
        (IDLE, (BUSY,), False, 0),
        (candidate("w1", gpu=90), (IDLE,), True, 2_000),
        (candidate("w1", active=9), (IDLE,), True, 2_000),
        # All are overloaded, or nobody else can have its tasks: it takes them.
        (BUSY, (candidate("w2", cpu=95), candidate("w3", active=10)), False, 0),
        (BUSY, (), False, 0),
        (BUSY, (BUSY,), False, 0),
        (BUSY, (candidate("w2", "gpu-us", cpu=1),), False, 0),
        (candidate("w1", cpu=99, functions=SCARCE), (IDLE,), False, 0),
        # None is overloaded: the one with the lowest score comes first, if the difference is more than noise.
        (candidate("w1", cpu=80), (IDLE,), False, 50),
        (candidate("w1", active=2), (IDLE,), False, 50),
        (candidate("w1", cpu=20), (IDLE,), False, 0),
    ],
)
def test_a_busy_worker_leaves_new_tasks_to_less_busy_ones_for_a_moment(
    own: WorkerCandidate,
    others: tuple[WorkerCandidate, ...],
    relieved: bool,  # noqa: FBT001 - a column of the table
    hold_ms: int,
) -> None:
    assert is_relieved(own, others, 90) is relieved
    assert hold_back_ms(own, others, 90) == hold_ms
