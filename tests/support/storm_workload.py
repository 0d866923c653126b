"""The jobs of a storm: every policy for overlaps and catch-up, edits, pauses, events, failures, isolation."""

from itertools import product

from gnomon.core.model import Catchup, Overlap
from support.chaos_fleet import Workload

#: The jobs that operators change during a storm.
PAUSED, EDITED, EXCEPTED = "paused-and-resumed", "edited", "with-exceptions"
EVENT, LISTENER = "storm.signal", "listener"
#: The job that is triggered with keys.
KEYED = "keyed"

_POLICIES = list(product(Overlap, Catchup))
#: Longer than the period, so that runs overlap, for half of them.
_SECONDS = {Catchup.NONE: 2.3, Catchup.LATEST: 2.3, Catchup.ALL: 0.3, Catchup.SPREAD: 0.3}
_TICKING = [
    f"  - {{name: {overlap}-{catchup}, function: effects/{'thread' if catchup is Catchup.ALL else 'coroutine'}, "
    f'schedule: "*/2 * * * * *", overlap: {overlap}, catchup: {catchup}, misfire_grace: 2s, '
    f"input: {{seconds: {_SECONDS[catchup]}, policy: {overlap}-{catchup}}}}}"
    for overlap, catchup in _POLICIES
]
_OTHERS = """
  - {name: jittered, function: effects/coroutine, schedule: "* * * * * *", jitter: 400ms, overlap: allow, catchup: all}
  - name: retried
    function: effects/coroutine
    schedule: "*/3 * * * * *"
    overlap: allow
    catchup: all
    input: {fails: 1}
    retry: {max_attempts: 3, initial_delay: 200ms, jitter: 0}
  - name: failing
    function: effects/thread
    schedule: "*/5 * * * * *"
    overlap: allow
    catchup: all
    input: {fails: 9, seconds: 0}
    retry: {max_attempts: 2, initial_delay: 2500ms, jitter: 0}
    dead_letter: true
  - {name: isolated, function: effects/thread, isolation: process, schedule: "*/6 * * * * *", overlap: queue}
  - {name: paused-and-resumed, function: effects/coroutine, schedule: "* * * * * *", overlap: allow, catchup: all}
  - {name: edited, function: effects/coroutine, every: 1s, overlap: allow, catchup: all, input: {version: 0}}
  - {name: with-exceptions, function: effects/coroutine, schedule: "*/2 * * * * *", overlap: allow, catchup: all}
  - {name: listener, function: effects/coroutine, overlap: allow, on: {event: storm.signal}, input: {own: 1}}
  - {name: keyed, function: effects/coroutine, overlap: allow}
  - name: once
    function: effects/thread
    overlap: allow
    delivery: at_most_once
    dead_letter: true
    input: {seconds: 0.5}
  - name: graph
    overlap: allow
    dag:
      - {step: extract, function: effects/coroutine, input: {part: extract}}
      - {step: left, function: effects/thread, depends_on: [extract], input: {part: left}}
      - {step: right, function: effects/coroutine, depends_on: [extract], input: {part: right}}
      - {step: load, function: effects/coroutine, depends_on: [left, right], input: {part: load}}
"""
_OTHER_TICKING = ("jittered", "retried", "failing", "isolated", PAUSED, EDITED, EXCEPTED)

EVERY_POLICY = Workload(
    file="\n".join(["jobs:", *_TICKING]) + _OTHERS,
    triggered=("once", "graph"),
    ticking=(*(f"{overlap}-{catchup}" for overlap, catchup in _POLICIES), *_OTHER_TICKING),
    max_attempts={"retried": 3, "failing": 2},
    retry_delays_ms={"failing": 2500},
    dead_letters=frozenset({"once", "failing"}),
    at_most_once=frozenset({"once"}),
    one_at_a_time={
        **{f"{overlap}-{catchup}": overlap for overlap, catchup in _POLICIES if overlap is not Overlap.ALLOW},
        "isolated": Overlap.QUEUE,
    },
    settings={"GNOMON_TICKER__LOOKAHEAD_MS": "4000"},
)


def edited_job(version: int) -> dict[str, object]:
    """The definition of the edited job, as an operator changes it for the n-th time."""
    return {
        "name": EDITED,
        "function": "effects/coroutine",
        "every": ("1s", "2s", "1500ms")[version % 3],
        "overlap": "allow",
        "catchup": "all",
        "input": {"version": version},
    }
