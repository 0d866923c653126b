"""Renders metrics in the text format of Prometheus."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gnomon.core.metrics import HistogramSample, MetricFamily, MetricKind

if TYPE_CHECKING:
    from prometheus_client import Metric


def render_metrics(families: Sequence[MetricFamily], prefix: str) -> tuple[str, bytes]:
    """The content type and the text of the families, each name with the prefix."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector

    class Families(Collector):
        """Collects the given families."""

        def collect(self) -> Iterable["Metric"]:
            return _metrics(families, prefix)

    registry = CollectorRegistry()
    registry.register(Families())
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def _metrics(families: Sequence[MetricFamily], prefix: str) -> Iterator["Metric"]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for family in families:
        metric = family.metric
        name, help_text, labels = prefix + metric.name, metric.help, metric.labels
        if metric.kind is MetricKind.HISTOGRAM:
            histogram = HistogramMetricFamily(name, help_text, labels=labels)
            for values, sample in family.samples.items():
                assert isinstance(sample, HistogramSample)  # noqa: S101 - a histogram has nothing else
                histogram.add_metric(values, _cumulative(metric.buckets, sample.counts), sample.sum)
            yield histogram
            continue
        plain = (CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily)(
            name, help_text, labels=labels
        )
        for values, number in family.samples.items():
            assert not isinstance(number, HistogramSample)  # noqa: S101 - only a histogram has one
            plain.add_metric(values, number)
        yield plain


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    buckets, sum_so_far = [], 0
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        sum_so_far += count
        buckets.append((bound, float(sum_so_far)))
    return buckets
