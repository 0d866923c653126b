"""Judging a history: was every tick decided exactly once, rightly, in time, and by whoever was entitled to it.

The checker takes planned times from an oracle that walks the clock minute by minute, and expected decisions from the
naive rules below, which walk every tick one by one. It shares no decision code with the product.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from gnomon.core.model import Catchup, Overlap, Reason, Run, RunStatus, Spec, TickKind
from gnomon.testing.history import Commit, History, Life
from gnomon.testing.oracle import planned

#: Planned times, in milliseconds, after the first and up to the second.
Oracle = Callable[[Spec, int, int], Sequence[int]]

#: A quiet tick is decided within this.
IN_TIME_MS = 2_500


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, where, and how."""

    rule: str
    schedule: str
    text: str


def check(history: History, oracle: Oracle = planned) -> list[Violation]:
    """Every violation of the rules K1, K2, K3, K5, K9 and K16."""
    found: list[Violation] = []
    commits: dict[str, list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.uid].append(commit)
    for uid, life in history.lives.items():
        judge = _Judge(history, life, commits[uid], oracle)
        found += judge.violations()
    return found + list(_terms(history))


def _terms(history: History) -> Iterator[Violation]:
    """K16: along the commits of a shard terms never fall, and a term has one holder."""
    last: dict[int, int] = {}
    holders: dict[tuple[int, int], str] = {}
    for commit in history.commits:
        if commit.term is None or commit.holder is None:
            continue
        shard = commit.schedule.shard
        if commit.term < last.get(shard, 0):
            yield Violation("K16", commit.schedule.schedule_id, f"term {commit.term} after {last[shard]}")
        last[shard] = max(commit.term, last.get(shard, 0))
        if holders.setdefault((shard, commit.term), commit.holder) != commit.holder:
            yield Violation("K16", commit.schedule.schedule_id, f"two holders of term {commit.term}")


class _Judge:
    """One schedule's life."""

    def __init__(self, history: History, life: Life, commits: list[Commit], oracle: Oracle) -> None:
        self._history = history
        self._life = life
        self._commits = commits
        self._oracle = oracle
        self._name = life.revisions[0].schedule.schedule_id

    def violations(self) -> Iterator[Violation]:
        yield from self._decided_once()
        yield from self._ledger_is_what_was_committed()
        yield from self._decided_rightly()
        yield from self._one_run_each()
        yield from self._in_time()
        yield from self._nothing_in_a_pause()

    def _violation(self, rule: str, text: str) -> Violation:
        return Violation(rule, self._name, text)

    def _end(self) -> int:
        """Up to where ticks must have been decided."""
        ended = [d.last_at for c in self._commits for d in c.decisions]
        if self._life.final is None:
            return max([*ended, self._life.deleted_at or 0])
        if self._life.final.paused_at is not None:
            return self._life.final.mark_at
        return max([self._life.final.mark_at, self._history.ended_at - self._life.final.spec.jitter_ms - IN_TIME_MS])

    def _segments(self) -> Iterator[tuple[Spec, int, int]]:
        """What the schedule said, and from which mark to which."""
        marks = [r.schedule.mark_at for r in self._life.revisions]
        for revision, start, end in zip(
            self._life.revisions, marks, [*marks[1:], max(self._end(), marks[-1])], strict=True
        ):
            yield revision.schedule.spec, start, end

    def _decided_once(self) -> Iterator[Violation]:
        """K1, K9: every planned time up to the mark is covered once, and nothing else is."""
        planned = sorted(at for spec, start, end in self._segments() for at in self._oracle(spec, start, end))
        decisions = sorted((d for c in self._commits for d in c.decisions), key=lambda d: d.planned_at)
        covered: dict[int, int] = dict.fromkeys(planned, 0)
        for decision in decisions:
            inside = planned[bisect_left(planned, decision.planned_at) : bisect_right(planned, decision.last_at)]
            if len(inside) != decision.count or decision.planned_at not in covered:
                text = f"{decision} covers {len(inside)} planned times"
                yield self._violation("K9" if decision.planned_at not in covered else "K1", text)
            for at in inside:
                covered[at] += 1
        for at, times in covered.items():
            if times != 1:
                yield self._violation("K1", f"tick {at} has {times} decisions")

    def _ledger_is_what_was_committed(self) -> Iterator[Violation]:
        """K1: what stands in the ledger at the end is what was decided."""
        committed = {d.planned_at: d for c in self._commits for d in c.decisions}
        if committed != self._life.ledger:
            differing = sorted(set(committed.items()) ^ set(self._life.ledger.items()))[:3]
            yield self._violation("K1", f"ledger and commits differ: {differing}")

    def _decided_rightly(self) -> Iterator[Violation]:
        """K2: each decision is the one its policy allows."""
        under_way: set[int] = set()
        for commit in self._commits:
            if commit.schedule.paused_at is None:
                expected = _expected(self._oracle, commit)
                actual = [(d.planned_at, d.last_at, d.kind) for d in commit.decisions]
                if [e[:2] for e in expected] != [a[:2] for a in actual] or any(
                    a[2] not in e[2] for e, a in zip(expected, actual, strict=True)
                ):
                    yield self._violation("K2", f"at {commit.at}: expected {expected}, got {actual}")
            yield from self._overlap_has_evidence(commit, under_way)

    def _overlap_has_evidence(self, commit: Commit, under_way: set[int]) -> Iterator[Violation]:
        """K2: what was skipped or queued was so because of a run under way; what fired had none, unless allowed."""
        under_way -= {run.planned_at for run in self._life.runs if self._ended_before(run, commit)}
        for decision in commit.decisions:
            blocked = decision.reason in (Reason.OVERLAP, Reason.QUEUE_FULL, Reason.BEHIND_A_RUN, Reason.REPLACES_A_RUN)
            if blocked and not under_way:
                yield self._violation("K2", f"tick {decision.planned_at} {decision.reason} without a run under way")
            if decision.kind is TickKind.FIRED and commit.schedule.spec.overlap is not Overlap.ALLOW and under_way:
                yield self._violation("K2", f"tick {decision.planned_at} fired beside {under_way}")
            if decision.reason is Reason.REPLACES_A_RUN:
                under_way -= {run.planned_at for run in self._life.runs if run.status is RunStatus.CANCELLED}
            if decision.starts_a_run:
                under_way.add(decision.planned_at)

    def _ended_before(self, run: Run, commit: Commit) -> bool:
        return self._history.ended.get(run.run_id, commit.number + 1) <= commit.number

    def _one_run_each(self) -> Iterator[Violation]:
        """K3: a tick that fired or was queued has one run, and no other tick has any."""
        with_run = sorted(d.planned_at for c in self._commits for d in c.decisions if d.starts_a_run)
        runs = sorted(run.planned_at for run in self._life.runs)
        if with_run != runs:
            yield self._violation("K3", f"{len(with_run)} ticks with a run, {len(runs)} runs")

    def _in_time(self) -> Iterator[Violation]:
        """K5: nothing fires early, and what is due while nothing is broken is decided at once."""
        for commit in self._commits:
            for decision in commit.decisions:
                fire_at = _fire_at(self._oracle, commit.schedule.spec, self._name, decision.last_at)
                by_change = commit.term is None and decision.last_at <= commit.at
                if fire_at > commit.at and not by_change:
                    yield self._violation("K5", f"tick {decision.planned_at} decided {fire_at - commit.at} ms early")
                # A schedule that was changed or resumed a moment ago could not be decided before.
                late = commit.at - max(fire_at, commit.schedule.updated_at)
                quiet = self._history.quiet(fire_at - 60_000, commit.at)
                if decision.kind is TickKind.FIRED and quiet and late > IN_TIME_MS:
                    yield self._violation("K5", f"quiet tick {decision.planned_at} {late} ms late")

    def _nothing_in_a_pause(self) -> Iterator[Violation]:
        """K9: while a schedule is paused its ticks are skipped for that reason, and for no other."""
        for commit in self._commits:
            for decision in commit.decisions:
                paused = commit.schedule.paused_at is not None
                if paused != (decision.reason is Reason.PAUSED):
                    yield self._violation("K9", f"tick {decision.planned_at} {decision.kind}, paused: {paused}")


