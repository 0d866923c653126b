"""One policy, one ruling: in this process, and by kernels over gRPC and HTTP, with and without TLS."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.model import RunSource
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, RoutingRequirements
from gnomon.ports.policy import TaskPolicy
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.testing.clock import Recorder, VirtualClock
from support.certificates import Authority
from support.policy_kernels import THROTTLE_MS, Answers, connected, kernel_policy, served, server_certificate
from support.running_assignments import running_assignment

pytestmark = [pytest.mark.req("R-14"), pytest.mark.timeout(180)]

#: The shapes in which a kernel is asked.
SHAPES = [("grpc", False), ("grpc", True), ("http", False), ("http", True)]
TAGS, LABELS, SECRETS = ("money", "prod"), {"env": "prod"}, ("STRIPE_KEY",)
CONDITIONS = ("input.n > 3", "input.who == 'ada'", "input.missing.value == 1", "labels.env == 'prod'", "run.job != 'x'")

# ---- random policies ---------------------------------------------------------------------------------

_words = st.lists(st.sampled_from(TAGS), min_size=1, max_size=2, unique=True)
matches = st.fixed_dictionaries(
    {},
    optional={
        "tenants": st.sampled_from([["default"], ["acme*"], ["*"]]),
        "jobs": st.sampled_from([["report"], ["re*"], ["other"]]),
        "topics": st.sampled_from([["f"], ["db.*"], ["*"]]),
        "functions": st.sampled_from([["f"], ["*"]]),
        "kinds": st.lists(st.sampled_from(["function", "command", "http", "agent"]), min_size=1, unique=True),
        "capabilities": st.sampled_from([["db.write"], ["db.*"]]),
        "risk_tags": _words,
        "requires": st.sampled_from([["gpu"]]),
        "labels": st.sampled_from([LABELS, {"env": "dev"}]),
        "actors": st.sampled_from([["ada"], ["a*"]]),
        "sources": st.sampled_from([["cron"], ["api", "manual"]]),
        "secrets": st.sampled_from([["STRIPE_*"], ["OTHER"]]),
        "window": st.sampled_from([{"cron": "0 10 * * *", "lasts": "4h"}, {"cron": "0 1 * * *", "lasts": "1h"}]),
    },
)
constraints = st.fixed_dictionaries(
    {"max_attempts": st.integers(1, 5)},
    optional={
        "max_runtime": st.sampled_from(["1ms", "2m"]),
        "max_output_bytes": st.sampled_from([256, 4096]),
        "max_concurrent": st.integers(1, 9),
        "isolation": st.just("process"),
        "network": st.just(False),
    },
)
rules = st.one_of(
    st.fixed_dictionaries({"decision": st.sampled_from(["allow", "deny", "throttle"])}),
    st.fixed_dictionaries({"decision": st.just("allow_with_constraints"), "constraints": constraints}),
).flatmap(
    lambda rule: st.fixed_dictionaries(
        {name: st.just(value) for name, value in rule.items()},
        optional={
            "match": matches,
            "when": st.sampled_from(CONDITIONS),
            "reason": st.sampled_from(["because", "naïve «x»"]),
            "remediations": st.just([{"title": "wait"}]),
        },
    )
)


@st.composite
def policies(draw: st.DrawFn) -> str:
    found: list[Any] = [
        {"id": f"rule-{number}", **rule} for number, rule in enumerate(draw(st.lists(rules, max_size=5)))
    ]
    return yaml.safe_dump({"default_decision": draw(st.sampled_from(["allow", "deny"])), "rules": found})


@st.composite
def requests(draw: st.DrawFn) -> AdmissionRequest:
    one = running_assignment()
    route = RoutingRequirements(
        topic=draw(st.sampled_from([None, "db.drop"])),
        requires=draw(st.sampled_from([(), ("gpu",)])),
        labels=draw(st.sampled_from([{}, LABELS])),
    )
    step = replace(
        one.step,
        function=draw(st.sampled_from(["f", "g", SHELL, HTTP, AGENT])),
        capability=draw(st.sampled_from(["", "db.write"])),
        risk_tags=draw(st.sampled_from([(), TAGS])),
        route=draw(st.sampled_from([None, route])),
    )
    run = replace(
        one.run,
        tenant=draw(st.sampled_from(["default", "acme"])),
        actor=draw(st.sampled_from(["", "ada", "bob"])),
        source=draw(st.sampled_from([RunSource.CRON, RunSource.API])),
    )
    given_input = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "n": st.integers(0, 9),
                "who": st.sampled_from(["ada", "böb", "${secret:STRIPE_KEY}"]),
                "list": st.lists(st.none() | st.booleans() | st.floats(allow_nan=False), max_size=2),
            },
        )
    )
    return AdmissionRequest(
        waiting=ReadyTask(task=replace(one.task, state=TaskState.PENDING), run=run),
        workflow=replace(one.workflow, steps=(step,)),
        step=step,
        input=given_input,
    )


# ---- the same ruling ---------------------------------------------------------------------------------


def shown(ruling: Ruling | None) -> Any:  # noqa: ANN401 - for comparison
    """A ruling but for the names of its policy, and for fields that say nothing with its decision."""
    assert ruling is not None
    left_out = {"version", "ruled_by"}
    left_out |= set() if ruling.decision is PolicyDecision.THROTTLE else {"retry_after_ms"}
    return {name: value for name, value in msgspec.structs.asdict(ruling).items() if name not in left_out}


class _Rulers:
    """The same policy in this process and in kernels."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.clock = answers, VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.stored = StoredPolicy(
            self.store.policies, Recorder(), compile_version=_compiled_version, refresh_seconds=1
        )
        self.here = PolicyGate(self.stored, self.clock)
        self.kernels: dict[str, TaskPolicy] = {}
        self._versions = 0

    async def apply(self, text: str) -> None:
        self._versions += 1
        await self.store.policies.add(f"# {self._versions}\n{text}", author="ada", now=self.clock.now())
        await self.stored.refresh()
        assert self.stored.current is not None
        self.answers.apply(self.stored.current)

    async def differences(self, request: AdmissionRequest) -> dict[str, Any]:
        """The rulings of kernels that are not the one of this process."""
        self._versions += 1
        # A definition never changes within a version.
        request = replace(request, workflow=replace(request.workflow, version=self._versions))
        expected = shown(await self.here.rule(request))
        found = {name: shown(await kernel.rule(request)) for name, kernel in self.kernels.items()}
        again = {f"{name}, again": kernel.rule_now(request) for name, kernel in self.kernels.items()}
        found |= {name: shown(ruling) for name, ruling in again.items() if ruling is not None}
        return {name: (one, expected) for name, one in found.items() if one != expected}


