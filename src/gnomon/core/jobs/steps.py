"""The workflow of a job: its steps, their actions, retries, the graph between them, and pings.

A step runs a function, a command, an HTTP call, an agent or another workflow, or only waits. Data never becomes a part
of a command: references are allowed in `env`, `workdir` and `stdin` only, and the shell gets the command as written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.breakers import StepBreaker
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.commands.syntax import LONGEST_COMMAND
from gnomon.core.durations import duration_ms
from gnomon.core.instants import instant_of
from gnomon.core.jobs.agent_fields import AGENT_FIELDS, read_agent
from gnomon.core.jobs.announce_fields import read_announcements
from gnomon.core.jobs.breaker_fields import read_breaker
from gnomon.core.jobs.fields import FUNCTION, FieldReader, key_text, printable, schedule_name
from gnomon.core.jobs.http_fields import HTTP_FIELDS, read_http
from gnomon.core.jobs.inputs import check_input, check_size, read_input, read_json, read_schema
from gnomon.core.jobs.routing_fields import ROUTE_FIELDS, read_route
from gnomon.core.model import DAY_MS
from gnomon.core.pings import REDACTED_PATH, Ping, PingMoment, is_http_url, redacted_url
from gnomon.core.runs.dag import upstream
from gnomon.core.runs.expressions import ROOTS, SECRET_BEGINS, check_condition, check_references, references
from gnomon.core.runs.rollback import COMPENSATION_TERMS, ROLLBACK_ON, compensation_name
from gnomon.core.runs.workflow import (
    AGENT,
    HTTP,
    ONLY_STEP,
    SHELL,
    Delivery,
    Isolation,
    Priority,
    RetryPolicy,
    RoutingRequirements,
    Step,
    When,
    Workflow,
)
from gnomon.errors import FieldError

COMMAND_FIELDS = ("command", "env", "workdir", "stdin")
#: The fields about the sandbox of a command; a job may set them for all of its commands.
SANDBOX_FIELDS = ("sandbox", "network")
MOST_VARIABLES = 200
#: Names that begin with GNOMON_ are reserved.
ENV_NAME = re.compile(r"(?!GNOMON_)[A-Za-z_][A-Za-z0-9_]{0,127}")
#: The fields that rules of the policy match, besides others.
RISK_FIELDS = ("capability", "risk_tags")
#: The deadline of a job or step, under its two names.
DEADLINE_FIELDS = ("deadline", "budget")
#: The fields about attempts; a job may set them for all of its steps.
_TRY_FIELDS = ("timeout", "retry", "isolation", *ROUTE_FIELDS, *RISK_FIELDS, "breaker")
WORK_FIELDS = (
    "name", "description", "tags", "function", *COMMAND_FIELDS, *SANDBOX_FIELDS, "http", "agent", "dag",
    "max_parallel", "input", "input_schema", *_TRY_FIELDS, *DEADLINE_FIELDS, "delivery", "lock", "dead_letter",
    "rollback_on", "retention", "ping", "announce",
)  # fmt: skip
STEP_FIELDS = (
    "step", "function", *COMMAND_FIELDS, *SANDBOX_FIELDS, "http", "agent", "workflow", "depends_on", "when", "if",
    "input", "foreach", "max_parallel", "delay", "delay_sec", "delay_until", "compensate", *_TRY_FIELDS,
    *DEADLINE_FIELDS,
)  # fmt: skip
COMPENSATION_FIELDS = ("function", *COMMAND_FIELDS, *SANDBOX_FIELDS, "http", "input", *_TRY_FIELDS)
RETRY_FIELDS = ("max_attempts", "initial_delay", "multiplier", "max_delay", "jitter")
LONGEST_TIMEOUT_MS = 30 * DAY_MS
LONGEST_DELAY_MS = 366 * DAY_MS
LONGEST_DEADLINE_MS = 366 * DAY_MS
#: The other name of a deadline: a number of milliseconds.
BUDGET_FIELDS = ("deadline_ms",)
SHORTEST_DELAY_SECONDS = 0.001
#: A step with one of these fields may have no action: it only waits.
DELAY_FIELDS = ("delay", "delay_sec", "delay_until")
MOST_PARALLEL = 100_000
LONGEST_RETENTION_DAYS = 36_500
MOST_RETAINED_RUNS = 100_000
MOST_ATTEMPTS, LARGEST_MULTIPLIER = 1000, 1000
MOST_TAGS, LONGEST_TAG = 50, 64
LONGEST_RISK_WORD = 128


class _AttemptPolicy(Struct, frozen=True, kw_only=True):
    """The fields of a step about its attempts."""

    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    isolation: Isolation = Isolation.NONE
    route: RoutingRequirements | None = None
    capability: str = ""
    risk_tags: tuple[str, ...] = ()
    breaker: StepBreaker | None = None
    #: Of commands only.
    sandbox: SandboxMode = SandboxMode.AUTO
    network: bool = True


def read_workflow(fields: FieldReader) -> Workflow:
    """The workflow of a job. Its version is 1 until it is registered."""
    name = fields.name("name")
    policy = _read_attempt_policy(fields, _AttemptPolicy())
    delivery = fields.choice("delivery", Delivery, Delivery.AT_LEAST_ONCE)
    inputs = read_input(fields.at("input"), fields["input"]) if "input" in fields else {}
    schema = read_schema(fields.at("input_schema"), fields["input_schema"]) if "input_schema" in fields else None
    check_input(fields.at("input"), inputs, schema)
    steps = _steps(fields, name, policy)
    if delivery is Delivery.AT_MOST_ONCE:
        _refuse_retries(fields, steps)
    return Workflow(
        workflow_id=name,
        version=1,
        steps=steps,
        description=fields.lines("description", ""),
        tags=_tags(fields),
        input=inputs,
        input_schema=schema,
        delivery=delivery,
        dead_letter=fields.flag("dead_letter", default=False),
        rollback_on=_rollback_on(fields, steps),
        max_parallel=_max_parallel(fields, "dag"),
        deadline_ms=read_deadline(fields),
        lock=fields.flag("lock", default=False),
        **_retention(fields),
        ping=_read_ping(fields),
        announce=read_announcements(fields, frozenset(step.name for step in steps)),
    )


def _steps(fields: FieldReader, name: str, policy: _AttemptPolicy) -> tuple[Step, ...]:
    named = [field for field in ("function", "command", "http", "agent", "dag") if field in fields]
    if len(named) > 1:
        raise fields.refused(named[1], f"cannot be beside {named[0]}: say one of them")
    _refuse_without_command(fields, COMMAND_FIELDS[1:])
    if "dag" not in fields:
        _refuse_without_command(fields, SANDBOX_FIELDS)
        return (Step(name=ONLY_STEP, **_read_function_call(fields, policy, alone=True)),)
    steps = tuple(
        _step(FieldReader(step, STEP_FIELDS, path=path), name, policy) for path, step in fields.entries("dag")
    )
    if not steps:
        raise fields.refused("dag", "has no steps")
    check_size(fields.at("dag"), steps)
    if not any(step.is_command or (step.compensate and step.compensate.is_command) for step in steps):
        _refuse_without_command(fields, SANDBOX_FIELDS)
    _check_graph(fields.at("dag"), name, steps)
    return steps


def _read_attempt_policy(fields: FieldReader, inherited: _AttemptPolicy) -> _AttemptPolicy:
    """The policy of a job or step: its own fields, completed by `inherited`."""
    limit = fields.duration("timeout", 0, low=1, high=LONGEST_TIMEOUT_MS)
    return _AttemptPolicy(
        timeout_ms=limit or inherited.timeout_ms,
        retry=_retry(FieldReader(fields["retry"], RETRY_FIELDS, path=fields.at("retry")))
        if "retry" in fields
        else inherited.retry,
        isolation=fields.choice("isolation", Isolation, inherited.isolation),
        route=read_route(fields, inherited.route),
        capability=_capability(fields, inherited.capability),
        risk_tags=_risk_tags(fields, inherited.risk_tags),
        breaker=read_breaker(fields, inherited.breaker),
        sandbox=_sandbox(fields, inherited.sandbox),
        network=_network(fields, inherited=inherited.network),
    )


def _capability(fields: FieldReader, inherited: str) -> str:
    if "capability" not in fields:
        return inherited
    word = printable(fields.at("capability"), fields["capability"], longest=LONGEST_RISK_WORD).strip()
    if not word:
        raise fields.refused("capability", "is empty")
    return word


def _risk_tags(fields: FieldReader, inherited: tuple[str, ...]) -> tuple[str, ...]:
    """The risk tags of the step in lower case, after those of its job: a step cannot shed them."""
    tags = dict.fromkeys(inherited)
    for path, value in fields.entries("risk_tags", most=MOST_TAGS):
        tag = printable(path, value, longest=LONGEST_RISK_WORD).strip().lower()
        if not tag:
            raise FieldError(path, value, "is empty")
        tags[tag] = None
    return tuple(tags)


def _sandbox(fields: FieldReader, inherited: SandboxMode) -> SandboxMode:
    if "sandbox" in fields and fields["sandbox"] in (False, SandboxMode.OFF):
        raise fields.refused("sandbox", "must be auto or required: a job can only tighten the sandbox of its worker")
    found = fields.choice("sandbox", SandboxMode, inherited)
    if found is SandboxMode.AUTO and inherited is SandboxMode.REQUIRED:
        raise fields.refused("sandbox", "would loosen that of the job, which is required")
    return found


def _network(fields: FieldReader, *, inherited: bool) -> bool:
    found = fields.flag("network", default=inherited)
    if found and not inherited:
        raise fields.refused("network", "would loosen that of the job, which is false")
    return found


def _step(fields: FieldReader, workflow: str, inherited: _AttemptPolicy) -> Step:
    name = fields.name("step")
    return Step(
        name=name,
        depends_on=tuple(schedule_name(path, name) for path, name in fields.entries("depends_on")),
        when=_when(fields),
        condition=fields.text("if") if "if" in fields else None,
        foreach=_foreach(fields),
        max_parallel=_max_parallel(fields, "foreach"),
        delay_ms=_delay_ms(fields),
        delay_until=_delay_until(fields),
        deadline_ms=read_deadline(fields),
        compensate=_compensation(fields, workflow, name, inherited),
        **_read_action(fields, inherited),
    )


def _compensation(fields: FieldReader, workflow: str, step: str, inherited: _AttemptPolicy) -> Step | None:
    """The step that undoes this one, or each of its items. It has the attempt policy of this one by default."""
    if "compensate" not in fields:
        return None
    if not any(field in fields for field in ("function", "command", "http", "agent", "workflow")):
        raise fields.refused("compensate", "means nothing for a step that only waits")
    own = FieldReader(fields["compensate"], COMPENSATION_FIELDS, path=fields.at("compensate"))
    action = _read_action(own, _read_attempt_policy(fields, inherited))
    terms = dict(zip(COMPENSATION_TERMS, ("true", workflow, "true"), strict=True))
    if "command" in action:
        variables = {name: terms[name] for name in COMPENSATION_TERMS[:2]}
        action["input"] = {**action["input"], "env": {**action["input"].get("env", {}), **variables}}
    route = action["route"] or RoutingRequirements()
    action["route"] = replace(route, priority=Priority.CRITICAL, labels={**route.labels, **terms})
    if "foreach" in fields:
        # Items are undone one after the other.
        action |= {"foreach": _foreach(fields), "max_parallel": 1}
    return Step(name=compensation_name(step), **action)


def _rollback_on(fields: FieldReader, steps: Sequence[Step]) -> tuple[str, ...]:
    """The ends of steps, besides giving up for good, that roll a run back."""
    if "rollback_on" not in fields:
        return ()
    if not any(step.undo is not None for step in steps):
        raise fields.refused("rollback_on", "means nothing without a step that has compensate or workflow")
    found: dict[str, None] = {}
    for path, value in fields.entries("rollback_on"):
        if value not in tuple(cause.value for cause in ROLLBACK_ON):
            raise FieldError(path, value, f"must be one of {', '.join(ROLLBACK_ON)}")
        if value in found:
            raise FieldError(path, value, "is named a second time")
        found[str(value)] = None
    return tuple(found)


def _read_action(fields: FieldReader, inherited: _AttemptPolicy) -> dict[str, Any]:
    """The action of a step: call a function or a URL, run a command, an agent or another workflow, or only wait.

    A workflow takes only the retries of the attempt policy, and a step that only waits takes nothing of it.
    """
    policy = _read_attempt_policy(fields, inherited)
    inputs = {"input": read_input(fields.at("input"), fields["input"])} if "input" in fields else {}
    _refuse_without_command(fields, (*COMMAND_FIELDS[1:], *SANDBOX_FIELDS))
    action = _action_field(fields)
    if action == "workflow":
        for field in ("timeout", "isolation", *ROUTE_FIELDS, *RISK_FIELDS, "breaker"):
            _refuse_beside(fields, field, "workflow", "whose own steps have theirs")
        return {"workflow": fields.name("workflow"), "retry": policy.retry, **inputs}
    if action is not None:
        _refuse_beside(fields, "input", action, _INSTEAD_OF_INPUT[action])
        return _read_function_call(fields, policy, alone=False)
    if "function" not in fields and any(field in fields for field in DELAY_FIELDS):
        for field in ("input", "foreach", *_TRY_FIELDS):
            if field in fields:
                raise fields.refused(field, "means nothing for a step that only waits")
        return {}
    return _read_function_call(fields, policy, alone=False) | inputs


#: Where the data goes of a step that has no input.
_INSTEAD_OF_INPUT = {
    "command": "give it as env, or as stdin",
    "http": "give it as json or body of the call",
    "agent": "refer to the data in the prompt",
}


def _action_field(fields: FieldReader) -> str | None:
    """The field that says what a step does, unless it calls a function or only waits; FieldError if there are two."""
    found = [field for field in ("workflow", "command", "http", "agent") if field in fields]
    if not found:
        return None
    for other in ("function", *found[1:]):
        _refuse_beside(fields, other, found[0], "say one of them")
    return found[0]


def _read_function_call(fields: FieldReader, policy: _AttemptPolicy, *, alone: bool) -> dict[str, Any]:
    """The function, command, HTTP call or agent of a step and its attempt policy. `alone`: it is a job's only step."""
    tried = {
        "timeout_ms": policy.timeout_ms,
        "retry": policy.retry,
        "route": policy.route,
        "capability": policy.capability,
        "risk_tags": policy.risk_tags,
        "breaker": policy.breaker,
    }
    if "command" in fields:
        _refuse_beside(fields, "isolation", "command", "it has processes of its own in any case")
        confined = {"sandbox": policy.sandbox, "network": policy.network}
        return {**_read_command(fields, alone=alone), **confined, **tried}
    if "http" in fields:
        _refuse_beside(fields, "isolation", "http", "it needs no process")
        return {**tried, **_read_http_call(fields, alone=alone)}
    if "agent" in fields:
        _refuse_beside(fields, "isolation", "agent", "it has a process of its own in any case")
        return {**_read_agent_call(fields, alone=alone), **tried}
    return {"function": _function(fields), "isolation": policy.isolation, **tried}


