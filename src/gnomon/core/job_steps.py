"""What a job does: its function or its graph of steps, and how each is to be tried."""

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from gnomon.core.durations import duration_ms
from gnomon.core.inputs import check_input, check_size, read_input, read_json, read_schema
from gnomon.core.instants import instant_of
from gnomon.core.job_commands import COMMAND_FIELDS, read_command, refuse_without_command
from gnomon.core.job_graphs import check_graph, is_reference
from gnomon.core.job_pings import read_ping
from gnomon.core.job_routes import ROUTE_FIELDS, read_route
from gnomon.core.model import DAY_MS
from gnomon.core.said import Said, printable, schedule_name
from gnomon.core.workflow import ONLY_STEP, SHELL, Delivery, Isolation, Retry, Route, Step, When, Workflow
from gnomon.errors import FieldError

#: What says how a step is tried; a job may say it for all of its steps.
_TRY_FIELDS = ("timeout", "retry", "isolation", *ROUTE_FIELDS)
WORK_FIELDS = (
    "name", "description", "tags", "function", *COMMAND_FIELDS, "dag", "max_parallel", "input", "input_schema",
    *_TRY_FIELDS, "delivery", "lock", "dead_letter", "retention", "ping",
)  # fmt: skip
STEP_FIELDS = (
    "step", "function", *COMMAND_FIELDS, "workflow", "depends_on", "when", "if", "input", "foreach", "max_parallel",
    "delay", "delay_until", *_TRY_FIELDS,
)  # fmt: skip
RETRY_FIELDS = ("max_attempts", "initial_delay", "multiplier", "max_delay", "jitter")
LONGEST_TIMEOUT_MS = 30 * DAY_MS
LONGEST_DELAY_MS = 366 * DAY_MS
MOST_PARALLEL = 100_000
LONGEST_RETENTION_DAYS = 36_500
MOST_ATTEMPTS, LARGEST_MULTIPLIER = 1000, 1000
MOST_TAGS, LONGEST_TAG = 50, 64
FUNCTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]{0,254}")


class _Trying(Struct, frozen=True, kw_only=True):
    """How a step is tried."""

    timeout_ms: int | None = None
    retry: Retry | None = None
    isolation: Isolation = Isolation.NONE
    route: Route | None = None


def read_workflow(said: Said) -> Workflow:
    """What the job does. Its version is 1 until it is registered."""
    name = said.name("name")
    trying = _trying(said, _Trying())
    delivery = said.choice("delivery", Delivery, Delivery.AT_LEAST_ONCE)
    given = read_input(said.at("input"), said["input"]) if "input" in said else {}
    schema = read_schema(said.at("input_schema"), said["input_schema"]) if "input_schema" in said else None
    check_input(said.at("input"), given, schema)
    steps = _steps(said, name, trying)
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
        max_parallel=_max_parallel(said, "dag"),
        lock=said.flag("lock", default=False),
        retention_days=_retention_days(said),
        ping=read_ping(said),
    )


def _steps(said: Said, name: str, trying: _Trying) -> tuple[Step, ...]:
    named = [field for field in ("function", "command", "dag") if field in said]
    if len(named) > 1:
        raise said.refused(named[1], f"cannot be beside {named[0]}: say one of them")
    refuse_without_command(said)
    if "dag" not in said:
        return (Step(name=ONLY_STEP, **_calling(said, trying, alone=True)),)
    steps = tuple(_step(Said(step, STEP_FIELDS, path=path), trying) for path, step in said.entries("dag"))
    if not steps:
        raise said.refused("dag", "has no steps")
    check_size(said.at("dag"), steps)
    check_graph(said.at("dag"), name, steps)
    return steps


def _trying(said: Said, above: _Trying) -> _Trying:
    """What is said here; where nothing is, what was said above."""
    limit = said.duration("timeout", 0, low=1, high=LONGEST_TIMEOUT_MS)
    return _Trying(
        timeout_ms=limit or above.timeout_ms,
        retry=_retry(Said(said["retry"], RETRY_FIELDS, path=said.at("retry"))) if "retry" in said else above.retry,
        isolation=said.choice("isolation", Isolation, above.isolation),
        route=read_route(said, above.route),
    )