def _compiled_version(version: PolicyVersion) -> CompiledPolicy:
    return CompiledPolicy(parse_policy(version.body), version.version, throttle_ms=THROTTLE_MS)


async def _connect(rulers: _Rulers, stack: AsyncExitStack, folder: Path) -> None:
    authority = Authority(folder)
    certificate, ca = server_certificate(authority.server()), authority.pem
    for transport, tls in SHAPES:
        port = await stack.enter_async_context(
            served(transport, rulers.answers, certificate=certificate if tls else None)
        )
        kernel = await stack.enter_async_context(connected(transport, port, tls=tls, ca=ca if tls else None))
        name = f"{transport}{' with TLS' if tls else ''}"
        rulers.kernels[name] = kernel_policy(kernel, rulers.clock)
        rulers.kernels[f"{name}, remembered"] = kernel_policy(kernel, rulers.clock, cache_ms=60_000)


def test_kernels_rule_as_the_policy_in_this_process_does(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        rulers, stack = _Rulers(Answers(now=NOON)), AsyncExitStack()
        runner.run(_connect(rulers, stack, tmp_path))

        @given(policies(), st.lists(requests(), min_size=1, max_size=3))
        def rules_alike(policy: str, asked: list[AdmissionRequest]) -> None:
            runner.run(rulers.apply(policy))
            for request in asked:
                assert runner.run(rulers.differences(request)) == {}

        try:
            rules_alike()
        finally:
            runner.run(stack.aclose())
