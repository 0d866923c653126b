"""What a job does: its function or its graph of steps, and how each is to be tried."""

import re

from msgspec import Struct
from msgspec.structs import asdict

from gnomon.core.durations import duration_ms
from gnomon.core.inputs import check_input, check_size, read_input, read_schema
from gnomon.core.model import DAY_MS
from gnomon.core.said import Said, printable, schedule_name
from gnomon.core.workflow import ONLY_STEP, Delivery, Isolation, Retry, Step, Workflow
from gnomon.errors import FieldError

#: What says how a step is tried; a job may say it for all of its steps.
_TRY_FIELDS = ("timeout", "retry", "isolation")
WORK_FIELDS = (
    "name", "description", "tags", "function", "dag", "input", "input_schema", *_TRY_FIELDS, "delivery", "lock",
    "dead_letter", "retention",
)  # fmt: skip
STEP_FIELDS = ("step", "function", "depends_on", "input", *_TRY_FIELDS)
RETRY_FIELDS = ("max_attempts", "initial_delay", "multiplier", "max_delay", "jitter")
LONGEST_TIMEOUT_MS = 30 * DAY_MS
LONGEST_RETENTION_DAYS = 36_500
MOST_ATTEMPTS, LARGEST_MULTIPLIER = 1000, 1000
MOST_TAGS, LONGEST_TAG = 50, 64
FUNCTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]{0,254}")


class _Trying(Struct, frozen=True, kw_only=True):
    """How a step is tried."""

    timeout_ms: int | None = None
    retry: Retry | None = None
    isolation: Isolation = Isolation.NONE


def read_workflow(said: Said) -> Workflow:
    """What the job does. Its version is 1 until it is registered."""
    name = said.name("name")
    trying = _trying(said, _Trying())
    delivery = said.choice("delivery", Delivery, Delivery.AT_LEAST_ONCE)
    given = read_input(said.at("input"), said["input"]) if "input" in said else {}
    schema = read_schema(said.at("input_schema"), said["input_schema"]) if "input_schema" in said else None
    check_input(said.at("input"), given, schema)
    steps = _steps(said, trying)
    if delivery is Delivery.AT_MOST_ONCE:
        _refuse_second_starts(said, steps)
    return Workflow(
        workflow_id=name,
        version=1,
        steps=steps,
        description=said.lines("description", ""),
        tags=_tags(said),
        input=given,
        input_schema=schema,
        delivery=delivery,
        dead_letter=said.flag("dead_letter", default=False),
        lock=said.flag("lock", default=False),
        retention_days=_retention_days(said),
    )


def _steps(said: Said, trying: _Trying) -> tuple[Step, ...]:
    if "function" in said and "dag" in said:
        raise said.refused("dag", "cannot be beside function: say one of them")
    if "dag" not in said:
        return (Step(name=ONLY_STEP, function=_function(said), **asdict(trying)),)
    steps = tuple(_step(Said(step, STEP_FIELDS, path=path), trying) for path, step in said.entries("dag"))
    if not steps:
        raise said.refused("dag", "has no steps")
    check_size(said.at("dag"), steps)
    _check_graph(said, steps)
    return steps


def _trying(said: Said, above: _Trying) -> _Trying:
    """What is said here; where nothing is, what was said above."""
    limit = said.duration("timeout", 0, low=1, high=LONGEST_TIMEOUT_MS)
    return _Trying(
        timeout_ms=limit or above.timeout_ms,
        retry=_retry(Said(said["retry"], RETRY_FIELDS, path=said.at("retry"))) if "retry" in said else above.retry,
        isolation=said.choice("isolation", Isolation, above.isolation),
    )


def _step(said: Said, above: _Trying) -> Step:
    trying = _trying(said, above)
    return Step(
        name=said.name("step"),
        function=_function(said),
        depends_on=tuple(schedule_name(path, name) for path, name in said.entries("depends_on")),
        input=read_input(said.at("input"), said["input"]) if "input" in said else {},
        **asdict(trying),
    )