def _read_agent_call(fields: FieldReader, *, alone: bool) -> dict[str, Any]:
    """The fields of a step that a model works on. `alone`: it is a job's only step, and refers to no other."""
    agent = FieldReader(fields["agent"], AGENT_FIELDS, path=fields.at("agent"))
    spec, inputs = read_agent(agent)
    if alone:
        check_references(agent.at("prompt"), inputs["prompt"], frozenset(), item=False)
    return {"function": AGENT, "agent": spec, "input": inputs}


def _read_http_call(fields: FieldReader, *, alone: bool) -> dict[str, Any]:
    """The fields of a step that calls a URL. `alone`: it is a job's only step, and refers to no other."""
    call = FieldReader(fields["http"], HTTP_FIELDS, path=fields.at("http"))
    inputs = read_http(call)
    if alone:
        for field, value in inputs.items():
            check_references(call.at(field), value, frozenset(), item=False)
    if "timeout" not in call:
        return {"function": HTTP, "input": inputs}
    _refuse_beside(fields, "timeout", "http.timeout", "say one of them")
    return {
        "function": HTTP,
        "input": inputs,
        "timeout_ms": call.duration("timeout", 0, low=1, high=LONGEST_TIMEOUT_MS),
    }


def _refuse_beside(fields: FieldReader, field: str, other: str, reason: str) -> None:
    if field in fields:
        raise fields.refused(field, f"cannot be beside {other}: {reason}")