def _step(said: Said, above: _Trying) -> Step:
    return Step(
        name=said.name("step"),
        depends_on=tuple(schedule_name(path, name) for path, name in said.entries("depends_on")),
        when=_when(said),
        condition=said.text("if") if "if" in said else None,
        foreach=_foreach(said),
        max_parallel=_max_parallel(said, "foreach"),
        delay_ms=said.duration("delay", 0, low=1, high=LONGEST_DELAY_MS) or None,
        delay_until=_delay_until(said),
        **_doing(said, above),
    )


def _doing(said: Said, above: _Trying) -> dict[str, Any]:
    """What the step does: it calls a function, runs a command or another workflow, or only waits.

    Tried as far as that can be.
    """
    trying = _trying(said, above)
    given = {"input": read_input(said.at("input"), said["input"])} if "input" in said else {}
    refuse_without_command(said)
    if "workflow" in said:
        for field in ("function", "command"):
            _refuse_beside(said, field, "workflow", "say one of them")
        for field in ("timeout", "isolation", *ROUTE_FIELDS):
            _refuse_beside(said, field, "workflow", "whose own steps have theirs")
        return {"workflow": said.name("workflow"), "retry": trying.retry, **given}
    if "command" in said:
        _refuse_beside(said, "function", "command", "say one of them")
        _refuse_beside(said, "input", "command", "give it as env, or as stdin")
        return _calling(said, trying, alone=False)
    if "function" not in said and ("delay" in said or "delay_until" in said):
        for field in ("input", "foreach", *_TRY_FIELDS):
            if field in said:
                raise said.refused(field, "means nothing for a step that only waits")
        return {}
    return _calling(said, trying, alone=False) | given


def _calling(said: Said, trying: _Trying, *, alone: bool) -> dict[str, Any]:
    """The function that is called or the command that is run, and how it is tried. `alone`: as a job's only step."""
    if "command" not in said:
        return {"function": _function(said), **asdict(trying)}
    _refuse_beside(said, "isolation", "command", "it has processes of its own in any case")
    tried = {"timeout_ms": trying.timeout_ms, "retry": trying.retry, "route": trying.route}
    return {**read_command(said, alone=alone), **tried}


def _refuse_beside(said: Said, field: str, other: str, reason: str) -> None:
    if field in said:
        raise said.refused(field, f"cannot be beside {other}: {reason}")


def _when(said: Said) -> When:
    when = said.choice("when", When, When.ALL_SUCCESS)
    if when is not When.ALL_SUCCESS and not said.entries("depends_on"):
        raise said.refused("when", "means nothing without depends_on")
    return when


def _foreach(said: Said) -> str | list[Any] | None:
    if "foreach" not in said:
        return None
    value = said["foreach"]
    if isinstance(value, list | tuple):
        items: list[Any] = read_json(said.at("foreach"), value)
        return items
    if isinstance(value, str) and is_reference(value):
        return value
    raise said.refused("foreach", "must be a list, or one reference such as ${steps.list.output}")


def _max_parallel(said: Said, many: str) -> int | None:
    if "max_parallel" not in said:
        return None
    if many not in said:
        raise said.refused("max_parallel", f"means nothing without {many}")
    return said.whole("max_parallel", 1, low=1, high=MOST_PARALLEL)


def _delay_until(said: Said) -> str | None:
    if "delay_until" not in said:
        return None
    value = said["delay_until"]
    if isinstance(value, str) and is_reference(value):
        return value
    at = said.instant("delay_until")
    if at is None:
        raise said.refused("delay_until", "must be an ISO instant, or one reference such as ${steps.ask.output}")
    return instant_of(at).isoformat()


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
    if value == SHELL:
        raise said.refused("function", "is what runs commands: say command instead")
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
