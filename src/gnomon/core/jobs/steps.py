"""A command instead of a function: what a shell runs, with which variables, where, and what it reads.

Data never becomes a part of the program: references stand in `env`, `workdir` and `stdin`, and the shell is given the
command as it was written.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from gnomon.core.durations import duration_ms
from gnomon.core.instants import instant_of
from gnomon.core.jobs.fields import FieldReader, key_text, printable, schedule_name
from gnomon.core.jobs.inputs import SECRET_BEGINS, check_input, check_size, read_input, read_json, read_schema
from gnomon.core.jobs.routing_fields import ROUTE_FIELDS, read_route
from gnomon.core.model import DAY_MS
from gnomon.core.pings import Ping, PingMoment, is_http_url, redacted_url
from gnomon.core.runs.dag import upstream
from gnomon.core.runs.expressions import ROOTS, check_condition, check_references, references
from gnomon.core.runs.workflow import (
    ONLY_STEP,
    SHELL,
    Delivery,
    Isolation,
    RetryPolicy,
    RoutingRequirements,
    Step,
    When,
    Workflow,
)
from gnomon.errors import FieldError

COMMAND_FIELDS = ("command", "env", "workdir", "stdin")
LONGEST_COMMAND = 16_384
MOST_VARIABLES = 200
#: Our own variables begin with GNOMON_.
ENV_NAME = re.compile(r"(?!GNOMON_)[A-Za-z_][A-Za-z0-9_]{0,127}")


def refuse_without_command(said: FieldReader) -> None:
    """Refuse what says something about a command where there is none."""
    for field in COMMAND_FIELDS[1:]:
        if field in said and "command" not in said:
            raise said.refused(field, "means nothing without command")


def read_command(said: FieldReader, *, alone: bool) -> dict[str, Any]:
    """The fields of a step that runs the command. `alone`: it is a job's only step, and refers to no other."""
    given: dict[str, Any] = {}
    if "env" in said:
        given["env"] = _env(said)
    if "workdir" in said:
        given["workdir"] = _workdir(said)
    if "stdin" in said:
        given["stdin"] = _stdin(said)
    if alone:
        for field, value in given.items():
            check_references(said.at(field), value, frozenset(), item=False)
    return {"function": SHELL, "command": _command(said, each="foreach" in said), "input": given}


def _command(said: FieldReader, *, each: bool) -> str:
    value = read_json(said.at("command"), said["command"])
    if not isinstance(value, str) or not value.strip():
        raise said.refused("command", "must be a text, as one would type it into a shell")
    if len(value) > LONGEST_COMMAND:
        reason = f"has {len(value)} characters; at most {LONGEST_COMMAND} are taken: put it into a script"
        raise said.refused("command", reason)
    if SECRET_BEGINS.search(value):
        raise said.refused("command", "names a secret, and everybody can see commands that run: give it as env")
    for path in references(value):
        root = re.split(r"[.\[]", path, maxsplit=1)[0]
        if root in ROOTS and ("." in path or (each and path in ("item", "index"))):
            reason = 'would make data a part of the program: give it as env, and write "$NAME" here'
            raise FieldError(said.at("command"), f"${{{path}}}", reason)
    return value


def _env(said: FieldReader) -> dict[str, str]:
    value = said["env"]
    if not isinstance(value, Mapping):
        raise said.refused("env", "must be a mapping of variables")
    if len(value) > MOST_VARIABLES:
        raise said.refused("env", f"has {len(value)} variables; at most {MOST_VARIABLES} are taken")
    env = {}
    for name, text in value.items():
        at = f"{said.at('env')}.{key_text(name)}"
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise FieldError(
                at, name, "is no name of a variable: letters, digits and _, and not beginning with GNOMON_"
            )
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise FieldError(at, text, "must be a text")
        env[name] = str(text)
    read_input(said.at("env"), env)
    return env


def _workdir(said: FieldReader) -> str:
    text = printable(said.at("workdir"), said["workdir"])
    if not text or ".." in text.split("/"):
        raise said.refused("workdir", "must be a folder inside of the workspace")
    return text