def _when(fields: FieldReader) -> When:
    when = fields.choice("when", When, When.ALL_SUCCESS)
    if when is not When.ALL_SUCCESS and not fields.entries("depends_on"):
        raise fields.refused("when", "means nothing without depends_on")
    return when


def _foreach(fields: FieldReader) -> str | list[Any] | None:
    if "foreach" not in fields:
        return None
    value = fields["foreach"]
    if isinstance(value, list | tuple):
        items: list[Any] = read_json(fields.at("foreach"), value)
        return items
    if isinstance(value, str) and _is_reference(value):
        return value
    raise fields.refused("foreach", "must be a list, or one reference such as ${steps.list.output}")


def _max_parallel(fields: FieldReader, many: str) -> int | None:
    if "max_parallel" not in fields:
        return None
    if many not in fields:
        raise fields.refused("max_parallel", f"means nothing without {many}")
    return fields.whole("max_parallel", 1, low=1, high=MOST_PARALLEL)


def read_deadline(fields: FieldReader) -> int | None:
    """The deadline of a job, step or run: `deadline`, or `budget.deadline_ms` as other programs write it."""
    if "budget" not in fields:
        return fields.duration("deadline", 0, low=1, high=LONGEST_DEADLINE_MS) or None
    _refuse_beside(fields, "deadline", "budget", "say one of them")
    budget = FieldReader(fields["budget"], BUDGET_FIELDS, path=fields.at("budget"))
    budget.required("deadline_ms")
    return budget.whole("deadline_ms", 0, low=1, high=LONGEST_DEADLINE_MS)


