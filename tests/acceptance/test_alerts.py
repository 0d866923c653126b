"""The shipped alerts, evaluated over what servers of every shape of deployment show when something goes wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from gnomon.app.doctor import diagnose
from gnomon.services.observability.health import Severity
from support.observed_deployments import PREFIX, SHAPES, Served, shaped
from support.promql_evaluator import Scrapes, evaluate, fires

pytestmark = pytest.mark.timeout(180)
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
OF_THE_SEED = ("ScheduledJobFailing", "DeadLettersAccumulating", "SchedulerLeaderLost")
JOBS = """
jobs:
  - {name: failing, function: fails, every: 200ms, overlap: allow, enabled: false, dead_letter: true}
  - {name: greeting, function: company/greet, overlap: allow}
"""


def value(families: dict[str, Metric], name: str, **labels: str) -> float | None:
    """The value of a gauge or counter; None if it is not there."""
    samples = families[PREFIX + name].samples
    return next((one.value for one in samples if labels.items() <= one.labels.items()), None)


@pytest.mark.req("H-09", "H-14", "H-15")
@pytest.mark.parametrize("shape", SHAPES)
async def test_each_alert_of_the_seed_fires_when_it_should_and_not_before(shape: str, tmp_path: Path) -> None:
    scrapes = Scrapes()

    def firing(at: float) -> set[str]:
        return {name for name in OF_THE_SEED if fires(ALERTS[name], scrapes, at=at)}

    async with shaped(shape, tmp_path, jobs=JOBS) as one:

        async def leads() -> bool:
            return value(await one.families(), "leader_active") == 1

        async def fails() -> bool:
            failed = value(await one.families(), "executions", job="failing", status="failed", trigger="cron")
            return (failed or 0) > 3

        await one.until(leads)
        scrapes.add((await one.whole_families()).values(), at=1000)
        assert firing(1000) == set()

        await one.node.schedules.resume("failing", actor="ada")
        one.node.check_soon()
        await one.until(fails)
        scrapes.add((await one.whole_families()).values(), at=1060)
        assert firing(1060) == {"ScheduledJobFailing", "DeadLettersAccumulating"}
        [(labels, _)] = evaluate(ALERTS["ScheduledJobFailing"]["expr"], scrapes, at=1060).items()
        assert dict(labels)["job"] == "failing"

    # The server is gone: nothing is scraped any more.
    scrapes.add([], at=1120)
    assert "SchedulerLeaderLost" not in firing(1120)
    assert "SchedulerLeaderLost" in firing(1180)


@pytest.mark.req("H-15", "Z-11")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "sqlite"])
async def test_without_workers_alerts_and_doctor_say_so(shape: str, tmp_path: Path) -> None:
    scrapes = Scrapes()
    async with shaped(shape, tmp_path, jobs=JOBS, execution__max_routings=50) as one:
        scrapes.add((await one.whole_families()).values(), at=1000)
        await one.trigger("greeting")
        one.no_worker.set()
        await one.until(lambda: nobody_takes_it(one))
        for at in (1060, 1180):
            scrapes.add((await one.whole_families()).values(), at=at)
        found = {finding.about: finding for finding in await diagnose(one.node.settings)}

    assert not any(fires(ALERTS[name], scrapes, at=1000) for name in ("NoWorkerAlive", "TasksWithoutWorker"))
    assert all(fires(ALERTS[name], scrapes, at=1180) for name in ("NoWorkerAlive", "TasksWithoutWorker"))
    assert found["workers"].message == "no worker is alive: gnomon worker starts one"
    assert found["workers"].grade is Severity.ERROR
    assert "no worker has registered the function 'company/greet'" in found["tasks"].message


async def nobody_takes_it(one: Served) -> bool:
    """Whether the server shows that there is no worker, and that a task waits for one."""
    families = await one.families()
    waits = value(families, "tasks_waiting", reason="route")
    return value(families, "workers_alive") == 0 and waits == 1 and (value(families, "tasks_ready_seconds") or 0) > 0


# ---- the evaluator -------------------------------------------------------------------------------


@pytest.mark.req("H-15")
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_an_expression_that_can_be_evaluated(name: str) -> None:
    found = evaluate(ALERTS[name]["expr"], Scrapes(), at=0)

    assert bool(found) is (name == "SchedulerLeaderLost")


@pytest.mark.parametrize(
    "broken", ["increase(a) > 3", "sum by job (a) > 3", "a > ", "a > b", "max(a", "absnt(a)", "a{b=1m} > 1", "1", "a b"]
)
def test_an_expression_with_a_mistake_is_refused(broken: str) -> None:
    with pytest.raises(AssertionError):
        evaluate(broken, Scrapes(), at=0)


def counter(**values: float) -> list[Metric]:
    """A counter of failures by job."""
    failed = Metric("f", "", "counter")
    for job, count in values.items():
        failed.add_sample("f_total", {"job": job}, count)
    return [failed]


def test_failures_that_are_spread_over_servers_are_added_up() -> None:
    rule = {"expr": ALERTS["ScheduledJobFailingOnSeveralServers"]["expr"].replace(PREFIX + "executions", "f")}
    rule["expr"] = rule["expr"].replace('{status="failed"}', "")
    scrapes = Scrapes()
    for instance in ("one", "other"):
        scrapes.add(counter(spread=0, whole=0, fine=1), at=0, instance=instance)
        scrapes.add(counter(spread=3, whole=4 * (instance == "one"), fine=2), at=60, instance=instance)

    found = evaluate(rule["expr"], scrapes, at=60)

    assert found == {(("job", "spread"),): 6}


def test_a_counter_that_begins_anew_has_not_gone_back() -> None:
    scrapes = Scrapes()
    for at, count in ((0, 5), (60, 7), (120, 1)):
        scrapes.add(counter(a=count), at=at)

    [grown] = evaluate("increase(f_total[1h])", scrapes, at=120).values()
    assert grown == 3
