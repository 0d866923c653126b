"""No request holds the process of the scheduler for long: every route, with everything as large as it may be."""

import asyncio
import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from gnomon.api.routes import ROUTES
from support.api_server import background_scheduler
from support.forgotten_caches import forget_what_was_read
from support.loop_holds import LoopHolds, measured_loop_holds
from support.postgres_server import postgres
from support.processor_time import slowness
from support.request_sender import RequestSender, request_sender

#: The longest that one callback may hold the event loop, in processor time.
MOST_SECONDS = 0.02
#: The longest that any thread may hold the interpreter, in time that passes, which also depends on the machine.
MOST_SECONDS_PASSED = 0.1
WAIT_SECONDS = 120.0
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca")
NUMBERS = list(range(11_000))
DOUBLED: dict[str, Any] = {
    "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {}},
    "$ref": "#/$defs/a0",
}
#: A schema that costs as much as it may for 64 KiB of numbers.
COSTLY = {"properties": {"x": {"items": {"allOf": [{"type": "integer"}] * 25}}}}
#: A text that a search for places of secrets could begin to read at each of its characters.
DOLLARS = {"x": "$" * 60_000 + "x{secret:"}
CONDITION = " or ".join(f"input.a{n} == {n}" for n in range(45))


#: A condition that names the same data as often as a condition can.
LONG_CONDITION = " or ".join(["input.x == 1"] * 60)


