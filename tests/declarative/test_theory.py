"""The judge itself: traces of correct schedulers are let pass, and every kind of wrong one is caught."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.cron import known_zone
from gnomon.declarative import theory
from gnomon.declarative.cron import Occurrences
from gnomon.declarative.theory import Automata, check
from gnomon.declarative.theory.due_times import first_due, is_valid
from gnomon.declarative.theory.traces import (
    ClockSet,
    Crash,
    End,
    Excused,
    InitCall,
    InitError,
    InitOk,
    RunError,
    RunOk,
    RunStart,
    Seen,
    StopCall,
    StopReturn,
    TracedTask,
)

pytestmark = pytest.mark.req("D-18")

NOON = 1_772_452_800_000  # 2026-03-02T12:00:00Z, a Monday
SECOND, MINUTE = 1000, 60_000
HOUR = 60 * MINUTE

HOURLY = TracedTask("x", "0 * * * *", 10 * MINUTE)
EACH = TracedTask("x", "* * * * *", 10 * MINUTE)
DAILY = TracedTask("x", "0 0 * * *", 10 * MINUTE)


def at(minutes: float) -> int:
    return NOON + int(minutes * MINUTE)


def began(*tasks: TracedTask, minutes: float = 1.5, call: int = 1) -> list[Seen]:
    return [InitCall(at(minutes), call, tasks), InitOk(at(minutes), call)]


def ran(minutes: float, run: int, *, until: float | None = None, ok: bool = True, task: str = "x") -> list[Seen]:
    end = at(minutes if until is None else until)
    return [RunStart(at(minutes), task, run), RunOk(end, run) if ok else RunError(end, run)]


def stopped(minutes: float, *, call: int = 50, until: float | None = None) -> list[Seen]:
    return [StopCall(at(minutes), call), StopReturn(at(minutes if until is None else until), call)]


GOOD: dict[str, list[Seen]] = {
    "nothing at all": [],
    "success, failure, retry, success": [
        *began(HOURLY),
        *ran(60, 1),
        *ran(120, 2, ok=False),
        *ran(130, 3),
        End(at(131)),
    ],
    "stop and start again": [*began(HOURLY), *stopped(10), *began(HOURLY, minutes=20, call=2), *ran(60, 1)],
    "a crash, and the interrupted run again": [
        *began(HOURLY),
        RunStart(at(60), "x", 1),
        Crash(at(61)),
        *began(HOURLY, minutes=65, call=2),
        *ran(65, 2),
        *ran(120, 3),
    ],
    "the first minute matches": [*began(HOURLY, minutes=0), *ran(0, 1), End(at(50))],
    "the first minute matches but a stop comes first": [
        *began(HOURLY, minutes=0),
        *stopped(0.1),
        *began(HOURLY, minutes=0.2, call=2),
        *ran(0.2, 1),
    ],
    "due while it runs, once right after": [*began(EACH, minutes=0), *ran(0, 1, until=3.5), *ran(3.5, 2)],
    "due while a run fails, right after and not after the delay": [
        *began(EACH, minutes=0),
        *ran(0, 1, until=3.5, ok=False),
        *ran(3.6, 2),
        End(at(3.7)),
    ],
    "cron before retry": [
        *began(EACH, minutes=0),
        *ran(0, 1, ok=False),
        *ran(1, 2),
        End(at(1.9)),
    ],
    "a late start within a minute": [*began(HOURLY), *ran(60.9, 1)],
    "downtime, one run": [
        *began(EACH, minutes=0),
        *ran(0, 1),
        *stopped(0.5),
        *began(EACH, minutes=300.5, call=2),
        *ran(300.5, 2),
        *ran(301, 3),
    ],
    "taken out and put back is new": [
        *began(HOURLY, minutes=0),
        *ran(0, 1),
        *stopped(0.2),
        *began(minutes=0.3, call=2),
        *stopped(0.4, call=51),
        *began(HOURLY, minutes=0.5, call=3),
        *ran(0.5, 2),
    ],
    "an override counts the new expression since the last start": [
        *began(HOURLY, minutes=0),
        *ran(0, 1),
        *stopped(20),
        *began(TracedTask("x", "15 * * * *", 0), minutes=30, call=2),
        *ran(30, 2),
    ],
    "a second initialisation is refused": [*began(HOURLY), InitCall(at(2), 2, (HOURLY,)), InitError(at(2), 2)],
    "an invalid list is refused": [InitCall(at(0), 1, (TracedTask("x", "@daily", 0),)), InitError(at(0), 1)],
    "a store that fails is an excuse": [InitCall(at(0), 1, (HOURLY,)), InitError(at(0), 1, excused=True)],
    "a stop during initialisation": [
        InitCall(at(0), 1, (HOURLY,)),
        StopCall(at(0), 2),
        InitOk(at(0.1), 1),
        StopReturn(at(0.1), 2),
        End(at(70)),
    ],
    "a stop that waits for a long run": [
        *began(HOURLY),
        RunStart(at(60), "x", 1),
        StopCall(at(61), 9),
        StopCall(at(62), 10),
        RunOk(at(500), 1),
        StopReturn(at(500), 9),
        StopReturn(at(500), 10),
    ],
    "a clock that is set": [
        *began(HOURLY),
        *ran(60, 1),
        ClockSet(at(61), at(400)),
        *ran(400.5, 2),
        ClockSet(at(401), at(100)),
        End(at(300)),
    ],
    "nobody is late whom the state kept from starting": [*began(HOURLY), Excused(at(70)), *ran(70.1, 1)],
    "an end that died with its process is no end": [
        *began(HOURLY),
        *ran(60, 1),
        Crash(at(60), frozenset({"x"})),
        *began(HOURLY, minutes=61, call=2),
        *ran(61, 2),
    ],
}

BAD: dict[str, tuple[str, list[Seen]]] = {
    "a start before initialisation": ("S1", [RunStart(at(0), "x", 1)]),
    "a start while initialising": ("S1", [InitCall(at(0), 1, (HOURLY,)), RunStart(at(0), "x", 1)]),
    "a start of something else": ("S1", [*began(HOURLY), RunStart(at(60), "y", 1)]),
    "a start when nothing is due": ("S1", [*began(HOURLY), *ran(30, 1)]),
    "a start for what was due before the registration": ("S1", [*began(HOURLY, minutes=1), *ran(1, 1)]),
    "a start after a stop was asked for": (
        "S1",
        [*began(HOURLY), StopCall(at(59), 2), *ran(60, 1), StopReturn(at(60), 2)],
    ),
    "a start although a stop came during initialisation": (
        "S1",
        [
            InitCall(at(0), 1, (HOURLY,)),
            StopCall(at(0), 2),
            InitOk(at(0.1), 1),
            *ran(0.1, 1),
            StopReturn(at(0.2), 2),
        ],
    ),
    "a start after a stop": ("S1", [*began(HOURLY), *stopped(30), *ran(60, 1)]),
    "a start after a crash": ("S1", [*began(HOURLY), Crash(at(30)), *ran(60, 1)]),
    "a start beside itself": (
        "S1",
        [*began(EACH, minutes=0), RunStart(at(0), "x", 1), RunStart(at(1), "x", 2)],
    ),
    "two starts for one due": ("S1", [*began(HOURLY), *ran(60, 1), *ran(60.1, 2)]),
    "two makeups": (
        "S1",
        [*began(EACH), *stopped(2, call=2), *began(EACH, minutes=300.1, call=3), *ran(300.2, 1), *ran(300.3, 2)],
    ),
    "an early retry": ("S1", [*began(HOURLY), *ran(60, 1, ok=False), *ran(69, 2)]),
    "a retry after a success": (
        "S1",
        [*began(HOURLY), *ran(60, 1, ok=False), *ran(70, 2), *ran(80, 3)],
    ),
    "the stale retry of a task that cron ran meanwhile": (
        "S1",
        [*began(TracedTask("x", "0 * * * *", 90 * MINUTE)), *ran(60, 1, ok=False), *ran(120, 2), *ran(150, 3)],
    ),
    "an orphan of another task": (
        "S1",
        [
            *began(DAILY, TracedTask("y", "* * * * *", 0), minutes=0),
            RunStart(at(0), "y", 1),
            Crash(at(0.5)),
            *began(DAILY, TracedTask("y", "* * * * *", 0), minutes=0.6, call=2),
            RunStart(at(0.6), "x", 2),
        ],
    ),
    "an orphan twice": (
        "S1",
        [
            *began(HOURLY),
            RunStart(at(60), "x", 1),
            Crash(at(61)),
            *began(HOURLY, minutes=62, call=2),
            *ran(62, 2),
            *ran(63, 3),
        ],
    ),
    "two successes for one due across a restart": (
        "S2",
        [*began(HOURLY), *ran(60, 1), *stopped(60.2), *began(HOURLY, minutes=60.4, call=2), *ran(60.5, 2)],
    ),
    "a stop that does not wait": (
        "S3",
        [*began(HOURLY), RunStart(at(60), "x", 1), *stopped(61)],
    ),
    "a stop that does not wait for an initialisation": (
        "S3",
        [InitCall(at(0), 1, (HOURLY,)), StopCall(at(0), 2), StopReturn(at(0), 2), InitOk(at(0.1), 1)],
    ),
    "an invalid expression": ("S4", began(TracedTask("x", "@daily", 0))),
    "a name twice": ("S4", began(HOURLY, HOURLY)),
    "no name": ("S4", began(TracedTask("", "* * * * *", 0), minutes=0.5)),
    "a negative delay": ("S4", began(TracedTask("x", "0 * * * *", -1))),
    "a valid list refused": ("S5", [InitCall(at(0), 1, (HOURLY,)), InitError(at(0), 1)]),
    "initialised twice": ("S6", [*began(HOURLY), *began(HOURLY, minutes=2, call=2)]),
    "a due that is skipped": ("L1", [*began(HOURLY), End(at(70))]),
    "a due that is skipped before a stop": ("L1", [*began(HOURLY), *stopped(70)]),
    "a due that is skipped before a crash": ("L1", [*began(HOURLY), Crash(at(70))]),
    "a start that is too late": ("L1", [*began(HOURLY), *ran(61.1, 1)]),
    "the first minute is skipped": ("L1", [*began(HOURLY, minutes=0), End(at(2))]),
    "a retry is lost": ("L1", [*began(HOURLY), *ran(60, 1, ok=False), End(at(72))]),
    "an orphan is lost": (
        "L1",
        [
            *began(DAILY),
            *stopped(1.6),
            *began(EACH, minutes=2, call=2),
            RunStart(at(2), "x", 1),
            Crash(at(2.1)),
            *began(DAILY, minutes=3, call=3),
            End(at(5)),
        ],
    ),
    "a due during a failing run waits for the retry": (
        "L1",
        [*began(EACH, minutes=0), *ran(0, 1, until=3.5, ok=False), *ran(13.5, 2)],
    ),
    "a missed due is never made up for": (
        "L1",
        [*began(DAILY), *stopped(2), *began(DAILY, minutes=900, call=2), End(at(910))],
    ),
    "an initialisation that takes too long": ("L2", [InitCall(at(0), 1, (HOURLY,)), InitOk(at(3), 1)]),
    "an initialisation that never ends": ("L2", [InitCall(at(0), 1, (HOURLY,)), End(at(3))]),
    "a stop that takes too long": ("L3", [*began(DAILY), *stopped(2, until=4)]),
    "a stop that never ends": ("L3", [*began(DAILY), StopCall(at(2), 9), End(at(4))]),
    "a run that ends without having begun": ("EA", [*began(DAILY), RunOk(at(2), 7)]),
    "a call that ends without having begun": ("EA", [InitOk(at(1), 7)]),
    "a stop that returns without a call": ("EA", [StopReturn(at(1), 7)]),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_trace_of_a_correct_scheduler_is_let_pass(name: str) -> None:
    assert check(GOOD[name], zone="UTC") == []


@pytest.mark.parametrize("name", BAD)
def test_a_trace_that_no_correct_scheduler_leaves_is_caught_by_its_rule(name: str) -> None:
    rule, trace = BAD[name]

    assert rule in {violation.rule for violation in check(trace, zone="UTC")}


def test_the_judge_knows_nothing_of_what_it_judges() -> None:
    folder = Path(theory.__file__).parent
    lines = "".join(path.read_text() for path in folder.glob("*.py")).splitlines()

    imported = {line.split()[1] for line in lines if line.startswith(("from gnomon", "import gnomon"))}

    assert {name for name in imported if not name.startswith("gnomon.declarative.theory")} == set()


def test_a_skipped_minute_is_not_due_and_a_repeated_one_is_due_twice() -> None:
    spring, autumn = 1_772_946_000_000, 1_793_505_600_000  # 2026-03-08T05:00Z, 2026-11-01T04:00Z

    assert first_due("30 2 * * *", "America/New_York", after=spring, until=spring + 20 * HOUR) is None
    first = first_due("30 1 * * *", "America/New_York", after=autumn, until=autumn + 20 * HOUR)
    assert first == autumn + 90 * MINUTE
    assert first_due("30 1 * * *", "America/New_York", after=first, until=autumn + 20 * HOUR) == first + HOUR


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    """A field of the language, and now and then one just outside it."""
    numbers = st.one_of(st.integers(low, high), st.integers(low, high + 1)).map(str)
    ranges = (
        st.lists(st.integers(low, high), min_size=2, max_size=2).map(sorted).map(lambda pair: "{}-{}".format(*pair))
    )
    lists = st.lists(st.one_of(numbers, ranges), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), lists)


expressions = st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 6)).map(" ".join)


@given(expressions, st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe"]), st.integers(0, 400))
def test_the_judge_and_the_scheduler_agree_on_what_is_due_though_they_share_no_code(
    expression: str, zone: str, day: int
) -> None:
    if not is_valid(expression):
        with pytest.raises(Exception, match="Invalid cron expression"):
            Occurrences(expression, known_zone(zone))
        return
    start = NOON + day * 24 * HOUR
    occurrences = Occurrences(expression, known_zone(zone))

    found = occurrences.first_after(start)

    until = start + 3 * 24 * HOUR
    assert first_due(expression, zone, after=start, until=until) == (found if found and found <= until else None)
    if found is not None:
        assert occurrences.last_until(found) == found
        assert occurrences.last_until(found - 1) != found


# ---- the state machines --------------------------------------------------------------------------

LIFE = "SchedulerInitializationStarted PollingStarted SchedulerInitializationCompleted".split()
END = "SchedulerStopRequested PollingStopRequested PollingStopped SchedulerStopped".split()


def judged(names: Iterable[str]) -> list[str]:
    automata = Automata()
    for name in names:
        automata.see(name, "x" if name.startswith("Task") else None, NOON)
    return [violation.text for violation in automata.violations]


@pytest.mark.req("D-06", "D-07", "D-08")
@pytest.mark.parametrize(
    "names",
    [
        [*LIFE, *END, *LIFE],
        ["SchedulerInitializationStarted", "SchedulerInitializationFailed", *LIFE],
        [*LIFE, "TaskRunStarted", "TaskRunFailed", "TaskRetryStarted", "TaskRunCompleted", *END],
        [*LIFE, "TaskRunStarted", "TaskRunFailed", "TaskRetryPreempted", "TaskRunStarted", "TaskRunCompleted"],
        [*LIFE, "TaskRunStarted", *END[:2], "TaskRunFailed", *END[2:]],
    ],
)
def test_the_events_of_a_correct_scheduler_are_let_pass(names: list[str]) -> None:
    assert judged(names) == []


@pytest.mark.req("D-06", "D-07", "D-08")
@pytest.mark.parametrize(
    "names",
    [
        ["PollingStarted"],
        LIFE[1:],
        [*LIFE, *LIFE],
        [*LIFE, "SchedulerStopped"],
        [*LIFE, "TaskRunCompleted"],
        [*LIFE, "TaskRetryStarted"],
        [*LIFE, "TaskRunStarted", "TaskRunStarted"],
        [*LIFE, "TaskRunStarted", "TaskRunFailed", "TaskRunStarted"],
        [*LIFE, "TaskRunStarted", "TaskRunFailed", "TaskRetryPreempted", "SchedulerStopRequested"],
        [*LIFE, "TaskRunStarted", *END],
        [*LIFE, *END[:1], "TaskRunStarted"],
        [*LIFE, "SchedulerStopRequested", "SchedulerStopped"],
    ],
)
def test_events_that_no_correct_scheduler_emits_are_caught(names: list[str]) -> None:
    assert judged(names) != []