# ---- the naive rules -----------------------------------------------------------------------------

_RUNS = frozenset({TickKind.FIRED, TickKind.QUEUED, TickKind.SKIPPED})
Expected = tuple[int, int, frozenset[TickKind]]


def _expected(oracle: Oracle, commit: Commit) -> list[Expected]:
    """What may be decided at a commit: first, last and the kinds allowed, oldest first."""
    spec, name, now = commit.schedule.spec, commit.schedule.schedule_id, commit.at
    ahead = oracle(spec, commit.schedule.mark_at, now + spec.jitter_ms)
    late = {at: now - _fire_at(oracle, spec, name, at) for at in ahead}
    ticks = [at for at, by in late.items() if by >= 0]
    # A change decides every tick planned before it, also one that its jitter puts off a little.
    put_off = [at for at, by in late.items() if by < 0 and at <= now and commit.term is None]
    return _by_policy(spec, ticks, late) + _each(put_off)


def _by_policy(spec: Spec, ticks: Sequence[int], late: Mapping[int, int]) -> list[Expected]:
    match spec.catchup:
        case Catchup.NONE:
            missed = [at for at in ticks if late[at] > spec.misfire_grace_ms]
            rest = ticks[len(missed) :]
            return _as_range(missed, TickKind.MISSED) + _as_range(rest[:-1], TickKind.COALESCED) + _each(rest[-1:])
        case Catchup.LATEST:
            return _as_range(ticks[:-1], TickKind.COALESCED) + _each(ticks[-1:])
        case Catchup.ALL | Catchup.SPREAD:
            gone = [at for at in ticks if late[at] > spec.catchup_window_ms]
            return _as_range(gone, TickKind.MISSED) + _each(ticks[len(gone) :][: spec.catchup_cap])


def _as_range(ticks: Sequence[int], kind: TickKind) -> list[Expected]:
    return [(ticks[0], ticks[-1], frozenset({kind}))] if ticks else []


def _each(ticks: Sequence[int]) -> list[Expected]:
    return [(at, at, _RUNS) for at in ticks]


def _fire_at(oracle: Oracle, spec: Spec, name: str, planned: int) -> int:
    """The planned time moved by its jitter, worked out from the promise: a share fixed by the key, half-way at most."""
    if not spec.jitter_ms:
        return planned
    second, rest = divmod(planned, 1000)
    epoch = f"{second}.{rest:03}".rstrip("0") if rest else f"{second}"
    digest = sha256(f"{name}:{epoch}".encode()).digest()
    share = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    offset = round((2 * share - 1) * spec.jitter_ms)
    reach = 3 * spec.jitter_ms
    if offset < 0:
        before = oracle(spec, planned - reach, planned - 1)
        return planned - min(-offset, (planned - before[-1]) // 2) if before else planned + offset
    after = oracle(spec, planned, planned + reach)
    return planned + min(offset, (after[0] - planned) // 2) if after else planned + offset
