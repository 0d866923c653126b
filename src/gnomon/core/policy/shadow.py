"""A shadow: a policy file that is judged beside the policy in force, and decides nothing."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.policy.past_tasks import PastDecision
from gnomon.core.policy.version import body_digest

#: How many different differences are kept; rulings that differ in other ways are only counted.
MOST_DIFFERENCES = 1_000


class PolicyShadow(Struct, frozen=True, kw_only=True):
    """A file that is, or was, judged beside the policy in force, and the number of its rulings."""

    #: Counts the shadows, from 1.
    number: int
    digest: str
    body: str
    author: str
    started_at: int
    #: None while it runs.
    ended_at: int | None = None
    #: Rulings with the same effect as that of the policy in force, and with another one.
    same: int = 0
    different: int = 0
    #: Tasks about which it was not asked, because a process had too many to judge, or stopped.
    not_judged: int = 0
    #: Different rulings that are in no difference, because too many are kept.
    left_out: int = 0


class DifferenceKey(NamedTuple):
    """The rulings that are one difference: of one job, in the same way, and by the same rules."""

    tenant: str
    job: str
    before: str
    before_rule: str
    after: str
    after_rule: str


class ShadowDifference(Struct, frozen=True, kw_only=True):
    """Rulings about tasks of one job that differ in the same way."""

    tenant: str
    job: str
    #: The decision in force and its rule, which is empty without a policy; and the decision of the shadow.
    before: str
    before_rule: str
    after: str
    after_rule: str
    count: int
    first_at: int
    last_at: int
    #: The last of them.
    run_id: str
    step: str

    @property
    def key(self) -> DifferenceKey:
        """Names it among the differences of a shadow."""
        return DifferenceKey(self.tenant, self.job, self.before, self.before_rule, self.after, self.after_rule)


class ShadowCounts(Struct, kw_only=True):
    """The rulings of a shadow that are not stored yet."""

    same: int = 0
    different: int = 0
    not_judged: int = 0
    left_out: int = 0
    differences: dict[DifferenceKey, ShadowDifference] = {}

    def __bool__(self) -> bool:
        return bool(self.same or self.different or self.not_judged)

    def skip(self) -> None:
        """Count a task that is not judged."""
        self.not_judged += 1

    def count(self, before: PastDecision, after: PastDecision, one: ShadowDifference) -> None:
        """Count a ruling; `one` describes it if it differs."""
        if before.same_effect(after):
            self.same += 1
            return
        self.different += 1
        known = self.differences.get(one.key)
        if known is None and len(self.differences) >= MOST_DIFFERENCES:
            self.left_out += 1
        else:
            self.differences[one.key] = one if known is None else _merged(known, one)


def new_shadow(last: PolicyShadow | None, body: str, *, author: str, now: int) -> PolicyShadow:
    """The shadow that a file becomes; the last one if it runs and has the same content."""
    digest = body_digest(body)
    if last is not None and last.ended_at is None and last.digest == digest:
        return last
    number = 1 if last is None else last.number + 1
    return PolicyShadow(number=number, digest=digest, body=body, author=author, started_at=now)


def counted_shadow(shadow: PolicyShadow, counts: ShadowCounts, *, left_out: int) -> PolicyShadow:
    """The shadow with more rulings, of which so many are in no difference."""
    return replace(
        shadow,
        same=shadow.same + counts.same,
        different=shadow.different + counts.different,
        not_judged=shadow.not_judged + counts.not_judged,
        left_out=shadow.left_out + left_out,
    )


def merged_differences(
    known: Mapping[DifferenceKey, ShadowDifference], counts: ShadowCounts, *, free: int
) -> tuple[list[ShadowDifference], list[ShadowDifference], int]:
    """The differences that change, at most `free` that are new, and the number of rulings that are left out."""
    changed: list[ShadowDifference] = []
    new: list[ShadowDifference] = []
    left_out = counts.left_out
    for key, one in counts.differences.items():
        if key in known:
            changed.append(_merged(known[key], one))
        elif len(new) < free:
            new.append(one)
        else:
            left_out += one.count
    return changed, new, left_out


def differences_by_size(differences: Iterable[ShadowDifference]) -> list[ShadowDifference]:
    """The differences: the most frequent ones first."""
    return sorted(differences, key=lambda one: (-one.count, one.key))


def _merged(known: ShadowDifference, one: ShadowDifference) -> ShadowDifference:
    return replace(
        one,
        count=known.count + one.count,
        first_at=min(known.first_at, one.first_at),
        last_at=max(known.last_at, one.last_at),
    )
