"""Extracts the metrics and labels of a Prometheus query, to check that they exist."""

import re

from gnomon.core.metrics import METRICS, Metric, MetricKind

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE = re.compile(r"\[[^\]]*\]")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^()]*)\)")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b(?!\s*\()")
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})
#: Labels that Prometheus adds.
ADDED = frozenset({"instance", "le"})


def metrics_of(expression: str) -> set[str]:
    """The names of the metrics; AssertionError if brackets do not match."""
    bare = _TEXT.sub('""', expression)
    for opening, closing in ("()", "{}", "[]"):
        assert bare.count(opening) == bare.count(closing), expression
    bare = _GROUPING.sub(" ", _MATCHERS.sub(" ", _RANGE.sub(" ", bare)))
    return {name for name in _NAME.findall(bare) if name not in _WORDS}


def labels_of(expression: str) -> set[str]:
    """The names of the labels that are matched or grouped by."""
    bare = _TEXT.sub('""', expression)
    matched = {label for matchers in _MATCHERS.findall(bare) for label in _LABEL.findall(matchers)}
    grouped = {label.strip() for group in _GROUPING.findall(bare) for label in group.split(",")}
    return matched | grouped


def exposed_name(metric: Metric, prefix: str) -> str:
    """The name under which Prometheus exports the metric."""
    return f"{prefix}{metric.name}{'_total' if metric.kind is MetricKind.COUNTER else ''}"


def known(prefix: str) -> dict[str, frozenset[str]]:
    """Every name that a query may use, and the labels that it has."""
    found: dict[str, frozenset[str]] = {}
    for measure in METRICS.values():
        name, labels = exposed_name(measure, prefix), frozenset(measure.labels) | ADDED
        ends = ("_bucket", "_sum", "_count") if measure.kind is MetricKind.HISTOGRAM else ("",)
        found |= {f"{name}{end}": labels for end in ends}
    return found
