"""Evaluates the part of PromQL that the alert rules use, over scraped series.

It reads an expression whole or refuses it, so that a rule with a mistake in it fails, as it would in Prometheus. `rate`
and `increase` do not extrapolate to the ends of their window: they are at most what Prometheus computes. A counter that
goes back counts as restarted.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isnan
from typing import Any

from prometheus_client import Metric

#: The labels of a series, sorted, with its name as `__name__`; and of a value that was computed, without the name.
Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, float]
Matcher = Callable[[Mapping[str, str]], bool]
#: A series that was not scraped for so long is gone.
STALE_SECONDS = 300.0
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![a-zA-Z])|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<text>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<range>\[[^\]]*\])|(?P<sign>=~|!~|!=|==|>=|<=|[(){},=<>+*/-]))"
)
_DURATION = re.compile(r"(\d+)(ms|[smhdw])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}
_AGGREGATES: Mapping[str, Callable[[Iterable[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda found: float(len(list(found))),
}
_SETS = ("and", "or", "unless")


def seconds_of(duration: str) -> float:
    """A duration such as 1h30m in seconds."""
    parts = _DURATION.findall(duration)
    assert parts, duration
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


class Scrapes:
    """The samples that a Prometheus server has stored."""

    def __init__(self) -> None:
        self._series: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)

    def add(self, families: Iterable[Metric], *, at: float, instance: str = "one") -> None:
        """Store one scrape of an instance. Series that the last scrape had and this one lacks are gone."""
        scraped: Vector = {}
        for family in families:
            for sample in family.samples:
                named = {**sample.labels, "__name__": sample.name, "instance": instance}
                scraped[tuple(sorted(named.items()))] = sample.value
        for labels, points in self._series.items():
            if ("instance", instance) in labels and labels not in scraped:
                points.append((at, float("nan")))
        for labels, value in scraped.items():
            self._series[labels].append((at, value))

    def now(self, matches: Matcher, at: float) -> Vector:
        """The last value of each series."""
        found = {}
        for labels, points in self._selected(matches, at - STALE_SECONDS, at):
            if not isnan(points[-1][1]):
                found[labels] = points[-1][1]
        return found

    def within(self, matches: Matcher, seconds: float, at: float) -> dict[Labels, list[float]]:
        """The values of each series within the window."""
        return {
            labels: [value for _, value in points if not isnan(value)]
            for labels, points in self._selected(matches, at - seconds, at)
        }

    def _selected(
        self, matches: Matcher, begin: float, end: float
    ) -> Iterable[tuple[Labels, list[tuple[float, float]]]]:
        for labels, points in self._series.items():
            some = [point for point in points if begin < point[0] <= end]
            if some and matches(dict(labels)):
                yield labels, some


def evaluate(expression: str, scrapes: Scrapes, *, at: float) -> Vector:
    """The value of the expression at that time; AssertionError if it cannot be read."""
    reader = _Reader(expression, scrapes, at)
    found = reader.sets()
    assert reader.done, f"cannot read the rest of {expression!r}"
    assert isinstance(found, dict), f"{expression!r} is a number"
    return found


def fires(rule: Mapping[str, Any], scrapes: Scrapes, *, at: float) -> bool:
    """Whether an alert fires at that time, if its expression holds from the beginning of its `for` on."""
    lasting = seconds_of(rule.get("for", "0s"))
    return all(evaluate(rule["expr"], scrapes, at=moment) for moment in (at - lasting, at))


class _Reader:
    """Reads an expression from left to right, and computes its value on the way."""

    def __init__(self, expression: str, scrapes: Scrapes, at: float) -> None:
        self._tokens: list[str] = []
        self._scrapes, self._at = scrapes, at
        position, expression = 0, expression.rstrip()
        while position < len(expression):
            token = _TOKEN.match(expression, position)
            assert token is not None, f"cannot read {expression[position:]!r}"
            self._tokens.append(token.group().strip())
            position = token.end()

    @property
    def done(self) -> bool:
        return not self._tokens

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, expected: str = "") -> str:
        assert self._tokens, f"{expected or 'more'} is missing"
        token = self._tokens.pop(0)
        assert not expected or token == expected, f"{token} is not {expected}"
        return token

    # ---- operators, from the weakest on ------------------------------------------------------

    def sets(self) -> Vector | float:
        left = self.compared()
        while self._next() in _SETS:
            word = self._take()
            on = self._labels() if self._next() == "on" and self._take() else None
            right = self.compared()
            assert isinstance(left, dict) and isinstance(right, dict), f"{word} of a number"  # noqa: PT018
            keys = {_reduced(labels, on) for labels in right}
            if word == "or":
                left = left | {labels: value for labels, value in right.items() if _reduced(labels, on) not in left}
            else:
                kept = word == "and"
                left = {labels: value for labels, value in left.items() if (_reduced(labels, on) in keys) is kept}
        return left

    def compared(self) -> Vector | float:
        left = self.operand()
        while self._next() in _COMPARE:
            holds, right = _COMPARE[self._take()], self.operand()
            assert isinstance(left, dict), "a comparison of a number"
            assert isinstance(right, float), "a comparison with a vector"
            left = {labels: value for labels, value in left.items() if holds(value, right)}
        return left

    def operand(self) -> Vector | float:
        word = self._take()
        if word == "(":
            found = self.sets()
            self._take(")")
            return found
        if word[0].isdigit():
            return float(word)
        if word in _AGGREGATES:
            return self._aggregated(_AGGREGATES[word])
        if self._next() == "(":
            return self._called(word)
        return self._scrapes.now(self._matcher(word), self._at)

    def _aggregated(self, aggregate: Callable[[Iterable[float]], float]) -> Vector:
        by = self._labels() if self._next() == "by" and self._take() else ()
        self._take("(")
        inner = self.sets()
        self._take(")")
        assert isinstance(inner, dict), "an aggregate of a number"
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, value in inner.items():
            groups[_reduced(labels, by)].append(value)
        return {labels: aggregate(values) for labels, values in groups.items()}

    def _labels(self) -> tuple[str, ...]:
        self._take("(")
        found = []
        while self._next() != ")":
            found.append(self._take())
            if self._next() == ",":
                self._take()
        self._take(")")
        return tuple(found)

    # ---- functions ---------------------------------------------------------------------------

    def _called(self, function: str) -> Vector:
        self._take("(")
        if function in ("increase", "rate"):
            found = self._grown(per_second=function == "rate")
        elif function == "absent":
            inner = self.sets()
            found = {} if inner else {(): 1.0}
        else:
            assert function == "histogram_quantile", f"there is no function {function}"
            share = self.operand()
            self._take(",")
            buckets = self.sets()
            assert isinstance(share, float) and isinstance(buckets, dict), "a quantile of a number"  # noqa: PT018
            found = _quantiles(share, buckets)
        self._take(")")
        return found

    def _grown(self, *, per_second: bool) -> Vector:
        matches = self._matcher(self._take())
        window = self._take()
        assert window.startswith("["), f"{window} is no window"
        seconds = seconds_of(window[1:-1])
        series = self._scrapes.within(matches, seconds, self._at)
        return {
            _unnamed(labels): _increase(values) / (seconds if per_second else 1)
            for labels, values in series.items()
            if len(values) > 1
        }

    def _matcher(self, name: str) -> Matcher:
        wanted: list[tuple[str, str, str]] = []
        if self._next() == "{":
            self._take()
            while self._next() != "}":
                label, sign, text = self._take(), self._take(), self._take()[1:-1]
                wanted.append((label, sign, text))
                if self._next() == ",":
                    self._take()
            self._take("}")

        def matches(labels: Mapping[str, str]) -> bool:
            return labels["__name__"] == name and all(_holds(labels.get(a, ""), sign, b) for a, sign, b in wanted)

        return matches


def _holds(value: str, sign: str, text: str) -> bool:
    assert sign in ("=", "!=", "=~", "!~"), f"{sign} does not match labels"
    equal = re.fullmatch(text, value) is not None if sign.endswith("~") else value == text
    return equal is not sign.startswith("!")


def _increase(values: Sequence[float]) -> float:
    return sum(after - (before if after >= before else 0) for before, after in pairwise(values))


def _unnamed(labels: Labels) -> Labels:
    return tuple((name, value) for name, value in labels if name != "__name__")


def _reduced(labels: Labels, to: Sequence[str] | None) -> Labels:
    """The labels that two series must have in common: all but the name, or these."""
    return tuple((name, value) for name, value in _unnamed(labels) if to is None or name in to)


def _quantiles(share: float, buckets: Vector) -> Vector:
    groups: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        rest = tuple((name, value) for name, value in labels if name != "le")
        groups[rest].append((float(dict(labels)["le"]), count))
    return {labels: _quantile(share, sorted(bounds)) for labels, bounds in groups.items() if max(bounds)[1] > 0}


def _quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    rank, below, before = share * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (rank - before) / (count - before)
        below, before = bound, count
    raise AssertionError("the last bucket has all values")