def _stdin(said: FieldReader) -> str:
    value = read_json(said.at("stdin"), said["stdin"])
    if not isinstance(value, str):
        raise said.refused("stdin", "must be a text")
    return value


def is_reference(text: str) -> bool:
    """Whether the text is one reference and nothing else."""
    return any(text == f"${{{path}}}" for path in references(text))


def check_graph(field: str, workflow_id: str, steps: tuple[Step, ...]) -> None:
    """Refuse steps that could never be run in any order, or that refer to what cannot be there."""
    places = _places(field, steps)
    for index, step in enumerate(steps):
        _check_needs(f"{field}[{index}]", step, places)
        if step.workflow == workflow_id:
            raise FieldError(f"{field}[{index}].workflow", workflow_id, "is this job itself")
    cycle = _cycle(steps)
    if cycle:
        at = f"{field}[{places[cycle[0]]}].depends_on"
        raise FieldError(at, cycle[1], f"closes a circle: {' -> '.join(cycle)}")
    graph = Workflow(workflow_id=workflow_id, version=1, steps=steps)
    for index, step in enumerate(steps):
        _check_step(f"{field}[{index}]", step, graph)


def _places(field: str, steps: tuple[Step, ...]) -> dict[str, int]:
    """Where each step stands."""
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        if step.name in places:
            reason = f"is already the name of dag[{places[step.name]}]"
            raise FieldError(f"{field}[{index}].step", step.name, reason)
        places[step.name] = index
    return places


def _check_needs(field: str, step: Step, places: dict[str, int]) -> None:
    for number, needed in enumerate(step.depends_on):
        at = f"{field}.depends_on[{number}]"
        if needed == step.name:
            raise FieldError(at, needed, "is the step itself")
        if needed not in places:
            raise FieldError(at, needed, "is no step of this dag")
        if needed in step.depends_on[:number]:
            raise FieldError(at, needed, "is named a second time")


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


def _check_step(field: str, step: Step, graph: Workflow) -> None:
    found = list(_values(field, step))
    if not any(True for _, value, _ in found for _ in references(value)):
        return
    before = upstream(graph, step.name)
    for at, value, item in found:
        check_references(at, value, before, item=item)


def _values(field: str, step: Step) -> Iterator[tuple[str, object, bool]]:
    """All of a step that may refer to something: where it stands, what it is, and whether an item is at hand there."""
    inputs = field if step.command else f"{field}.input"
    yield from ((f"{inputs}.{key_text(key)}", value, step.foreach is not None) for key, value in step.input.items())
    yield f"{field}.foreach", step.foreach, False
    yield f"{field}.delay_until", step.delay_until, False
    if step.condition is not None:
        yield from ((f"{field}.if", path, False) for path in _asked(f"{field}.if", step.condition))


def _asked(field: str, condition: str) -> Iterator[str]:
    """The paths of a condition, in the form of references."""
    for path in sorted(check_condition(field, condition)):
        if not is_reference(f"${{{path}}}"):
            raise FieldError(field, path, "is no path to a value, such as steps.check.output.rows")
        yield f"${{{path}}}"


_SECRET = "${secret:"  # noqa: S105 - how one is named
_ONLY_A_SECRET = re.compile(r"\$\{secret:[^{}]+\}")


def read_ping(said: FieldReader) -> Ping | None:
    """What a job says under `ping`: an address, or a mapping with one and when to call it."""
    if "ping" not in said:
        return None
    if isinstance(said["ping"], str):
        return Ping(url=_address(said.at("ping"), said["ping"]))
    fields = FieldReader(said["ping"], ("url", "on"), path=said.at("ping"))
    return Ping(url=_address(fields.at("url"), fields.required("url")), on=_moments(fields))


def ping_as_data(ping: Ping) -> str | dict[str, Any]:
    """What says the same ping again."""
    if ping == Ping(url=ping.url):
        return ping.url
    return {"url": ping.url, "on": [moment.value for moment in ping.on]}


