"""Facts: everything that a rule of the policy may look at, and the digest of exactly what was asked."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.agents.spec import FUNCTION_PREFIX
from gnomon.core.instants import instant_of
from gnomon.core.model import Run
from gnomon.core.policy.constraints import Constraints
from gnomon.core.runs.admission import AdmissionRequest
from gnomon.core.runs.secret_text import SecretPlace, has_places, parts_of, shown_data
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, Step, Workflow

#: The kinds of steps, by the functions that are built in; all others call a function of the user.
STEP_KINDS = {SHELL: "command", HTTP: "http", AGENT: "agent"}
_CANONICAL = msgspec.json.Encoder(order="deterministic")


class FactName(StrEnum):
    """The facts about a task that differ between the tasks of a step."""

    ACTOR = "actor"
    GROUPS = "groups"
    SOURCE = "source"
    SECRETS = "secrets"
    INPUT = "input"
    RUN = "run"
    TIME = "time"


class StepFacts(Struct, frozen=True, kw_only=True):
    """The facts that are the same for every task of a step, until its definition changes."""

    tenant: str
    job: str
    workflow: str
    step: str
    topic: str
    function: str
    #: `function`, `command`, `http` or `agent`.
    kind: str
    capability: str = ""
    risk_tags: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    #: The functions that its agent may call as tools.
    tools: tuple[str, ...] = ()


class RequestFacts(Struct, frozen=True, kw_only=True):
    """The facts about one task."""

    step: StepFacts
    #: The caller that requested the run; empty if a schedule started it.
    actor: str = ""
    #: The groups to which that caller belonged then.
    groups: tuple[str, ...] = ()
    source: str = ""
    #: The names of the secrets that its input refers to.
    secrets: tuple[str, ...] = ()
    input: Mapping[str, Any] = {}
    run: Mapping[str, Any] = {}


def step_facts(tenant: str, job: str, workflow: Workflow, step: Step) -> StepFacts:
    """The facts about the step of a job."""
    route = step.route
    return StepFacts(
        tenant=tenant,
        job=job,
        workflow=workflow.workflow_id,
        step=step.name,
        topic=step.topic,
        function=step.function,
        kind=STEP_KINDS.get(step.function, "function"),
        capability=step.capability,
        risk_tags=step.risk_tags,
        requires=() if route is None else route.requires,
        labels={} if route is None else route.labels,
        tools=_function_tools(step),
    )


def _function_tools(step: Step) -> tuple[str, ...]:
    tools = () if step.agent is None else step.agent.tools
    return tuple(tool.removeprefix(FUNCTION_PREFIX) for tool in tools if tool.startswith(FUNCTION_PREFIX))


class NeededFacts(Struct, frozen=True, kw_only=True):
    """The facts that take time to collect, and whether a rule looks at them."""

    input: bool = True
    secrets: bool = True
    run: bool = True


_EVERYTHING = NeededFacts()
_NOTHING: Mapping[str, Any] = {}


def facts_of(
    request: AdmissionRequest, step: StepFacts | None = None, needed: NeededFacts = _EVERYTHING
) -> RequestFacts:
    """The facts about a task that are needed; `step` are those of its step, if they are known."""
    run = request.waiting.run
    return RequestFacts(
        step=step or step_facts(run.tenant, run.schedule_id or run.workflow_id, request.workflow, request.step),
        actor=run.actor,
        groups=run.actor_groups,
        source=run.source,
        secrets=secret_names(request.input) if needed.secrets else (),
        input=shown_data(request.input) if needed.input else _NOTHING,
        run=_run_facts(run) if needed.run else _NOTHING,
    )


def _run_facts(run: Run) -> Mapping[str, Any]:
    job = run.schedule_id or run.workflow_id
    return {"id": run.run_id, "job": job, "planned_at": instant_of(run.planned_at).isoformat()}


def secret_names(value: object) -> tuple[str, ...]:
    """The names of the secrets whose places the value marks, each once."""
    return tuple(dict.fromkeys(_secrets(value))) if has_places(value) else ()


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from (part.name for part in parts_of(value) if isinstance(part, SecretPlace))
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _secrets(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets(entry)


class StepDigest:
    """The part of the digests of requests that all tasks of a step have in common."""

    def __init__(self, tenant: str, workflow: Workflow, step: Step) -> None:
        content = sha256(_CANONICAL.encode(workflow)).hexdigest()
        about = (tenant, workflow.workflow_id, workflow.version, content, step.name)
        self._begun = sha256(_CANONICAL.encode(about))

    def of(self, request: AdmissionRequest, constraints: Constraints | None = None) -> bytes:
        """The digest of a request of this step under these constraints."""
        digest = self._begun.copy()
        limits = b"" if constraints is None else _CANONICAL.encode(constraints)
        digest.update(b"%s\0%s\0%s" % (request.waiting.task.task_id.encode(), input_json(request), limits))
        return digest.digest()

    def of_items(self, request: AdmissionRequest, digests: bytes, constraints: Constraints | None) -> bytes:
        """The digest of a request for all items of the step, given the digest of the request of each."""
        digest = self._begun.copy()
        limits = b"" if constraints is None else _CANONICAL.encode(constraints)
        digest.update(b"%s\0items\0%s\0%s" % (request.waiting.task.task_id.encode(), digests, limits))
        return digest.digest()


def input_json(request: AdmissionRequest) -> bytes:
    """The input of a task as JSON, in one form."""
    return _CANONICAL.encode(request.input) if request.input else b"{}"


def request_digest(request: AdmissionRequest, constraints: Constraints | None = None) -> bytes:
    """The digest of exactly what is asked: an approval of it approves nothing else.

    It binds the task, the version and the content of its definition, its step, its input with all references resolved,
    and the constraints. Secrets are in it as references.
    """
    run = request.waiting.run
    return StepDigest(run.tenant, request.workflow, request.step).of(request, constraints)