def job(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a job
    return {"name": name, **({} if "dag" in fields else {"function": "nothing"}), **fields}


def steps(count: int, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of a step
    return [{"step": f"s{n}", "function": "f", **fields} for n in range(count)]


def chain(count: int) -> list[dict[str, Any]]:
    first = {"step": "s0", "function": "f"}
    return [first, *({"step": f"s{n}", "function": "f", "depends_on": [f"s{n - 1}"]} for n in range(1, count))]


def many_jobs(count: int) -> list[dict[str, Any]]:
    return [
        job(
            f"job{n}",
            schedule=f"{n % 60} {n % 24} {n % 28 + 1} * *",
            timezone=ZONES[n % 5],
            jitter="1m" if n % 2 else "0s",
        )
        for n in range(count)
    ]


def many_subschemas(count: int) -> dict[str, Any]:
    return {"properties": {f"p{n}": {} for n in range(count)}}


def commands(count: int) -> list[dict[str, Any]]:
    """Steps with commands whose words have thousands of parts that could be paths, all of them in a variable."""
    command = "echo " + " ".join(f"{n}$JOB_A" for n in range(60))
    return [{"step": f"s{n}", "command": command, "env": {"JOB_A": "a:" * 150}} for n in range(count)]


#: They are all checked before the last one is refused: nothing is stored, so that each try checks them again.
REFUSED_COMMANDS = [*commands(65), {"step": "last", "command": "sudo ls"}]
LARGE_JOBS = [
    job("wide", dag=steps(900)),
    job("commands", dag=commands(65)),
    job("chain", dag=chain(700)),
    job("full", dag=[{**one, "depends_on": [f"s{n}" for n in range(at)]} for at, one in enumerate(steps(110))]),
    job("conditions", dag=[{**one, "if": CONDITION} for one in steps(60)]),
    job("each", dag=[{"step": "s", "function": "f", "foreach": NUMBERS, "input": {"x": "${item}"}}]),
    job("large", input={"x": NUMBERS}),
    job("checked", input={"x": NUMBERS}, input_schema=COSTLY),
    job("leap", schedule="0 0 29 2 *", timezone="Pacific/Chatham"),
    job("second", schedule="* * * * * *", overlap="allow"),
]


@dataclass
class Target:
    """A scheduler in this process, and the ids of objects in it."""

    sender: RequestSender
    holds: LoopHolds
    execution: str = ""
    each: str = ""
    event: str = ""

    def ask(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Send the request, and measure from now on."""
        self.measure()
        return self.sender.send(method, path, content)

    def measure(self) -> None:
        """Measure from now on, as if nothing had been read before."""
        forget_what_was_read()
        self.holds.reset()

    @property
    def held(self) -> tuple[float, float]:
        """How long one callback held the event loop since then, and any thread the interpreter.

        On a machine that is slow at this moment, it is how long they would have where the bounds were measured.
        """
        held = self.holds.callback_seconds, self.holds.interpreter_seconds
        return held if is_short([held]) else (held[0] / (slower := slowness()), held[1] / slower)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """No garbage collection: `gnomon up` has thresholds of its own, and this process has many more objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def measured_target(database: Path | str) -> Iterator[Target]:
    with (
        without_garbage_collection(),
        measured_loop_holds("gnomon") as holds,
        background_scheduler(
            database, auth__verify_tokens=False, auth__accept_unverified=True, server__mcp="changes"
        ) as scheduler,
        request_sender(scheduler.address or "") as sender,
    ):
        sender.sent_json("POST", "/v1/apply", {"jobs": [*many_jobs(1000), *LARGE_JOBS]})
        # The first list loads what it needs to spell out schedules.
        sender.sent_json("GET", "/v1/jobs")
        yield Target(
            sender,
            holds,
            execution=sender.sent_json("POST", "/v1/jobs/wide/trigger", {})["execution_id"],
            each=sender.sent_json("POST", "/v1/jobs/each/trigger", {})["execution_id"],
            event=sender.sent_json("POST", "/v1/events", {"name": "big", "body": NUMBERS})["event_id"],
        )


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with measured_target(tmp_path_factory.mktemp("cost") / "gnomon.db") as target:
        yield target


@pytest.fixture(scope="module")
def postgres_target() -> Iterator[Target]:
    with measured_target(asyncio.run(postgres(18).fresh())) as target:
        yield target


Request = tuple[str, str, object]


def requests(target: Target) -> dict[str, list[Request]]:
    """For each route, the requests that cost most."""
    plan: list[object] = [
        {"jobs": LARGE_JOBS, "days": 366},
        {"jobs": many_jobs(2000), "days": 366},
        {"jobs": [job("second", schedule="*/2 * * * * *"), job("x", schedule="* * * * * *")], "days": 366},
        {"jobs": [job(f"bomb{n}", input_schema=DOUBLED) for n in range(50)]},
        {"jobs": [job(f"c{n}", dag=[{**one, "if": CONDITION} for one in steps(60)]) for n in range(30)]},
        {"jobs": NUMBERS},
        {"jobs": [job("x", input={"x": list(range(1_000_000))})]},
        {"jobs": [job("x", dag=steps(1000, input={"x": "y" * 7000}))]},
        {"jobs": [job("x", schedule="every day at 9 " * 60)]},
        {"jobs": [job("x", schedule="abc " * 125)]},
        {"jobs": [job("x", schedule=",".join(map(str, range(60))) + " * * * *")], "days": 366},
        {"jobs": [job("x", description="x" * 7_000_000)]},
        {"jobs": [job("x", input=DOLLARS), job("y", dag=steps(1, input=DOLLARS))]},
        {"jobs": [job("x", input_schema={"properties": {"p": {"pattern": r"\S" * 1400}}})]},
        # Small and large bodies with patterns that cost nearly as much as they may.
        {"jobs": [job(f"p{n}", input_schema={"pattern": r"\S" * 85 + str(n)}) for n in range(5)]},
        # Schemas of up to 8 KB that have many subschemas, too.
        *({"jobs": [job("x", input_schema=many_subschemas(n) | {"pattern": r"\S" * 84})]} for n in (100, 150, 600)),
        {"jobs": [job(f"q{n}", input_schema={"pattern": r"\S" * 85 + str(n)}) for n in range(40)]},
        {"jobs": [job(f"commands{n}", dag=commands(65)) for n in range(4)]},
    ]
    years = {"from": "1970-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    return {
        "plan_jobs": [("POST", "/v1/plan", body) for body in plan],
        "simulate_jobs": [
            ("POST", "/v1/simulate", {"jobs": many_jobs(500), "days": 1}),
            ("POST", "/v1/simulate", plan[0]),
        ],
        "explain_schedule": [
            ("GET", f"/v1/explain?coming=50&schedule={schedule}", None)
            for schedule in ("0%200%2029%202%201", "abc%20" * 125, "every%20second")
        ],
        "answer_model": [
            ("POST", "/mcp", tool_call(name, given))
            for name, given in (
                ("show_execution", {"execution": target.each}),
                ("list_log_entries", {"execution": target.each, "limit": 200}),
                ("list_executions", {"limit": 100}),
                ("plan_jobs", {"jobs": many_jobs(50), "days": 60}),
                ("register_job", {"job": job("large", input={"x": NUMBERS})}),
                ("list_jobs", {"tag": "x" * 900_000}),
            )
        ],
        "apply_jobs": [("POST", "/v1/apply", {"jobs": many_jobs(1000)}), ("POST", "/v1/apply", {"jobs": LARGE_JOBS})],
        "register_job": [("POST", "/v1/jobs", one) for one in (*LARGE_JOBS, job("refused", dag=REFUSED_COMMANDS))],
        "update_job": [("PUT", "/v1/jobs/large", job("large", input={"x": NUMBERS}))],
        "list_jobs": [
            ("GET", f"/v1/jobs?limit=1000{more}", None)
            for more in ("", "&tag=none", "&q=none&state=failing", "&order=last&include=ticks")
        ],
        "show_job": [("GET", f"/v1/jobs/{name}?coming=1000&last=1000", None) for name in ("leap", "second", "wide")],
        "trigger_job": [
            ("POST", "/v1/jobs/checked/trigger", {"input": {"x": NUMBERS}}),
            ("POST", "/v1/jobs/checked/trigger", {"input": {"x": ["a"] * 15_000}}),
            ("POST", "/v1/jobs/wide/trigger", {"input": {"x": [[]] * 20_000}}),
            ("POST", "/v1/jobs/wide/trigger", {"input": DOLLARS}),
        ],
        "pause_job": [("POST", "/v1/jobs/wide/pause", None)],
        "resume_job": [("POST", "/v1/jobs/wide/resume", {"missed": "all"})],
        "pause_jobs": [
            ("POST", "/v1/bulk/jobs/pause?limit=1000&q=none", {}),
            ("POST", "/v1/bulk/jobs/pause?limit=1000", {"all": True, "preview": True}),
        ],
        "resume_jobs": [("POST", "/v1/bulk/jobs/resume?limit=1000", {"all": True, "preview": True, "missed": "all"})],
        "trigger_jobs": [("POST", "/v1/bulk/jobs/trigger?limit=1000", {"all": True, "preview": True})],
        "cancel_executions": [
            ("POST", "/v1/bulk/executions/cancel?limit=1000&tag=none", {}),
            ("POST", "/v1/bulk/executions/cancel?limit=1000", {"all": True, "preview": True}),
        ],
        "skip_tick": [("POST", "/v1/jobs/leap/skip", {"at": "2028-02-28T10:15:00Z"})],
        "unskip_tick": [("POST", "/v1/jobs/leap/unskip", {"at": "2028-02-28T10:15:00Z"})],
        "list_planned_fires": [
            ("GET", "/v1/schedule?hours=8784&limit=10001", None),
            ("GET", "/v1/schedule?hours=8784&limit=10001&since=8000-01-01T00:00:00Z", None),
        ],
        "list_ticks": [
            ("GET", "/v1/ticks?limit=1000", None),
            ("GET", "/v1/ticks?limit=1000&status=FAILED&since=2000-01-01", None),
            ("GET", "/v1/ticks?limit=1000&job=second&status=FAILED", None),
        ],
        "start_backfill": [("POST", "/v1/jobs/second/backfill", years)],
        "preview_backfill": [
            ("POST", "/v1/jobs/second/backfill/preview", years),
            ("POST", "/v1/jobs/leap/backfill/preview", {**years, "from": "0001-01-02T00:00:00Z"}),
        ],
        "list_backfills": [("GET", "/v1/backfills?limit=1000", None)],
        "show_backfill": [("GET", "/v1/backfills/none", None)],
        "cancel_backfill": [("POST", "/v1/backfills/none/cancel", None)],
        "list_executions": [("GET", "/v1/executions?limit=1000&tag=none", None)],
        "show_execution": [("GET", f"/v1/executions/{one}", None) for one in (target.execution, target.each)],
        "cancel_execution": [("POST", f"/v1/executions/{one}/cancel", None) for one in (target.execution, target.each)],
        "roll_back_execution": [("POST", f"/v1/executions/{target.each}/rollback", {"reason": "x" * 500})],
        "list_log_entries": [("GET", f"/v1/executions/{target.each}/logs?limit=1000", None)],
        "list_items": [("GET", f"/v1/executions/{target.each}/steps/s/items?limit=1000", None)],
        "submit_task": [("POST", "/v1/tasks", {"function": "f", "input": {"x": NUMBERS}, "input_schema": COSTLY})],
        "list_dead_letters": [("GET", "/v1/dead-letters?limit=1000&resolved=true", None)],
        "show_dead_letter": [("GET", "/v1/dead-letters/none", None)],
        "ask_for_approval": [
            ("POST", "/v1/approvals", {"job": name, "reason": "x" * 500}) for name in ("commands", "none")
        ],
        "show_security": [("GET", "/v1/security", None)],
        "show_overview": [("GET", "/v1/overview?hours=744", None)],
        "show_calendar": [
            ("GET", "/v1/calendar?limit=100&by=day&from=1772400000000&to=1780000000000", None),
            ("GET", "/v1/calendar?limit=100&by=hour&tz=Australia/Lord_Howe&job=second", None),
        ],
        "list_revisions": [("GET", f"/v1/jobs/{name}/revisions?limit=1000", None) for name in ("wide", "second")],
        "show_caller": [("GET", "/v1/whoami", None)],
        "list_announcements": [("GET", "/v1/announcements?limit=1000", None)],
        "show_announcement": [("GET", "/v1/announcements/none", None)],
        "retry_announcement": [("POST", "/v1/announcements/none/retry", None)],
        "list_breakers": [("GET", "/v1/breakers?limit=1000", None)],
        "show_breaker": [("GET", "/v1/breakers/none", None)],
        "reset_breaker": [("POST", "/v1/breakers/none/reset", None)],
        "list_held_outputs": [("GET", "/v1/quarantine?limit=1000", None)],
        "show_held_output": [("GET", "/v1/quarantine/none", None)],
        "release_held_output": [("POST", "/v1/quarantine/none/release", {"reason": "x" * 500})],
        "discard_held_output": [("POST", "/v1/quarantine/none/discard", {"reason": "x" * 500})],
        "list_approvals": [("GET", "/v1/approvals?limit=1000", None)],
        "show_approval": [("GET", "/v1/approvals/none", None)],
        "approve": [("POST", "/v1/approvals/none/approve", {"digest": "0" * 64, "reason": "x" * 500})],
        "reject": [("POST", "/v1/approvals/none/reject", {"digest": "0" * 64, "reason": "x" * 500})],
        "revoke_approval": [("POST", "/v1/approvals/none/revoke", None)],
        "override_approval": [("POST", "/v1/approvals/none/override", {"digest": "0" * 64, "reason": "x" * 500})],
        "list_dead_letter_groups": [("GET", f"/v1/dead-letters/groups?error={'x' * 1000}", None)],
        "replay_dead_letters": [("POST", "/v1/dead-letters/replay-all?limit=1000", None)],
        "resolve_dead_letters": [
            ("POST", "/v1/dead-letters/resolve-all?limit=1000&error=none", None),
            ("POST", "/v1/dead-letters/resolve-all", {"ids": [f"{n}{'x' * 190}" for n in range(500)]}),
        ],
        "replay_dead_letter": [("POST", "/v1/dead-letters/none/replay", None)],
        "resolve_dead_letter": [("PATCH", "/v1/dead-letters/none", {"resolved": True})],
        "upsert_schedule": [
            (
                "POST",
                "/v1/schedules/upsert",
                {"schedule_id": "s", "workflow_id": "wide", "schedule": "0 0 29 2 1"},
            )
        ],
        "pause_schedule": [("POST", "/v1/schedules/pause", {"schedule_id": "leap", "paused": False})],
        "delete_schedule": [("DELETE", "/v1/schedules/s", None)],
        "show_schedule": [("GET", "/v1/schedules/leap?coming=100&last=1000", None)],
        "start_run": [
            (
                "POST",
                "/v1/run-launcher/start",
                {
                    "workflow_id": "wide",
                    "version": 1,
                    "user_id": "u",
                    "scheduled_for": "2026-01-01T00:00:00Z",
                    "idempotency_key": "k",
                },
            )
        ],
        "deploy_workflow": [
            (
                "POST",
                "/v1/workflows",
                {
                    "workflow_id": "w",
                    "steps": steps(900),
                    "triggers": [{"type": "schedule_based", "schedule": f"{n % 60} 0 29 2 *"} for n in range(500)],
                },
            ),
            ("POST", "/v1/workflows", {"workflow_id": "refused", "steps": REFUSED_COMMANDS}),
        ],
        "list_workflows": [("GET", "/v1/workflows?limit=1000", None)],
        "show_workflow": [("GET", f"/v1/workflows/{name}", None) for name in ("wide", "full", "large")],
        "emit_event": [("POST", "/v1/events", {"name": "big", "body": NUMBERS})],
        "list_events": [("GET", "/v1/events?limit=1000", None)],
        "show_event": [("GET", f"/v1/events/{target.event}", None)],
        "list_workers": [("GET", "/v1/workers", None)],
        "issue_sign_in_code": [("POST", "/v1/sign-in-codes", None)],
        "show_health": [("GET", "/v1/health", None)],
        "show_readiness": [("GET", "/readyz", None)],
        "show_liveness": [("GET", "/livez", None)],
        "explain_job": [
            ("GET", "/v1/jobs/second/why?last=100", None),
            ("GET", "/v1/jobs/wide/why?last=100", None),
            ("GET", "/v1/jobs/leap/why?at=9000-01-01T00:00Z", None),
        ],
        "list_audit_entries": [("GET", "/v1/audit?limit=1000", None)],
        "list_tokens": [("GET", "/v1/tokens?limit=1000", None)],
        "revoke_tokens": [("POST", "/v1/tokens/revoke", {"token_id": "tok_none"})],
        "show_policy": [("GET", "/v1/policy", None)],
        "list_policy_versions": [("GET", "/v1/policy/versions?limit=1000", None)],
        "list_budgets": [("GET", "/v1/policy/budgets?limit=1000", None)],
        "explain_policy": [
            ("POST", "/v1/jobs/wide/policy", None),
            ("POST", "/v1/jobs/checked/policy", {"input": {"x": NUMBERS}}),
            ("POST", "/v1/jobs/wide/policy", {"body": LARGE_POLICY}),
        ],
        "list_decisions": [("GET", f"/v1/executions/{target.each}/decisions?limit=1000", None)],
        "diff_policy": [("POST", "/v1/policy/diff", {"body": LARGE_POLICY})],
        "show_policy_shadow": [("GET", "/v1/policy/shadow?limit=1000", None)],
        "start_policy_shadow": [("POST", "/v1/policy/shadow", {"body": LARGE_POLICY})],
        "stop_policy_shadow": [("POST", "/v1/policy/shadow/stop", None)],
        "promote_policy_shadow": [("POST", "/v1/policy/shadow/promote", None)],
        "replay_policy": [("POST", "/v1/policy/replay", {"body": LARGE_POLICY, "since": 0, "limit": 10_000})],
        "apply_policy": [("POST", "/v1/policy", {"body": LARGE_POLICY})],
        "show_agent_usage": [("GET", "/v1/agents/usage", None)],
        "list_sessions": [("GET", "/v1/sessions?limit=1000", None)],
        "show_session": [("GET", "/v1/sessions/none", None)],
        "clear_session": [("POST", "/v1/sessions/none/clear", None)],
        "delete_job": [("DELETE", "/v1/jobs/wide", None)],
        "describe": [("GET", "/openapi.json", None)],
    }


def tool_call(name: str, given: Mapping[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}


#: As many rules as fit.
LARGE_POLICY = "rules:\n" + "".join(
    f"  - {{id: rule-{n}, match: {{topics: [{', '.join(f'topic-{n}-{m}.*' for m in range(60))}]}}, decision: allow}}\n"
    for n in range(250)
)


#: A stream has no end; its shares have tests of their own.
ELSEWHERE = {"follow_changes"}
#: Others request the objects that these remove.
LAST = ("delete_job", "delete_schedule", "cancel_execution")
NAMES = [route.name for route in ROUTES if route.name not in (*ELSEWHERE, *LAST)] + ["describe", *LAST]
#: These compute much and read little: the database makes no difference.
COMPUTED = ("plan_jobs", "simulate_jobs", "explain_schedule", "preview_backfill", "diff_policy", "describe")
#: How often a request is repeated that held something for too long: the load of the machine stretches the time that
#: passes. The caches are cleared each time: a caller can vary what is read.
TRIES = 6


#: Jobs whose steps could repeat a large input without bound.
RUNS = {
    "conditions": job("many_conditions", dag=[{**one, "if": LONG_CONDITION} for one in steps(60)]),
    "values": job("many_values", dag=steps(1, input={"y": ["${input.x}"] * 4000})),
    "texts": job("many_texts", dag=steps(20, input={"y": "${input.x}" * 100})),
}


def _marks(*, always: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case that only thorough runs look at, unless it is for every run."""
    return () if always else (pytest.mark.thorough,)


@pytest.mark.parametrize("definition", RUNS.values(), ids=RUNS)
def test_the_steps_of_a_run_hold_the_scheduler_for_milliseconds(target: Target, definition: dict[str, Any]) -> None:
    assert_run_is_short(target, definition)


# The database makes little difference: only `make test-all` looks at all of them.
@pytest.mark.parametrize(
    "definition", [pytest.param(one, id=name, marks=_marks(always=name == "values")) for name, one in RUNS.items()]
)
def test_the_steps_of_a_run_hold_it_no_longer_on_postgresql(
    postgres_target: Target, definition: dict[str, Any]
) -> None:
    assert_run_is_short(postgres_target, definition)


def assert_run_is_short(target: Target, definition: dict[str, Any]) -> None:
    name, holds = definition["name"], list[tuple[float, float]]()
    target.sender.sent_json("POST", "/v1/jobs", definition)
    while not holds or (not is_short(holds) and len(holds) < TRIES):
        target.measure()
        started = target.sender.sent_json("POST", f"/v1/jobs/{name}/trigger", {"input": {"x": [[]] * 20_000}})
        wait_for_end(target.sender, started["execution_id"])
        holds.append(target.held)

    assert is_short(holds), (holds, target.holds.callback)


def wait_for_end(sender: RequestSender, execution: str) -> None:
    """Wait until every step of the execution was skipped or has failed."""
    until = monotonic() + WAIT_SECONDS
    while sender.sent_json("GET", f"/v1/executions/{execution}")["status"] in ("pending", "running"):
        assert monotonic() < until, "the execution does not end"
        sleep(0.02)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_of_the_largest_size_holds_the_scheduler_for_milliseconds(target: Target, name: str) -> None:
    assert_requests_are_short(target, name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=_marks(always=name.startswith("list_"))) for name in NAMES if name not in COMPUTED],
)
def test_a_request_of_the_largest_size_holds_it_no_longer_on_postgresql(postgres_target: Target, name: str) -> None:
    assert_requests_are_short(postgres_target, name)


def assert_requests_are_short(target: Target, name: str) -> None:
    for method, path, body in requests(target)[name]:
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        holds: list[tuple[float, float]] = []
        while not holds or (not is_short(holds) and len(holds) < TRIES):
            status, answer = target.ask(method, path, content)
            # On an overloaded machine the health may be an error: that is its answer, and no failure of the request.
            assert status < 500 or name == "show_health", answer
            holds.append(target.held)

        assert is_short(holds), (path, str(body)[:200], holds, target.holds.callback)


# ---- the dashboard -------------------------------------------------------------------------------

#: Pages with as much on them as there may be. Requests for the same data are measured above.
PAGES = (
    "/ui/",
    "/ui/jobs",
    "/ui/jobs/full?tab=definition",
    "/ui/jobs/large?tab=definition",
    "/ui/schedule?hours=8784",
    "/ui/executions",
    "/ui/executions/{execution}",
    "/ui/executions/{each}",
    "/ui/events/{event}",
    "/ui/audit",
    "/ui/why?job=second",
    "/ui/login?next=/ui/" + "a" * 6_000,
)
#: In bytes: nearly as long as any form of a job, and as one with a policy.
FORM, LONG_FORM = 1_000_000, 7_000_000
ESCAPES, OPEN_LISTS = b"%41", b"%5B"


@pytest.mark.parametrize("path", PAGES)
def test_a_large_page_holds_the_scheduler_for_milliseconds(target: Target, path: str) -> None:
    filled = path.format(execution=target.execution, each=target.each, event=target.event)

    assert_is_short(target, lambda: target.sender.send("GET", filled))


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/ui/login", b"token=" + ESCAPES * (60_000 // 3)),
        ("/ui/login", b"token=" + ESCAPES * (FORM // 3)),
        ("/ui/jobs/full/trigger", b"input=" + OPEN_LISTS * (FORM // 3)),
        ("/ui/jobs/full/trigger", b"input=" + b"+" * FORM),
        ("/ui/policy/compare", b"body=" + ESCAPES * (LONG_FORM // 3)),
    ],
    ids=["a token", "a long token", "lists in lists", "spaces", "a policy"],
)
def test_a_large_form_holds_the_scheduler_for_milliseconds(target: Target, path: str, content: bytes) -> None:
    assert_is_short(target, lambda: target.sender.send_form(path, content))


def assert_is_short(target: Target, send: Callable[[], tuple[int, bytes]]) -> None:
    holds: list[tuple[float, float]] = []
    while not holds or (not is_short(holds) and len(holds) < TRIES):
        target.measure()
        status, answer = send()
        assert status < 500, answer
        holds.append(target.held)

    assert is_short(holds), (holds, target.holds.callback)


def test_jobs_that_cost_too_much_together_are_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.api.routes.bulk_jobs.MOST_COMPUTE_SECONDS", 0.2)
    jobs = [job(f"costly{n}", input_schema={"pattern": r"\S" * 84 + str(n)}) for n in range(40)]
    small = json.dumps({"jobs": many_jobs(3)}).encode()

    for path in ("/v1/plan", "/v1/apply"):
        status, answer = target.ask("POST", path, json.dumps({"jobs": jobs}).encode())
        assert (status, b"cost more than 0.2 s of processor time" in answer) == (422, True)
        assert target.ask("POST", path, small)[0] == 200


def is_short(holds: list[tuple[float, float]]) -> bool:
    """Whether one of the tries held the event loop, and the interpreter in any thread, for a short time."""
    return any(loop < MOST_SECONDS and passed < MOST_SECONDS_PASSED for loop, passed in holds)