def redacted_ping_url(url: str) -> str:
    """The address as anybody may read it: without what makes it one's own, unless a secret's name is all there is."""
    return url if _ONLY_A_SECRET.fullmatch(url) else redacted_url(url)


def _moments(said: FieldReader) -> tuple[PingMoment, ...]:
    if "on" not in said:
        return Ping(url="").on
    if isinstance(said["on"], str):
        return (said.choice("on", PingMoment, PingMoment.SUCCESS),)
    moments = []
    for path, value in said.entries("on"):
        if value not in tuple(PingMoment):
            raise FieldError(path, value, f"must be one of {', '.join(PingMoment)}")
        moments.append(PingMoment(str(value)))
    if not moments or len(set(moments)) < len(moments):
        raise said.refused("on", "must name start, success or failure, each once")
    return tuple(moments)


def _address(field: str, value: object) -> str:
    url = printable(field, value)
    # What a secret holds is known when it is called.
    if not url.startswith(_SECRET) and not is_http_url(url):
        raise FieldError(field, redacted_url(url), "must be an address such as https://hc-ping.com/your-uuid")
    return url


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


class _AttemptPolicy(Struct, frozen=True, kw_only=True):
    """How a step is tried."""

    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    isolation: Isolation = Isolation.NONE
    route: RoutingRequirements | None = None


def read_workflow(said: FieldReader) -> Workflow:
    """What the job does. Its version is 1 until it is registered."""
    name = said.name("name")
    trying = _read_attempt_policy(said, _AttemptPolicy())
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


def _steps(said: FieldReader, name: str, trying: _AttemptPolicy) -> tuple[Step, ...]:
    named = [field for field in ("function", "command", "dag") if field in said]
    if len(named) > 1:
        raise said.refused(named[1], f"cannot be beside {named[0]}: say one of them")
    refuse_without_command(said)
    if "dag" not in said:
        return (Step(name=ONLY_STEP, **_read_function_call(said, trying, alone=True)),)
    steps = tuple(_step(FieldReader(step, STEP_FIELDS, path=path), trying) for path, step in said.entries("dag"))
    if not steps:
        raise said.refused("dag", "has no steps")
    check_size(said.at("dag"), steps)
    check_graph(said.at("dag"), name, steps)
    return steps


def _read_attempt_policy(said: FieldReader, above: _AttemptPolicy) -> _AttemptPolicy:
    """What is said here; where nothing is, what was said above."""
    limit = said.duration("timeout", 0, low=1, high=LONGEST_TIMEOUT_MS)
    return _AttemptPolicy(
        timeout_ms=limit or above.timeout_ms,
        retry=_retry(FieldReader(said["retry"], RETRY_FIELDS, path=said.at("retry")))
        if "retry" in said
        else above.retry,
        isolation=said.choice("isolation", Isolation, above.isolation),
        route=read_route(said, above.route),
    )


def _step(said: FieldReader, above: _AttemptPolicy) -> Step:
    return Step(
        name=said.name("step"),
        depends_on=tuple(schedule_name(path, name) for path, name in said.entries("depends_on")),
        when=_when(said),
        condition=said.text("if") if "if" in said else None,
        foreach=_foreach(said),
        max_parallel=_max_parallel(said, "foreach"),
        delay_ms=said.duration("delay", 0, low=1, high=LONGEST_DELAY_MS) or None,
        delay_until=_delay_until(said),
        **_read_action(said, above),
    )


def _read_action(said: FieldReader, above: _AttemptPolicy) -> dict[str, Any]:
    """What the step does: it calls a function, runs a command or another workflow, or only waits.

    Tried as far as that can be.
    """
    trying = _read_attempt_policy(said, above)
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
        return _read_function_call(said, trying, alone=False)
    if "function" not in said and ("delay" in said or "delay_until" in said):
        for field in ("input", "foreach", *_TRY_FIELDS):
            if field in said:
                raise said.refused(field, "means nothing for a step that only waits")
        return {}
    return _read_function_call(said, trying, alone=False) | given


