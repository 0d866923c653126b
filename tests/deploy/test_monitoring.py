"""The alert rules and the board: valid, and about metrics that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnomon.config.sections import MetricsSettings
from gnomon.core.metrics import METRICS
from support.promql import known, labels_of, metrics_of
from support.promql_evaluator import Scrapes, evaluate

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
BOARD = json.loads((DEPLOY / "grafana" / "gnomon.json").read_text())
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
KNOWN = known(MetricsSettings().prefix)
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")


def refers_to_what_there_is(expression: str) -> None:
    used = metrics_of(expression)
    assert used, expression
    assert used <= set(KNOWN), expression
    assert labels_of(expression) <= frozenset().union(*(KNOWN[name] for name in used)), expression


def test_the_reader_of_queries_sees_what_is_used() -> None:
    query = 'histogram_quantile(0.9, sum by (le, job) (rate(a_bucket{job=~"x{y}",le!="1"}[5m]))) > 3 or absent(b) == 1'

    assert metrics_of(query) == {"a_bucket", "b"}
    assert labels_of(query) == {"le", "job"}


def test_prometheus_asks_where_the_settings_say_and_leaves_the_names_of_jobs_alone() -> None:
    scrape, *_ = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]

    assert scrape["honor_labels"] is True
    assert scrape["static_configs"] == [{"targets": [f"{MetricsSettings().host}:{MetricsSettings().port}"]}]


# ---- rules ---------------------------------------------------------------------------------------


@pytest.mark.req("H-15")
@pytest.mark.parametrize(
    ("name", "expression", "lasting", "severity"),
    [
        (
            "ScheduledJobFailing",
            'increase(hanzo_scheduler_executions_total{status="failed"}[1h]) > 3',
            None,
            "warning",
        ),
        ("DeadLettersAccumulating", "increase(hanzo_scheduler_dead_letters_total[24h]) > 0", None, "critical"),
        ("SchedulerLeaderLost", "absent(hanzo_scheduler_leader_active) == 1", "1m", "critical"),
    ],
)
def test_the_alerts_of_the_seed_are_there(name: str, expression: str, lasting: str | None, severity: str) -> None:
    rule = ALERTS[name]

    assert (rule["expr"], rule.get("for"), rule["labels"]["severity"]) == (expression, lasting, severity)


@pytest.mark.req("H-15")
def test_the_file_has_the_shape_of_rules() -> None:
    assert set(yaml.safe_load(RULES.read_text())) == {"groups"}
    assert len({group["name"] for group in GROUPS}) == len(GROUPS)
    assert len(ALERTS) == sum(len(group["rules"]) for group in GROUPS)
    for rule in ALERTS.values():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


@pytest.mark.req("H-15")
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_about_metrics_and_labels_that_there_are(name: str) -> None:
    refers_to_what_there_is(ALERTS[name]["expr"])


@pytest.mark.parametrize("name", ALERTS)
def test_texts_of_alerts_use_existing_labels(name: str) -> None:
    rule = ALERTS[name]
    shown = frozenset.intersection(*(KNOWN[metric] for metric in metrics_of(rule["expr"])))
    said = " ".join(rule["annotations"].values())

    assert set(re.findall(r"\$labels\.(\w+)", said)) <= shown


@pytest.mark.req("H-15")
def test_promtool_accepts_the_rules_or_where_there_is_none_our_own_reader_of_expressions() -> None:
    promtool = shutil.which("promtool")
    if promtool is not None:
        subprocess.run([promtool, "check", "rules", str(RULES)], check=True)
    for rule in ALERTS.values():
        evaluate(rule["expr"], Scrapes(), at=0)


# ---- the board -----------------------------------------------------------------------------------

EXPRESSIONS = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_a_panel_is_about_metrics_and_labels_that_there_are(title: str, expression: str) -> None:
    del title
    refers_to_what_there_is(expression.replace("or vector(0)", "").replace("$__rate_interval", "5m"))


def test_every_metric_is_on_the_board() -> None:
    shown = set().union(*(metrics_of(expression) for _, expression in EXPRESSIONS))

    assert [
        name for name in METRICS if not any(f"{MetricsSettings().prefix}{name}" in metric for metric in shown)
    ] == []


def test_the_panels_have_names_of_their_own_and_do_not_lie_on_each_other() -> None:
    panels = BOARD["panels"]
    fields = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(fields)) == len(fields)
    assert max(x for x, _ in fields) < 24


def test_the_board_asks_the_source_that_is_chosen() -> None:
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"]} == {"${source}"}
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"source", "job"}