def _delay_ms(fields: FieldReader) -> int | None:
    """The delay of a step: `delay`, or `delay_sec` as other programs write it."""
    if "delay_sec" not in fields:
        return fields.duration("delay", 0, low=1, high=LONGEST_DELAY_MS) or None
    _refuse_beside(fields, "delay", "delay_sec", "say one of them")
    return round(1000 * fields.number("delay_sec", 0, low=SHORTEST_DELAY_SECONDS, high=LONGEST_DELAY_MS // 1000))


def _delay_until(fields: FieldReader) -> str | None:
    if "delay_until" not in fields:
        return None
    value = fields["delay_until"]
    if isinstance(value, str) and _is_reference(value):
        return value
    at = fields.instant("delay_until")
    if at is None:
        raise fields.refused("delay_until", "must be an ISO instant, or one reference such as ${steps.ask.output}")
    return instant_of(at).isoformat()


def _refuse_retries(fields: FieldReader, steps: tuple[Step, ...]) -> None:
    for index, step in enumerate(steps):
        if step.retry is not None and step.retry.max_attempts > 1:
            own = "dag" in fields and "retry" in fields["dag"][index]
            field = f"{fields.at('dag')}[{index}].retry.max_attempts" if own else fields.at("retry.max_attempts")
            raise FieldError(field, step.retry.max_attempts, "contradicts delivery: at_most_once, which is one attempt")


def _retry(fields: FieldReader) -> RetryPolicy:
    default = RetryPolicy()
    initial = fields.duration("initial_delay", default.initial_delay_ms, high=LONGEST_TIMEOUT_MS)
    longest = fields.duration("max_delay", max(initial, default.max_delay_ms), high=LONGEST_TIMEOUT_MS)
    if "max_delay" in fields and longest < initial:
        raise fields.refused("max_delay", "is shorter than initial_delay")
    return RetryPolicy(
        max_attempts=fields.whole("max_attempts", default.max_attempts, low=1, high=MOST_ATTEMPTS),
        initial_delay_ms=initial,
        multiplier=fields.number("multiplier", default.multiplier, low=1, high=LARGEST_MULTIPLIER),
        max_delay_ms=longest,
        **_jitter(fields, default),
    )


def _jitter(fields: FieldReader, default: RetryPolicy) -> dict[str, Any]:
    """The jitter of a retry: a number is the fraction of the delay, a duration is added to it."""
    if "jitter" in fields and isinstance(fields["jitter"], str):
        return {"jitter": 0.0, "jitter_ms": fields.duration("jitter", 0, high=LONGEST_TIMEOUT_MS)}
    return {"jitter": fields.number("jitter", default.jitter, low=0, high=1)}


def _function(fields: FieldReader) -> str:
    value = fields.required("function")
    if not isinstance(value, str) or not FUNCTION.fullmatch(value):
        raise fields.refused(
            "function", "must be 1 to 255 of letters, digits, and _ . / : @ -, as in team/app/function"
        )
    if value in _BUILT_IN:
        raise fields.refused("function", _BUILT_IN[value])
    return value


#: Why the names of built-in functions are refused.
_BUILT_IN = {
    SHELL: "is reserved for commands: use command instead",
    HTTP: "is reserved for HTTP calls: use http instead",
    AGENT: "is reserved for agents: use agent instead",
}


def _tags(fields: FieldReader) -> tuple[str, ...]:
    tags: list[str] = []
    for path, value in fields.entries("tags", most=MOST_TAGS):
        tag = printable(path, value, longest=LONGEST_TAG)
        if not tag.strip():
            raise FieldError(path, value, "is empty")
        if tag in tags:
            raise FieldError(path, value, "is named a second time")
        tags.append(tag)
    return tuple(tags)


def _retention(fields: FieldReader) -> dict[str, Any]:
    """The field `retention` of a job: days, or a mapping with days and the number of runs."""
    if "retention" not in fields:
        return {}
    if not isinstance(fields["retention"], Mapping):
        return {"retention_days": _retention_days(fields, "retention")}
    retention = FieldReader(fields["retention"], ("days", "runs"), path=fields.at("retention"))
    if "days" not in retention and "runs" not in retention:
        raise fields.refused("retention", "names neither days nor runs")
    days = {"retention_days": _retention_days(retention, "days")} if "days" in retention else {}
    runs = retention.whole("runs", 1, low=1, high=MOST_RETAINED_RUNS) if "runs" in retention else None
    return {**days, "retention_runs": runs}


def _retention_days(fields: FieldReader, field: str) -> int:
    value = fields[field]
    if isinstance(value, str):
        days, rest = divmod(duration_ms(fields.at(field), value), DAY_MS)
    else:
        days, rest = fields.whole(field, 1, low=1, high=LONGEST_RETENTION_DAYS), 0
    if rest or not 1 <= days <= LONGEST_RETENTION_DAYS:
        raise fields.refused(field, f"must be whole days, from 1 to {LONGEST_RETENTION_DAYS}, such as 90 or 90d")
    return days


# ---- commands ------------------------------------------------------------------------------------


def _refuse_without_command(fields: FieldReader, about_commands: Sequence[str]) -> None:
    """Raise FieldError for a field about a command where there is no command."""
    for field in about_commands:
        if field in fields and "command" not in fields:
            raise fields.refused(field, "means nothing without command")


def _read_command(fields: FieldReader, *, alone: bool) -> dict[str, Any]:
    """The fields of a step that runs the command. `alone`: it is a job's only step, and refers to no other."""
    inputs: dict[str, Any] = {}
    if "env" in fields:
        inputs["env"] = _env(fields)
    if "workdir" in fields:
        inputs["workdir"] = _workdir(fields)
    if "stdin" in fields:
        inputs["stdin"] = _stdin(fields)
    if alone:
        for field, value in inputs.items():
            check_references(fields.at(field), value, frozenset(), item=False)
    return {"function": SHELL, "command": _command(fields, each="foreach" in fields), "input": inputs}


def _command(fields: FieldReader, *, each: bool) -> str:
    value = read_json(fields.at("command"), fields["command"])
    if not isinstance(value, str) or not value.strip():
        raise fields.refused("command", "must be a text, as one would type it into a shell")
    if len(value) > LONGEST_COMMAND:
        reason = f"has {len(value)} characters; at most {LONGEST_COMMAND} are allowed: put it into a script"
        raise fields.refused("command", reason)
    if SECRET_BEGINS.search(value):
        raise fields.refused("command", "names a secret, and everybody can see commands that run: give it as env")
    for path in references(value):
        root = re.split(r"[.\[]", path, maxsplit=1)[0]
        if root in ROOTS and ("." in path or (each and path in ("item", "index"))):
            reason = 'would make data a part of the program: give it as env, and write "$NAME" here'
            raise FieldError(fields.at("command"), f"${{{path}}}", reason)
    return value


def _env(fields: FieldReader) -> dict[str, str]:
    value = fields["env"]
    if not isinstance(value, Mapping):
        raise fields.refused("env", "must be a mapping of variables")
    if len(value) > MOST_VARIABLES:
        raise fields.refused("env", f"has {len(value)} variables; at most {MOST_VARIABLES} are allowed")
    env = {}
    for name, text in value.items():
        at = f"{fields.at('env')}.{key_text(name)}"
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise FieldError(
                at, name, "is no name of a variable: letters, digits and _, and not beginning with GNOMON_"
            )
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise FieldError(at, text, "must be a text")
        env[name] = str(text)
    read_input(fields.at("env"), env)
    return env


def _workdir(fields: FieldReader) -> str:
    text = printable(fields.at("workdir"), fields["workdir"])
    if not text or ".." in text.split("/"):
        raise fields.refused("workdir", "must be a folder inside of the workspace")
    return text


def _stdin(fields: FieldReader) -> str:
    value = read_json(fields.at("stdin"), fields["stdin"])
    if not isinstance(value, str):
        raise fields.refused("stdin", "must be a text")
    return value


# ---- the graph -----------------------------------------------------------------------------------


def _is_reference(text: str) -> bool:
    """Whether the text consists of exactly one reference."""
    return any(text == f"${{{path}}}" for path in references(text))


def _check_graph(field: str, workflow_id: str, steps: tuple[Step, ...]) -> None:
    """Raise FieldError if the steps have no valid order, or refer to steps or values that cannot exist."""
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
        _check_compensation(f"{field}[{index}]", step, graph)


def _places(field: str, steps: tuple[Step, ...]) -> dict[str, int]:
    """The index of each step by its name."""
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
    """Steps of which each needs the next, and the last is the first; empty if the graph has no cycle."""
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
    # Each remaining step needs another remaining one, so following them returns to one of them.
    path = [next(iter(needs))]
    while path.count(path[-1]) < 2:
        path.append(min(needs[path[-1]]))
    return path[path.index(path[-1]) :]


def _check_step(field: str, step: Step, graph: Workflow) -> None:
    found = list(_values(field, step))
    if not any(True for _, value, _ in found for _ in references(value)):
        return
    before = upstream(graph, step.name)
    for at, value, item in found:
        check_references(at, value, before, item=item)


def _check_compensation(field: str, step: Step, graph: Workflow) -> None:
    """Raise FieldError if the compensation refers to more than its step, and the steps before that, have left."""
    if step.compensate is not None:
        done = upstream(graph, step.name) | {step.name}
        for at, value, item in _values(f"{field}.compensate", step.compensate):
            check_references(at, value, done, item=item)


#: The fields in which the definition of a step has its input, by the built-in function.
_INPUT_FIELDS = {HTTP: "http", AGENT: "agent"}


def _values(field: str, step: Step) -> Iterator[tuple[str, object, bool]]:
    """The values of a step that may hold references: path, value, and whether `item` is defined there."""
    inputs = f"{field}.{_INPUT_FIELDS.get(step.function, 'input')}" if not step.command else field
    yield from ((f"{inputs}.{key_text(key)}", value, step.foreach is not None) for key, value in step.input.items())
    yield f"{field}.foreach", step.foreach, False
    yield f"{field}.delay_until", step.delay_until, False
    if step.condition is not None:
        yield from ((f"{field}.if", path, False) for path in _asked(f"{field}.if", step.condition))


def _asked(field: str, condition: str) -> Iterator[str]:
    """The paths of a condition, in the form of references."""
    for path in sorted(check_condition(field, condition)):
        if not _is_reference(f"${{{path}}}"):
            raise FieldError(field, path, "is no path to a value, such as steps.check.output.rows")
        yield f"${{{path}}}"


# ---- pings ---------------------------------------------------------------------------------------

_SECRET = "${secret:"  # noqa: S105 - the beginning of a reference
_ONLY_A_SECRET = re.compile(r"\$\{secret:[^{}]+\}")


def _read_ping(fields: FieldReader) -> Ping | None:
    """The field `ping` of a job: a URL, or a mapping with a URL and the moments to call it."""
    if "ping" not in fields:
        return None
    if isinstance(fields["ping"], str):
        return Ping(url=_address(fields.at("ping"), fields["ping"]))
    ping = FieldReader(fields["ping"], ("url", "on"), path=fields.at("ping"))
    return Ping(url=_address(ping.at("url"), ping.required("url")), on=_moments(ping))


def ping_as_data(ping: Ping) -> str | dict[str, Any]:
    """The value of the field `ping` that defines this ping."""
    if ping == Ping(url=ping.url):
        return ping.url
    return {"url": ping.url, "on": [moment.value for moment in ping.on]}


def redacted_ping(ping: Ping) -> Ping:
    """The ping as it is shown. Applied again, it keeps the URL that is stored: see `restored_ping`."""
    return replace(ping, url=redacted_ping_url(ping.url))


def restored_ping(ping: Ping, stored: Ping | None) -> Ping:
    """The ping with the stored URL, if its own is that URL as it is shown; FieldError if it is shown but not stored."""
    if not ping.url.endswith(REDACTED_PATH):
        return ping
    if stored is None or redacted_ping_url(stored.url) != ping.url:
        raise FieldError("ping.url", ping.url, "is shown without its secret path: give the whole URL")
    return replace(ping, url=stored.url)


def redacted_ping_url(url: str) -> str:
    """The URL without its secret parts, fit for display; a mere reference to a secret is shown as it is."""
    return url if _ONLY_A_SECRET.fullmatch(url) else redacted_url(url)


def _moments(fields: FieldReader) -> tuple[PingMoment, ...]:
    if "on" not in fields:
        return Ping(url="").on
    if isinstance(fields["on"], str):
        return (fields.choice("on", PingMoment, PingMoment.SUCCESS),)
    moments = []
    for path, value in fields.entries("on"):
        if value not in tuple(PingMoment):
            raise FieldError(path, value, f"must be one of {', '.join(PingMoment)}")
        moments.append(PingMoment(str(value)))
    if not moments or len(set(moments)) < len(moments):
        raise fields.refused("on", "must name start, success or failure, each once")
    return tuple(moments)


def _address(field: str, value: object) -> str:
    url = printable(field, value)
    # The value of a secret is checked when the URL is called.
    if not url.startswith(_SECRET) and not is_http_url(url.removesuffix(REDACTED_PATH)):
        raise FieldError(field, redacted_url(url), "must be an address such as https://hc-ping.com/your-uuid")
    return url
