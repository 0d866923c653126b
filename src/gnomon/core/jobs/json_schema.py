"""The JSON Schema of a jobs file, for editors. `read_job` decides: a schema cannot express every rule."""

from itertools import combinations
from typing import Any, get_args

from gnomon.core.agents.spec import FUNCTION_PREFIX, TOOLS
from gnomon.core.announcements.model import AnnounceMoment
from gnomon.core.announcements.text import LONGEST_TEMPLATE
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.commands.syntax import LONGEST_COMMAND
from gnomon.core.cron import Dialect
from gnomon.core.cron.dst import Fold, Gap
from gnomon.core.jobs.agent_fields import (
    HOST,
    LONGEST_PROMPT,
    MODEL,
    MOST_CALLS,
    MOST_COST,
    MOST_FALLBACKS,
    MOST_HOSTS,
    MOST_REQUESTS,
    MOST_TOKENS,
    MOST_TOOLS,
    SERVER_TOOL,
)
from gnomon.core.jobs.announce_fields import LONGEST_CHANNEL, MOST_ANNOUNCEMENTS, MOST_FAILURES
from gnomon.core.jobs.breaker_fields import MOST_BREAKER_FAILURES, MOST_PROBES
from gnomon.core.jobs.fields import FUNCTION, LONGEST_LIST, LONGEST_TEXT, NAME
from gnomon.core.jobs.http_fields import (
    HEADER_NAME,
    LONGEST_HEADER,
    LONGEST_URL,
    MOST_EXPECTED,
    MOST_HEADERS,
)
from gnomon.core.jobs.routing_fields import (
    LONGEST_CAPABILITY,
    LONGEST_LABEL,
    LONGEST_LABEL_VALUE,
    LONGEST_TOPIC,
    MOST_LABELS,
    MOST_REQUIRED,
)
from gnomon.core.jobs.steps import (
    COMMAND_FIELDS,
    COMPENSATION_FIELDS,
    DELAY_FIELDS,
    ENV_NAME,
    LARGEST_MULTIPLIER,
    LONGEST_DEADLINE_MS,
    LONGEST_DELAY_MS,
    LONGEST_RETENTION_DAYS,
    LONGEST_RISK_WORD,
    LONGEST_TAG,
    MOST_ATTEMPTS,
    MOST_PARALLEL,
    MOST_RETAINED_RUNS,
    MOST_TAGS,
    SANDBOX_FIELDS,
    SHORTEST_DELAY_SECONDS,
)
from gnomon.core.model import Catchup, Overlap
from gnomon.core.pings import PingMoment
from gnomon.core.runs.external_events import LARGEST_BATCH
from gnomon.core.runs.http_calls import METHODS, MOST_REDIRECTS, STATUS_RANGE
from gnomon.core.runs.rollback import ROLLBACK_ON
from gnomon.core.runs.workflow import Delivery, Isolation, Priority, When

_Schema = dict[str, Any]
_SPAN_TEXT: _Schema = {
    "type": "string",
    "minLength": 2,
    "pattern": "^" + "".join(f"([0-9]{{1,12}}{unit})?" for unit in ("d", "h", "m", "s", "ms")) + "$",
}
#: Under at_most_once there is one attempt.
_ONE_ATTEMPT: _Schema = {"max_attempts": {"const": 1}}
#: The fields of which a step has at most one.
_ACTIONS = ("function", "command", "http", "agent", "workflow")
_WITH_COMMAND: _Schema = {field: ["command"] for field in COMMAND_FIELDS[1:]}