def _check_graph(said: Said, steps: tuple[Step, ...]) -> None:
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        if step.name in places:
            reason = f"is already the name of dag[{places[step.name]}]"
            raise FieldError(f"{said.at('dag')}[{index}].step", step.name, reason)
        places[step.name] = index
    for index, step in enumerate(steps):
        for number, needed in enumerate(step.depends_on):
            field = f"{said.at('dag')}[{index}].depends_on[{number}]"
            if needed == step.name:
                raise FieldError(field, needed, "is the step itself")
            if needed not in places:
                raise FieldError(field, needed, "is no step of this dag")
            if needed in step.depends_on[:number]:
                raise FieldError(field, needed, "is named a second time")
    cycle = _cycle(steps)
    if cycle:
        field = f"{said.at('dag')}[{places[cycle[0]]}].depends_on"
        raise FieldError(field, cycle[1], f"closes a circle: {' -> '.join(cycle)}")


def _cycle(steps: tuple[Step, ...]) -> list[str]:
    """Steps of which each needs the next and the last is the first; none, if there is an order to run them in."""
    needs = {step.name: set(step.depends_on) for step in steps}
    needed_by: dict[str, list[str]] = {step.name: [] for step in steps}
    for step in steps:
        for needed in step.depends_on:
            needed_by[needed].append(step.name)
    ready = [name for name, needed in needs.items() if not needed]
    while ready:
        done = ready.pop()
        del needs[done]
        for name in needed_by[done]:
            needs[name].discard(done)
            if not needs[name]:
                ready.append(name)
    if not needs:
        return []
    # Each step that is left needs another that is left, so following them comes back to one of them.
    way = [next(iter(needs))]
    while way.count(way[-1]) < 2:
        way.append(min(needs[way[-1]]))
    return way[way.index(way[-1]) :]


def _refuse_second_starts(said: Said, steps: tuple[Step, ...]) -> None:
    for index, step in enumerate(steps):
        if step.retry is not None and step.retry.max_attempts > 1:
            own = "dag" in said and "retry" in said["dag"][index]
            field = f"{said.at('dag')}[{index}].retry.max_attempts" if own else said.at("retry.max_attempts")
            raise FieldError(field, step.retry.max_attempts, "contradicts delivery: at_most_once, which is one attempt")


def _retry(said: Said) -> Retry:
    usual = Retry()
    initial = said.duration("initial_delay", usual.initial_delay_ms, high=LONGEST_TIMEOUT_MS)
    longest = said.duration("max_delay", max(initial, usual.max_delay_ms), high=LONGEST_TIMEOUT_MS)
    if "max_delay" in said and longest < initial:
        raise said.refused("max_delay", "is shorter than initial_delay")
    return Retry(
        max_attempts=said.whole("max_attempts", usual.max_attempts, low=1, high=MOST_ATTEMPTS),
        initial_delay_ms=initial,
        multiplier=said.number("multiplier", usual.multiplier, low=1, high=LARGEST_MULTIPLIER),
        max_delay_ms=longest,
        jitter=said.number("jitter", usual.jitter, low=0, high=1),
    )


def _function(said: Said) -> str:
    value = said.required("function")
    if not isinstance(value, str) or not FUNCTION.fullmatch(value):
        raise said.refused("function", "must be 1 to 255 of letters, digits, and _ . / : @ -, as in team/app/function")
    return value


def _tags(said: Said) -> tuple[str, ...]:
    tags: list[str] = []
    for path, value in said.entries("tags", most=MOST_TAGS):
        tag = printable(path, value, longest=LONGEST_TAG)
        if not tag.strip():
            raise FieldError(path, value, "is empty")
        if tag in tags:
            raise FieldError(path, value, "is named a second time")
        tags.append(tag)
    return tuple(tags)


def _retention_days(said: Said) -> int | None:
    if "retention" not in said:
        return None
    value = said["retention"]
    if isinstance(value, str):
        days, rest = divmod(duration_ms(said.at("retention"), value), DAY_MS)
    else:
        days, rest = said.whole("retention", 1, low=1, high=LONGEST_RETENTION_DAYS), 0
    if rest or not 1 <= days <= LONGEST_RETENTION_DAYS:
        raise said.refused("retention", f"must be whole days, from 1 to {LONGEST_RETENTION_DAYS}, such as 90 or 90d")
    return days