def _read_function_call(said: FieldReader, trying: _AttemptPolicy, *, alone: bool) -> dict[str, Any]:
    """The function that is called or the command that is run, and how it is tried. `alone`: as a job's only step."""
    if "command" not in said:
        return {"function": _function(said), **asdict(trying)}
    _refuse_beside(said, "isolation", "command", "it has processes of its own in any case")
    tried = {"timeout_ms": trying.timeout_ms, "retry": trying.retry, "route": trying.route}
    return {**read_command(said, alone=alone), **tried}


def _refuse_beside(said: FieldReader, field: str, other: str, reason: str) -> None:
    if field in said:
        raise said.refused(field, f"cannot be beside {other}: {reason}")


def _when(said: FieldReader) -> When:
    when = said.choice("when", When, When.ALL_SUCCESS)
    if when is not When.ALL_SUCCESS and not said.entries("depends_on"):
        raise said.refused("when", "means nothing without depends_on")
    return when


def _foreach(said: FieldReader) -> str | list[Any] | None:
    if "foreach" not in said:
        return None
    value = said["foreach"]
    if isinstance(value, list | tuple):
        items: list[Any] = read_json(said.at("foreach"), value)
        return items
    if isinstance(value, str) and is_reference(value):
        return value
    raise said.refused("foreach", "must be a list, or one reference such as ${steps.list.output}")


def _max_parallel(said: FieldReader, many: str) -> int | None:
    if "max_parallel" not in said:
        return None
    if many not in said:
        raise said.refused("max_parallel", f"means nothing without {many}")
    return said.whole("max_parallel", 1, low=1, high=MOST_PARALLEL)


def _delay_until(said: FieldReader) -> str | None:
    if "delay_until" not in said:
        return None
    value = said["delay_until"]
    if isinstance(value, str) and is_reference(value):
        return value
    at = said.instant("delay_until")
    if at is None:
        raise said.refused("delay_until", "must be an ISO instant, or one reference such as ${steps.ask.output}")
    return instant_of(at).isoformat()


def _refuse_second_starts(said: FieldReader, steps: tuple[Step, ...]) -> None:
    for index, step in enumerate(steps):
        if step.retry is not None and step.retry.max_attempts > 1:
            own = "dag" in said and "retry" in said["dag"][index]
            field = f"{said.at('dag')}[{index}].retry.max_attempts" if own else said.at("retry.max_attempts")
            raise FieldError(field, step.retry.max_attempts, "contradicts delivery: at_most_once, which is one attempt")


def _retry(said: FieldReader) -> RetryPolicy:
    usual = RetryPolicy()
    initial = said.duration("initial_delay", usual.initial_delay_ms, high=LONGEST_TIMEOUT_MS)
    longest = said.duration("max_delay", max(initial, usual.max_delay_ms), high=LONGEST_TIMEOUT_MS)
    if "max_delay" in said and longest < initial:
        raise said.refused("max_delay", "is shorter than initial_delay")
    return RetryPolicy(
        max_attempts=said.whole("max_attempts", usual.max_attempts, low=1, high=MOST_ATTEMPTS),
        initial_delay_ms=initial,
        multiplier=said.number("multiplier", usual.multiplier, low=1, high=LARGEST_MULTIPLIER),
        max_delay_ms=longest,
        jitter=said.number("jitter", usual.jitter, low=0, high=1),
    )


def _function(said: FieldReader) -> str:
    value = said.required("function")
    if not isinstance(value, str) or not FUNCTION.fullmatch(value):
        raise said.refused("function", "must be 1 to 255 of letters, digits, and _ . / : @ -, as in team/app/function")
    if value == SHELL:
        raise said.refused("function", "is what runs commands: say command instead")
    return value


def _tags(said: FieldReader) -> tuple[str, ...]:
    tags: list[str] = []
    for path, value in said.entries("tags", most=MOST_TAGS):
        tag = printable(path, value, longest=LONGEST_TAG)
        if not tag.strip():
            raise FieldError(path, value, "is empty")
        if tag in tags:
            raise FieldError(path, value, "is named a second time")
        tags.append(tag)
    return tuple(tags)


def _retention_days(said: FieldReader) -> int | None:
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
