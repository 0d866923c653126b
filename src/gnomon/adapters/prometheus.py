"""Numbers as Prometheus reads them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gnomon.core.metrics import HistogramSample, MetricFamily, MetricKind

if TYPE_CHECKING:
    from prometheus_client import Metric


def render_metrics(families: Sequence[MetricFamily], prefix: str) -> tuple[str, bytes]:
    """The text that shows the families, each under its name behind the prefix, and what kind of text it is."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector

    class Given(Collector):
        """Gives away what we were given."""

        def collect(self) -> Iterable["Metric"]:
            return _metrics(families, prefix)

    registry = CollectorRegistry()
    registry.register(Given())
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def _metrics(families: Sequence[MetricFamily], prefix: str) -> Iterator["Metric"]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for family in families:
        metric = family.metric
        name, says, labels = prefix + metric.name, metric.help, metric.labels
        if metric.kind is MetricKind.HISTOGRAM:
            histogram = HistogramMetricFamily(name, says, labels=labels)
            for values, sample in family.samples.items():
                assert isinstance(sample, HistogramSample)  # noqa: S101 - a histogram has nothing else
                histogram.add_metric(values, _cumulative(metric.buckets, sample.counts), sample.sum)
            yield histogram
            continue
        plain = (CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily)(
            name, says, labels=labels
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
