"""The total of a replay of the history, which the API answers part by part."""

from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gnomon.core.responses.policy_replay import PolicyReplayed, ReplayChange, ReplayedRule, ReplayUnknown

K = TypeVar("K", bound=Hashable)
#: How many different changes are kept: a total needs a bounded amount of memory, however long the history is.
MOST_CHANGES = 10_000


class ReplayTotal:
    """Adds the parts of a replay."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._changes: dict[bytes, ReplayChange] = {}
        self._rules: Counter[str] = Counter()
        self._unknown: Counter[tuple[str, str, str]] = Counter()

    def add(self, part: PolicyReplayed) -> None:
        """Add the counts of one part."""
        for name in _COUNTS:
            self._counts[name] += getattr(part, name)
        for rule in part.rules:
            self._rules[rule.rule] += rule.tasks
        for one in part.unknown:
            self._unknown[one.tenant, one.job, one.fact] += one.tasks
        for change in part.changes:
            self._add_change(change)

    def _add_change(self, change: ReplayChange) -> None:
        key = msgspec.json.encode((change.tenant, change.job, change.before, change.after), order="deterministic")
        known = self._changes.get(key)
        if known is not None:
            self._changes[key] = replace(known, tasks=known.tasks + change.tasks)
        elif len(self._changes) < MOST_CHANGES:
            self._changes[key] = change
        else:
            self._counts["left_out"] += change.tasks

    def result(self) -> PolicyReplayed:
        """The total; what concerns most tasks comes first."""
        counts: dict[str, int] = {name: self._counts[name] for name in _COUNTS}
        return PolicyReplayed(
            **counts,
            changes=sorted(self._changes.values(), key=lambda one: (-one.tasks, one.tenant, one.job)),
            rules=[ReplayedRule(rule=rule, tasks=tasks) for rule, tasks in _sorted(self._rules)],
            unknown=[
                ReplayUnknown(tenant=tenant, job=job, fact=fact, tasks=tasks)
                for (tenant, job, fact), tasks in _sorted(self._unknown)
            ],
            after=None,
        )


_COUNTS = ("tasks", "unchanged", "changed", "not_known", "not_asked", "left_out")


def _sorted(counts: Counter[K]) -> list[tuple[K, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], str(one[0])))