def job_file_schema() -> _Schema:
    """A JSON Schema of a whole file of jobs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Gnomon jobs",
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {"jobs": {"type": "array", "items": job_schema()}},
    }


def job_schema() -> _Schema:
    """A JSON Schema of one job."""
    return {
        **_mapping("A workflow and its schedule under one name.", _job_fields()),
        "required": ["name"],
        "oneOf": [{"required": [field]} for field in ("function", "command", "http", "agent", "dag")],
        "dependentRequired": _WITH_COMMAND,
        "allOf": [
            *({"not": {"required": list(two)}} for two in combinations(("schedule", "at", "every", "on"), 2)),
            {"not": {"required": ["function", "max_parallel"]}},
            {"not": {"required": ["command", "max_parallel"]}},
            {"not": {"required": ["command", "isolation"]}},
            {"not": {"required": ["http", "max_parallel"]}},
            {"not": {"required": ["http", "isolation"]}},
            {"not": {"required": ["agent", "max_parallel"]}},
            {"not": {"required": ["agent", "isolation"]}},
            {"not": {"required": ["deadline", "budget"]}},
            *({"not": {"required": ["function", field]}} for field in SANDBOX_FIELDS),
            {
                "if": {"required": ["lock"], "properties": {"lock": {"const": True}}},
                "then": {"properties": {"overlap": {"const": "skip"}}},
            },
            {
                "if": {"required": ["delivery"], "properties": {"delivery": {"const": "at_most_once"}}},
                "then": {"properties": {"retry": {"required": ["max_attempts"], "properties": _ONE_ATTEMPT}}},
            },
        ],
    }


def _job_fields() -> _Schema:
    return {
        "name": _named("The name of the job and of its workflow."),
        "description": {"type": "string", "maxLength": LONGEST_TEXT, "description": "The purpose of the job."},
        **_time_fields(),
        **_policy_fields(),
        **_work_fields(),
        "dag": {
            "type": "array",
            "minItems": 1,
            "maxItems": LONGEST_LIST,
            "items": _step_schema(),
            "description": "Steps that depend on each other, instead of one function.",
        },
        "max_parallel": _whole(1, MOST_PARALLEL, "How many steps of a run may run at once."),
        **deadline_fields("How long a run may take, from when it is due, with all waits and retries."),
        "input_schema": {"type": "object", "description": "A JSON Schema that inputs must satisfy."},
        "delivery": _one_of(Delivery, "Whether a lost attempt is retried."),
        "lock": _flag("Runs exclude each other by a lock that other programs can see; implies overlap skip."),
        "dead_letter": _flag("Write a dead letter when a run fails after all its attempts."),
        "rollback_on": {
            "type": "array",
            "uniqueItems": True,
            "items": {"enum": [cause.value for cause in ROLLBACK_ON]},
            "description": "The ends of steps that roll a run back, besides that one gave up for good.",
        },
        "retention": _retention_schema(),
        "ping": _ping_schema(),
        "announce": _announce_schema(),
        "tags": {
            "type": "array",
            "maxItems": MOST_TAGS,
            "uniqueItems": True,
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_TAG},
            "description": "Tags to filter jobs by.",
        },
    }


def _retention_schema() -> _Schema:
    days: _Schema = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": LONGEST_RETENTION_DAYS}, _SPAN_TEXT]}
    fields = {
        "days": {**days, "description": "How long the history of its runs is kept, in days."},
        "runs": _whole(1, MOST_RETAINED_RUNS, "How many of the newest runs are kept."),
    }
    mapping = {**_mapping("How long and how many runs are kept.", fields), "minProperties": 1}
    return {"anyOf": [*days["anyOf"], mapping], "description": "How long the history of its runs is kept, in days."}


def _ping_schema() -> _Schema:
    url = _text("The URL to call; /start is appended when a run starts, /fail when it fails.")
    moments = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"enum": [str(at) for at in PingMoment]}}
    fields = {"url": url, "on": {"anyOf": [_one_of(PingMoment, "When."), moments], "description": "When to call it."}}
    mapping = {**_mapping("The URL to call, and when.", fields), "required": ["url"]}
    return {"anyOf": [url, mapping], "description": "A URL that is called when a run starts and ends."}


def _announce_schema() -> _Schema:
    moments = {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"enum": [str(at) for at in AnnounceMoment]},
    }
    channel = {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_CHANNEL,
        "description": "The name of a channel in the settings.",
    }
    fields = {
        "channel": channel,
        "to": {"type": ["string", "integer"], "description": "The recipient within the channel."},
        "on": {
            "anyOf": [_one_of(AnnounceMoment, "When."), moments],
            "description": "The moments at which the channel gets a message.",
        },
        "after": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_FAILURES,
            "description": "The number of failures in a row from which on failures are announced.",
        },
        "best_effort": {"type": "boolean", "description": "Whether a run is over before it is announced."},
        "text": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_TEMPLATE,
            "description": "The text, with references; by default the output or the error.",
        },
    }
    one = {
        "anyOf": [
            channel,
            {
                **_mapping("A channel, the moments at which it gets a message, and the text.", fields),
                "required": ["channel"],
            },
        ]
    }
    many = {"type": "array", "minItems": 1, "maxItems": MOST_ANNOUNCEMENTS, "items": one}
    return {"anyOf": [one, many], "description": "The channels that announce how its runs ended."}


def _time_fields() -> _Schema:
    dst = {
        "gap": _one_of(get_args(Gap), "For wall times that are skipped."),
        "fold": _one_of(get_args(Fold), "For wall times that come twice."),
    }
    return {
        "schedule": _text("Cron, a macro, a sentence or an ISO instant."),
        "at": _text("One ISO instant; without an offset it is in the timezone of the job."),
        "every": _duration("The period of an interval, counted from start_at or from its registration."),
        "on": _event_schema(),
        "timezone": _text("An IANA time zone; UTC if not given."),
        "dialect": _one_of(get_args(Dialect), "The cron dialect of the schedule."),
        "dst": {**_mapping("The policy for clock changes.", dst), "type": ["object", "null"]},
        "start_at": _instant("There are no ticks before this instant.", "null"),
        "end_at": _instant("There are no ticks at or after this instant.", "null"),
    }


def _policy_fields() -> _Schema:
    return {
        "jitter": _duration("How far a fire may be moved from its planned time, either way; at most an hour."),
        "overlap": _one_of(Overlap, "The policy for a tick that comes due while an earlier run is still running."),
        "catchup": _one_of((*Catchup, "fire_immediately"), "Which of several overdue ticks run."),
        "misfire_grace": _duration("A tick that is late by no more than this still runs; a later one is missed."),
        "catchup_window": _duration("The greatest age of a tick that is caught up."),
        "queue_limit": _whole(1, 10_000, "How many ticks may wait under overlap queue."),
        "enabled": _flag("Whether the schedule starts runs."),
        "delete_after_run": _flag("Delete a one-shot job once it has succeeded."),
        "user_id": _text("The user on whose behalf it runs."),
    }


def _work_fields() -> _Schema:
    return {
        "function": {
            "type": "string",
            "pattern": f"^{FUNCTION.pattern}$",
            "description": "The function that a worker calls.",
        },
        **_command_fields(),
        "http": _http_schema(),
        "agent": _agent_schema(),
        "input": {"type": "object", "description": "The input of the function; at most 64 KiB as JSON."},
        "timeout": _duration("How long one attempt may take."),
        "retry": _mapping("How often and when a failed attempt is retried.", _retry_fields()),
        "isolation": _one_of(Isolation, "Where the function runs."),
        **_route_fields(),
        **_risk_fields(),
        "breaker": {
            **_mapping("The circuit breaker that its tasks share with all that name it.", _breaker_fields()),
            "required": ["name"],
        },
    }


def deadline_fields(about: str) -> _Schema:
    """The schema of a deadline, under its two names."""
    budget = {"deadline_ms": _whole(1, LONGEST_DEADLINE_MS, "The same, in milliseconds.")}
    return {
        "deadline": _duration(about),
        "budget": {**_mapping("The same as deadline.", budget), "required": ["deadline_ms"]},
    }


def _risk_fields() -> _Schema:
    word = {"type": "string", "minLength": 1, "maxLength": LONGEST_RISK_WORD}
    return {
        "capability": {
            **word,
            "description": "The capability that it uses, such as payments.transfer, for rules of the policy.",
        },
        "risk_tags": {
            "type": "array",
            "maxItems": MOST_TAGS,
            "items": word,
            "description": "The risks that it brings, for rules of the policy; a step has those of its job, too.",
        },
    }


def _route_fields() -> _Schema:
    capability = {"type": "string", "minLength": 1, "maxLength": LONGEST_CAPABILITY}
    return {
        "pool": _named("The pool of workers that runs it."),
        "topic": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_TOPIC,
            "description": "The topic by which pools.yaml selects its pools; the function's name if not given.",
        },
        "requires": {
            "type": "array",
            "maxItems": MOST_REQUIRED,
            "items": capability,
            "description": "The capabilities that its pool must have.",
        },
        "labels": {
            "type": "object",
            "maxProperties": MOST_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": LONGEST_LABEL},
            "additionalProperties": {"type": "string", "maxLength": LONGEST_LABEL_VALUE},
            "description": "Labels; those named placement.*, constraint.* and node.* must match labels of the worker.",
        },
        "priority": _one_of(Priority, "The order among tasks that wait for a worker."),
    }


def _command_fields() -> _Schema:
    return {
        "command": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_COMMAND,
            "description": "A command that sh runs in the workspace, instead of a function.",
        },
        "env": {
            "type": "object",
            "propertyNames": {"pattern": f"^{ENV_NAME.pattern}$"},
            "additionalProperties": {"type": ["string", "number"]},
            "description": "Variables of the command; they may hold references and secrets.",
        },
        "workdir": _text("The folder of the workspace in which the command runs."),
        "stdin": {"type": "string", "description": "The standard input of the command; empty if not given."},
        "sandbox": {
            "enum": [SandboxMode.AUTO.value, SandboxMode.REQUIRED.value],
            "description": "Whether the command starts only on a worker that can confine it completely.",
        },
        "network": _flag("Whether the command may use the network."),
    }


def _event_schema() -> _Schema:
    batch = {
        "max": _whole(1, LARGEST_BATCH, "How many events make a batch."),
        "wait": _duration("How long the first event waits for others."),
    }
    fields = {
        "event": _named("The name of the event."),
        "where": {
            "type": "object",
            "description": "Paths into the body of the event, and the value that each must have.",
        },
        "each": {"const": True, "description": "Every event starts a run (default)."},
        "debounce": _duration("One run for all events, once none has arrived for this long."),
        "batch": {**_mapping("One run for many events.", batch), "required": ["wait"]},
    }
    return {
        **_mapping("An event that starts the job, instead of a time.", fields),
        "required": ["event"],
        "allOf": [{"not": {"required": list(two)}} for two in combinations(("each", "debounce", "batch"), 2)],
    }


def _step_schema() -> _Schema:
    return {
        **_mapping("One step.", _step_fields()),
        "required": ["step"],
        "anyOf": [
            {"required": [field]} for field in ("function", "command", "http", "agent", "workflow", *DELAY_FIELDS)
        ],
        "allOf": [
            *({"not": {"required": list(two)}} for two in combinations(_ACTIONS, 2)),
            *(
                {"not": {"required": [kind, field]}}
                for kind in ("command", "http", "agent")
                for field in ("input", "isolation")
            ),
            {"not": {"required": ["delay", "delay_sec"]}},
            {"not": {"required": ["deadline", "budget"]}},
        ],
        "dependentRequired": {
            "max_parallel": ["foreach"],
            **_WITH_COMMAND,
            **{field: ["command"] for field in SANDBOX_FIELDS},
        },
    }


def _step_fields() -> _Schema:
    return {
        "step": _named("The name of the step."),
        **_work_fields(),
        "workflow": _named("Another workflow, which the step runs and waits for."),
        "depends_on": {
            "type": "array",
            "uniqueItems": True,
            "items": _named("A step of the same dag."),
            "description": "The steps that must end before this one starts.",
        },
        "when": _one_of(When, "The outcome that those steps must have."),
        "if": _text("A condition on earlier outputs and the input; the step is skipped unless it holds."),
        "foreach": {
            "type": ["array", "string"],
            "description": "A list, or a reference to one: the step runs once for each item.",
        },
        "max_parallel": _whole(1, MOST_PARALLEL, "How many items run at once."),
        **deadline_fields("How long it may take, from when it is due, with all waits and retries."),
        "delay": _duration("How long to wait before it starts."),
        "delay_sec": _number(
            SHORTEST_DELAY_SECONDS, LONGEST_DELAY_MS // 1000, "The same as delay, as a number of seconds."
        ),
        "delay_until": _instant("The instant to wait for, or a reference to one."),
        "compensate": _compensation_schema(),
    }


def _compensation_schema() -> _Schema:
    fields = {name: schema for name, schema in _work_fields().items() if name in COMPENSATION_FIELDS}
    return {
        **_mapping("The action that undoes the step if its run is rolled back.", fields),
        "anyOf": [{"required": [field]} for field in ("function", "command", "http")],
        "allOf": [{"not": {"required": list(two)}} for two in combinations(("function", "command", "http"), 2)],
    }


def _http_schema() -> _Schema:
    statuses = {
        "anyOf": [
            {"type": "integer", "minimum": 100, "maximum": 599},
            {"type": "string", "pattern": f"^{STATUS_RANGE.pattern}$"},
        ]
    }
    fields = {
        "url": {"type": "string", "maxLength": LONGEST_URL, "description": "The URL to call."},
        "method": _one_of(METHODS, "GET if not given; POST with a body."),
        "headers": {
            "type": "object",
            "maxProperties": MOST_HEADERS,
            "propertyNames": {"pattern": f"^{HEADER_NAME.pattern}$"},
            "additionalProperties": {"type": ["string", "number"], "maxLength": LONGEST_HEADER},
            "description": "The headers of the request.",
        },
        "json": {"description": "The body of the request, as JSON."},
        "body": {"type": "string", "description": "The body of the request, as text."},
        "expect": {
            "anyOf": [
                *statuses["anyOf"],
                {"type": "array", "minItems": 1, "maxItems": MOST_EXPECTED, "items": statuses},
            ],
            "description": "The statuses that count as success; 200-299 if not given.",
        },
        "follow": _whole(0, MOST_REDIRECTS, "How many redirects on the same host are followed."),
        "timeout": _duration("How long one attempt may take."),
    }
    return {
        **_mapping("A URL that the worker calls.", fields),
        "required": ["url"],
        "not": {"required": ["json", "body"]},
    }


def _agent_schema() -> _Schema:
    words = {"type": "string", "minLength": 1, "maxLength": LONGEST_PROMPT}
    model = {"type": "string", "pattern": f"^{MODEL.pattern}$"}
    hosts = {"type": "array", "maxItems": MOST_HOSTS, "items": {"type": "string", "pattern": f"^{HOST.pattern}$"}}
    fields = {
        "prompt": {**words, "description": "The task for the model; data that it refers to is framed as data."},
        "instructions": {**words, "description": "Instructions that stand before every prompt."},
        "model": {**model, "description": "provider:name; the model of the settings if not given."},
        "fallbacks": {
            "type": "array",
            "maxItems": MOST_FALLBACKS,
            "items": model,
            "description": "The models that are tried in this order if the model fails.",
        },
        "session": _named("isolated (default), main, or a name: the history that its runs share."),
        "tools": {
            "type": "array",
            "maxItems": MOST_TOOLS,
            "uniqueItems": True,
            "items": {
                "anyOf": [
                    {"enum": [str(tool) for tool in TOOLS]},
                    {"type": "string", "pattern": f"^{FUNCTION_PREFIX}{FUNCTION.pattern}$"},
                    {"type": "string", "pattern": f"^{SERVER_TOOL.pattern}$"},
                ]
            },
            "description": "The tools that the model may call: none unless listed.",
        },
        "budget": _mapping("The limits of one attempt; each ends the run for good.", _budget_fields()),
        "output_schema": {
            "type": "object",
            "description": "A JSON Schema of an object, which the answer must satisfy.",
        },
        "network": {
            "anyOf": [{"type": "boolean"}, hosts],
            "description": "Whether its tools may use the network, or the hosts that http_get may reach.",
        },
    }
    return {**_mapping("A model that works on a prompt, with tools.", fields), "required": ["prompt"]}


def _budget_fields() -> _Schema:
    return {
        "tokens": _whole(1, MOST_TOKENS, "Tokens that are read and written, together."),
        "cost": _number(0.000001, MOST_COST, "The cost, by the prices of the settings."),
        "requests": _whole(1, MOST_REQUESTS, "Requests to models."),
        "tool_calls": _whole(1, MOST_CALLS, "Calls of tools."),
        "actions": _whole(1, MOST_CALLS, "Calls of tools that change something or reach other machines."),
        "time": _duration("The time that an attempt may take."),
    }


def _breaker_fields() -> _Schema:
    return {
        "name": _named("The name of the breaker."),
        "failures": _whole(1, MOST_BREAKER_FAILURES, "The number of failures in a row that open it."),
        "open": _duration("How long it stays open; from 100 ms to 7 days."),
        "probes": _whole(1, MOST_PROBES, "How many tasks may try while it is half open."),
        "successes": _whole(1, MOST_PROBES, "The number of them that must succeed to close it."),
    }


def _retry_fields() -> _Schema:
    return {
        "max_attempts": _whole(1, MOST_ATTEMPTS, "The number of attempts, the first included."),
        "initial_delay": _duration("The delay after the first attempt."),
        "multiplier": _number(1, LARGEST_MULTIPLIER, "The factor by which each delay is longer than the one before."),
        "max_delay": _duration("The longest delay."),
        "jitter": {
            "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _SPAN_TEXT],
            "description": "The fraction by which a delay may be longer or shorter, or a duration that is added.",
        },
    }


def _mapping(about: str, fields: _Schema) -> _Schema:
    return {"type": "object", "description": about, "additionalProperties": False, "properties": fields}


def _text(about: str) -> _Schema:
    return {"type": "string", "maxLength": LONGEST_TEXT, "description": about}


def _named(about: str) -> _Schema:
    return {"type": "string", "pattern": f"^{NAME.pattern}$", "description": about}


def _flag(about: str) -> _Schema:
    return {"type": "boolean", "description": about}


def _one_of(values: Any, about: str) -> _Schema:  # noqa: ANN401 - an enumeration or a tuple
    return {"enum": [str(value) for value in values], "description": about}


def _whole(low: int, high: int, about: str) -> _Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": about}


def _number(low: float, high: float, about: str) -> _Schema:
    return {"type": "number", "minimum": low, "maximum": high, "description": about}


def _instant(about: str, *others: str) -> _Schema:
    return {"type": ["string", "integer", *others], "description": about}


def _duration(about: str) -> _Schema:
    number = {"type": "number", "minimum": 0}
    return {"anyOf": [_SPAN_TEXT, number], "description": f"{about} Such as 30s, 5m or 1h30m."}
