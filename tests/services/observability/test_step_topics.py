"""The topics of steps, which metrics have as labels: read once from the definition of each."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.metrics import CountedStep
from gnomon.core.runs.workflow import RoutingRequirements, Step, Workflow
from gnomon.errors import StoreUnavailable
from gnomon.ports.schedules import JobChangeset
from gnomon.services.observability.step_topics import StepTopics
from gnomon.testing.clock import VirtualClock

pytestmark = pytest.mark.req("R-19")

PAY = Step(
    name="pay",
    function="bank.pay",
    route=RoutingRequirements(topic="payments"),
    compensate=Step(name="compensate:pay", function="bank.refund"),
)
MAIL = Step(name="mail", function="mail.send", depends_on=("pay",))
INNER = Step(name="inner", workflow="other", depends_on=("mail",))
ORDER = Workflow(workflow_id="order", version=1, steps=(PAY, MAIL, INNER))


def step(name: str = "", *, version: int = 1, workflow: str = "order") -> CountedStep:
    return CountedStep("default", workflow, version, name)


async def topics_of(*definitions: Workflow) -> tuple[StepTopics, MemoryStore]:
    store = MemoryStore(VirtualClock(NOON).now)
    await store.jobs.apply(JobChangeset(workflows=list(definitions)), now=NOON, actor="ada", tzdata="")
    return StepTopics(store.jobs), store


@pytest.mark.parametrize(
    ("counted", "topic"),
    [
        (step("pay"), "payments"),
        (step("mail"), "mail.send"),
        (step(), "payments"),
        (step("compensate:pay"), "bank.refund"),
        (step("compensate:pay#2"), "bank.refund"),
        (step("inner"), ""),
        (step("gone"), ""),
        (step(version=7), ""),
        (step(workflow="unknown"), ""),
    ],
    ids=str,
)
async def test_the_topic_of_a_step_is_that_of_its_route_or_else_its_function(counted: CountedStep, topic: str) -> None:
    topics, _ = await topics_of(ORDER)

    assert await topics.find([counted]) == {counted: topic}


async def test_each_version_has_its_own() -> None:
    later = replace(ORDER, version=2, steps=(replace(PAY, route=None), MAIL, INNER))
    topics, _ = await topics_of(ORDER, later)

    found = await topics.find([step("pay"), step("pay", version=2)])

    assert list(found.values()) == ["payments", "bank.pay"]


async def test_a_definition_is_read_once_and_known_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    topics, store = await topics_of(ORDER)
    await topics.find([step("pay"), step()])

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.jobs, "workflow", away)

    assert await topics.find([step("pay"), step()]) == {step("pay"): "payments", step(): "payments"}
    assert topics.known([step("pay"), step("mail")]) == {step("pay"): "payments"}


async def test_of_more_definitions_than_are_kept_each_is_found() -> None:
    many = [replace(ORDER, workflow_id=f"order-{number}") for number in range(1_200)]
    topics, _ = await topics_of(*many)

    found = await topics.find([step("pay", workflow=one.workflow_id) for one in many])

    assert len(found) == 1_200
    assert set(found.values()) == {"payments"}


async def test_a_definition_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    topics, store = await topics_of(ORDER, replace(ORDER, workflow_id="broken"))
    read, read_many = store.jobs.workflow, store.jobs.newest_workflows

    async def one(tenant: str, name: str, version: int | None = None) -> Workflow | None:
        if name == "broken":
            raise ValueError("no definition")
        return await read(tenant, name, version)

    async def many(tenant: str, names: Sequence[str]) -> Sequence[Workflow]:
        if "broken" in names:
            raise ValueError("no definition")
        return await read_many(tenant, names)

    monkeypatch.setattr(store.jobs, "workflow", one)
    monkeypatch.setattr(store.jobs, "newest_workflows", many)

    found = await topics.find([step("pay"), step("pay", workflow="broken")])

    assert found == {step("pay"): "payments", step("pay", workflow="broken"): ""}
