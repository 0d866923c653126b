"""Check what the policy of a simulation has let run: rulings, votes, budgets and breakers.

R-02: nothing starts without a permission of a version in force, and what is denied was forbidden. R-03: nothing that
was asked for starts without its votes, and no vote counts that may not. R-04: no more tasks start than their budget
allows. R-12: nothing is admitted while its breaker forbids it. The rules of each version are read from its table; the
breakers are followed from the outcomes of attempts, by a table of their own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.core.approvals.model import Approval, ApprovalStatus, VoteKind
from gnomon.core.breakers import BreakerLimits
from gnomon.core.model import Result, Run, TaskId
from gnomon.core.policy.ruling import PERMISSIONS, PolicyDecision
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.ports.tasks import AttemptRef
from gnomon.testing.evidence import Finding, HistoryIndex, TaskHistory
from gnomon.testing.history import OPERATOR, GrantRecord, ReportRecord, Violation
from gnomon.testing.policy_history import (
    AdmissionRecord,
    ExpiryRecord,
    JobBudget,
    JobRule,
    Person,
    PolicyHistory,
    PolicyRecord,
    VoteRecord,
)

#: For so long a process without faults may go on with a version after it has read the next one: its gate may hang.
_RULING_MS = 60_000
#: Within this time tasks that wait for votes are asked about again after a change, when there are no faults.
_REOPENED_MS = 120_000
#: Within this time an approval that has expired is ended.
_EXPIRED_MS = 200_000
_ADMIN = "admin"
#: The beginning of the rule of an approval for which a budget asks.
_BUDGET = "budget "
_FAILURES = (Result.FAILED, Result.TIMED_OUT)
#: The state of a task that may run once a worker takes it.
_ADMITTED = TaskState.SCHEDULED


def check_policy(evidence: HistoryIndex) -> Iterator[Violation]:
    """All violations of R-02, R-03, R-04 and R-12; none in a history without a policy."""
    policy = evidence.history.policy
    if policy is None:
        return
    checker = _PolicyChecker(evidence, policy)
    for case in evidence.cases.values():
        for rule, text in checker.check_task(case):
            yield Violation(rule, case.name, f"{case.task.task_id}: {text}")
    yield from _votes_count_rightly(evidence, policy)
    yield from _votes_stay(policy)
    yield from _within_budgets(evidence, policy)
    yield from _breakers_hold(evidence, policy)


class _PolicyChecker:
    """Checks one task after the other."""

    def __init__(self, evidence: HistoryIndex, policy: PolicyHistory) -> None:
        self._history = evidence.history
        self._policy = policy
        self._admissions: dict[AttemptRef, list[AdmissionRecord]] = defaultdict(list)
        for one in policy.admissions:
            self._admissions[one.attempt].append(one)
        self._votes: dict[TaskId, list[VoteRecord]] = defaultdict(list)
        for vote in policy.votes:
            if vote.approval.request is not None:
                self._votes[vote.approval.request.task_id].append(vote)
        self._approvals: dict[TaskId, list[Approval]] = defaultdict(list)
        for approval in policy.approvals.values():
            if approval.request is not None:
                self._approvals[approval.request.task_id].append(approval)
        self._expired = {one.task_id: one for one in reversed(policy.expiries)}
        self._processes = sorted({one.by for one in policy.admissions})

    def check_task(self, case: TaskHistory) -> Iterator[Finding]:
        """R-02, R-03: everything about one task."""
        for grant in case.grants:
            yield from self._granted(case, grant)
        yield from self._kept(case)
        yield from self._denied(case)
        yield from self._nothing_after_refusal(case)
        yield from self._waits_rightly(case)

    def _granted(self, case: TaskHistory, grant: GrantRecord) -> Iterator[Finding]:
        """R-02, R-03: an attempt follows from a permission, which the version in force gives."""
        before = [one for one in self._admissions[grant.held] if one.moment < grant.moment]
        last = before[-1] if before else None
        if last is None or last.state is not _ADMITTED or last.ruling is None or not last.ruling.allows:
            yield "R-02", f"attempt {grant.held[1]} began after {last}"
            return
        yield from self._in_force(last)
        if last.ruling.beyond_budget:
            yield from self._let_exceed(case, last)
        rule = self._rule_of(case.run, last.ruling.version)
        match last.ruling.ruled_by:
            case "policy":
                if rule is None or rule.decision not in PERMISSIONS:
                    yield "R-02", f"{last.ruling} lets run what {rule} says"
            case "approval":
                yield from self._approved(case, last, rule)
            case "override":
                overrides = [
                    one
                    for one in self._votes_before(case, last)
                    if one.kind is VoteKind.OVERRIDE and _budget_of(one.approval) is None
                ]
                if rule is None or not rule.asks or not overrides:
                    yield "R-03", f"{last.ruling} without an override, by {rule}"
            case other:
                yield "R-02", f"nobody knows {other}, the author of {last.ruling}"

    def _rule_of(self, run: Run, version: int) -> JobRule | None:
        found = self._policy.versions.get(version)
        return None if found is None else found.table.rules.get(run.schedule_id or run.workflow_id)

    def _in_force(self, one: AdmissionRecord) -> Iterator[Finding]:
        """R-02: a permission comes from the newest version, or from one that was replaced a moment ago."""
        version = 0 if one.ruling is None else one.ruling.version
        made, next_one = self._policy.versions.get(version), self._policy.versions.get(version + 1)
        if made is None or made.moment > one.moment:
            yield "R-02", f"{one.ruling} is of a version that was not in force yet"
        if next_one is None:
            return
        late = one.elapsed_ms - next_one.elapsed_ms
        allowed = self._policy.refresh_ms + _RULING_MS
        if late > allowed and self._history.ran_undisturbed(one.by, next_one.elapsed_ms, one.elapsed_ms):
            yield "R-02", f"{one.ruling} is of a version that was replaced {late} ms before"

    def _let_exceed(self, case: TaskHistory, admission: AdmissionRecord) -> Iterator[Finding]:
        """R-03, R-04: people have let the task exceed a budget that asks for that."""
        votes = [vote for vote in self._votes_before(case, admission) if _budget_of(vote.approval) is not None]
        names = {_budget_of(vote.approval) for vote in votes}
        wanted = [one for one in self._budgets_of(case.run, _version_of(admission)) if one.over.asks]
        enough = [
            one.name
            for one in wanted
            if one.name in names and _enough(self._policy, case.run, one.over, votes, budget=one.name)
        ]
        if not enough:
            yield "R-04", f"attempt {admission.attempt[1]} exceeds a budget with the votes {votes}"

    def _approved(self, case: TaskHistory, admission: AdmissionRecord, rule: JobRule | None) -> Iterator[Finding]:
        """R-03: enough persons who may vote have approved exactly this, under a rule of the same content, in time."""
        if rule is None or not rule.asks or admission.ruling is None:
            yield "R-03", f"{admission.ruling} approves what {rule} says"
            return
        persons = {
            vote.voter
            for vote in self._votes_before(case, admission)
            if vote.kind is VoteKind.APPROVE
            and vote.approval.request is not None
            and _budget_of(vote.approval) is None
            and vote.approval.request.request_digest == admission.ruling.digest
            and self._rule_of(case.run, vote.approval.request.version) == rule
            and vote.at < vote.approval.request.asked_at + rule.expires_ms
            and _may_vote(self._policy, case.run, rule, vote.voter)
        }
        if len(persons) < rule.quorum:
            yield "R-03", f"attempt {admission.attempt[1]} began with the votes of {sorted(persons)}, by {rule}"

    def _votes_before(self, case: TaskHistory, one: AdmissionRecord) -> list[VoteRecord]:
        return [vote for vote in self._votes[case.task.task_id] if vote.moment < one.moment]

    def _kept(self, case: TaskHistory) -> Iterator[Finding]:
        """R-02: the permission of the newest attempt is written down, and a refused task has a refusal."""
        stored = self._history.rulings.get(case.task.task_id, ())
        if not case.grants:
            return
        admissions = self._admissions[case.grants[-1].held]
        if not admissions or admissions[-1].ruling is None:
            return
        wanted = admissions[-1].ruling
        made = (wanted.version, wanted.rule, wanted.ruled_by, wanted.digest)
        if not any(
            one.decision in PERMISSIONS and (one.version, one.rule, one.ruled_by, one.digest) == made for one in stored
        ):
            yield "R-02", f"{wanted} is not written down: {stored}"

    def _denied(self, case: TaskHistory) -> Iterator[Finding]:
        """R-02: the policy denies only what its version forbids, or what a budget or people refuse."""
        for admissions in (self._admissions[case.task.task_id, number + 1] for number in range(case.task.fence + 1)):
            for one in admissions:
                ruling = one.ruling
                if one.state is not TaskState.DENIED or ruling is None:
                    continue
                rule = self._rule_of(case.run, ruling.version)
                if ruling.ruled_by == "policy" and rule is not None and rule.decision is not PolicyDecision.DENY:
                    yield "R-02", f"{ruling} denies what {rule} says"
                if ruling.ruled_by == "budgets" and not any(
                    budget.over.decision is PolicyDecision.DENY and budget.name == ruling.rule
                    for budget in self._budgets_of(case.run, ruling.version)
                ):
                    yield "R-04", f"{ruling} denies what only had to wait"

    def _budgets_of(self, run: Run, version: int) -> Sequence[JobBudget]:
        found, job = self._policy.versions.get(version), run.schedule_id or run.workflow_id
        return [] if found is None else [one for one in found.table.budgets if job in one.jobs]

    def _nothing_after_refusal(self, case: TaskHistory) -> Iterator[Finding]:
        """R-03: a rejection or an expiry ends the task, and only one whose approval was still asked for."""
        rejections = [vote for vote in self._votes[case.task.task_id] if vote.kind is VoteKind.REJECT]
        expiry = self._expired.get(case.task.task_id)
        begun = [*(one.moment for one in case.grants), *(one.moment for one in case.starts)]
        refusals: list[VoteRecord | ExpiryRecord] = [*rejections, *([] if expiry is None else [expiry])]
        for refusal in refusals:
            if any(moment > refusal.moment for moment in begun):
                yield "R-03", f"an attempt began after {refusal}"
            if case.task.state is not TaskState.DENIED:
                yield "R-03", f"is {case.task.state} in spite of {refusal}"
            yield from self._was_asked_for(refusal)

    def _was_asked_for(self, refusal: VoteRecord | ExpiryRecord) -> Iterator[Finding]:
        """R-03: people refuse only what the version in force asks about, or one that was replaced a moment ago."""
        newest = max((one for one in self._policy.versions.values() if one.moment < refusal.moment), key=_moment_of)
        found = refusal.approval if isinstance(refusal, VoteRecord) else self._policy.approvals.get(refusal.approval_id)
        rule = None if found is None else _asked_rule(self._policy, found, newest.version)
        late = refusal.elapsed_ms - newest.elapsed_ms
        undisturbed = any(
            self._history.ran_undisturbed(name, newest.elapsed_ms, refusal.elapsed_ms) for name in self._processes
        )
        if (rule is None or not rule.asks) and late > self._policy.refresh_ms + _RULING_MS and undisturbed:
            yield "R-03", f"{refusal} is about what version {newest.version} does not ask since {late} ms"

    def _waits_rightly(self, case: TaskHistory) -> Iterator[Finding]:
        """R-03: a task that waits for votes has one open approval, whose time is not over; no other has one."""
        open_ones = [one for one in self._approvals[case.task.task_id] if one.status is ApprovalStatus.WAITING]
        if case.task.state in TERMINAL and open_ones:
            yield "R-03", f"is {case.task.state}, and still asks for {open_ones}"
        if case.task.state is not TaskState.APPROVAL_REQUIRED:
            return
        asked = [one.request for one in open_ones if one.request is not None]
        if len(asked) != 1 or asked[0].expires_at + _EXPIRED_MS < self._history.ended_at:
            yield "R-03", f"waits for votes, with the open approvals {open_ones}"
        newest = max(self._policy.versions.values(), key=_moment_of)
        late = self._history.ended_elapsed_ms - newest.elapsed_ms
        for one in open_ones:
            version = 0 if one.request is None else one.request.version
            was, now = _asked_rule(self._policy, one, version), _asked_rule(self._policy, one, newest.version)
            if was != now and late > self._policy.refresh_ms + _REOPENED_MS:
                yield "R-03", f"waits for votes by {was}, which says {now} since {late} ms"


def _moment_of(one: PolicyRecord) -> int:
    return one.moment


def _version_of(one: AdmissionRecord) -> int:
    return 0 if one.ruling is None else one.ruling.version


def _budget_of(approval: Approval) -> str | None:
    """The budget that a task asks to exceed; None if it asks because of a rule."""
    rule = "" if approval.request is None else approval.request.rule
    return rule.removeprefix(_BUDGET) if rule.startswith(_BUDGET) else None


def _asked_rule(policy: PolicyHistory, approval: Approval, version: int) -> JobRule | None:
    """The terms of that version about such an approval: of the rule of its job, or of a budget."""
    made, budget, job = policy.versions.get(version), _budget_of(approval), approval.subject
    if made is None:
        return None
    if budget is None:
        return made.table.rules.get(job)
    return next((one.over for one in made.table.budgets if one.name == budget and job in one.jobs), None)


def _enough(policy: PolicyHistory, run: Run, rule: JobRule, votes: Sequence[VoteRecord], *, budget: str) -> bool:
    """Whether these votes let a task exceed the budget."""
    about = [vote for vote in votes if _budget_of(vote.approval) == budget]
    if any(vote.kind is VoteKind.OVERRIDE for vote in about):
        return True
    approved = {vote.voter for vote in about if vote.kind is VoteKind.APPROVE}
    return len({name for name in approved if _may_vote(policy, run, rule, name)}) >= rule.quorum


def _may_vote(policy: PolicyHistory, run: Run, rule: JobRule, voter: str) -> bool:
    """Whether the rule lets this person vote on tasks of the run."""
    person = policy.persons.get(voter, Person(voter))
    if not rule.self_approval and voter in (run.actor, OPERATOR):
        return False
    return not person.groups.isdisjoint(rule.groups) if rule.groups else _ADMIN in person.roles


def _votes_count_rightly(evidence: HistoryIndex, policy: PolicyHistory) -> Iterator[Violation]:
    """R-03: a vote counts only if its voter may vote, saw what waits, is the first of that person, and is in time."""
    earlier: dict[str, list[VoteRecord]] = defaultdict(list)
    for vote in policy.votes:
        request = vote.approval.request
        if request is None:
            continue
        before, name = earlier[vote.approval.approval_id], vote.approval.subject
        run, rule = evidence.runs.get(request.run_id), _asked_rule(policy, vote.approval, request.version)
        for problem in _vote_problems(vote, before, policy, run, rule):
            yield Violation("R-03", name, f"{vote.kind} of {vote.voter} on {vote.approval.approval_id} {problem}")
        before.append(vote)


def _vote_problems(
    vote: VoteRecord, before: Sequence[VoteRecord], policy: PolicyHistory, run: Run | None, rule: JobRule | None
) -> Iterator[str]:
    request = vote.approval.request
    if vote.quoted != vote.approval.digest:
        yield "quotes another digest"
    if rule is None or not rule.asks:
        yield f"is about {rule}"
    elif request is not None and vote.at >= request.asked_at + rule.expires_ms:
        yield "came after its time"
    if vote.kind is VoteKind.OVERRIDE:
        if policy.persons.get(vote.voter, Person(vote.voter)).groups.isdisjoint(policy.break_glass):
            yield "overrides without the right to"
    elif run is not None and rule is not None and not _may_vote(policy, run, rule, vote.voter):
        yield "is of a person who may not vote"
    if vote.kind is not VoteKind.OVERRIDE and any(one.voter == vote.voter for one in before):
        yield "is not the first of that person"
    decided = any(one.kind is not VoteKind.APPROVE for one in before)
    if decided or (rule is not None and sum(one.kind is VoteKind.APPROVE for one in before) >= rule.quorum):
        yield "came after the decision"


def _votes_stay(policy: PolicyHistory) -> Iterator[Violation]:
    """R-03: every vote that counted is kept, and no other; an approval is decided by its votes."""
    cast: dict[str, list[VoteRecord]] = defaultdict(list)
    for vote in policy.votes:
        cast[vote.approval.approval_id].append(vote)
    for name, approval in policy.approvals.items():
        last = {one.voter: one.kind for one in cast[name]}
        kept = {one.voter: one.kind for one in approval.votes}
        if kept != last:
            yield Violation("R-03", approval.subject, f"{name} keeps the votes {kept}, not {last}")
        rejected = VoteKind.REJECT in last.values()
        if rejected != (approval.status is ApprovalStatus.REJECTED):
            yield Violation("R-03", approval.subject, f"{name} is {approval.status} with the votes {last}")


def _within_budgets(evidence: HistoryIndex, policy: PolicyHistory) -> Iterator[Violation]:
    """R-04: of the tasks that were admitted within a window, no more begin than the budget allows."""
    begun = {one.held for case in evidence.cases.values() for one in case.starts}
    admitted = {one.attempt: one for one in policy.admissions if one.state is _ADMITTED}
    used: Counter[tuple[str, int, int]] = Counter()
    for held in begun & admitted.keys():
        one = admitted[held]
        run = evidence.cases[held[0]].run
        version = policy.versions.get(_version_of(one))
        beyond = one.ruling is not None and one.ruling.beyond_budget
        for budget in () if version is None else version.table.budgets:
            # People may let a task exceed a budget that asks; it then counts for none of those.
            if (run.schedule_id or run.workflow_id) in budget.jobs and not (beyond and budget.over.asks):
                used[budget.name, one.at // budget.per_ms, budget.per_ms] += 1
    limits = {(one.name, one.per_ms): one.limit for made in policy.versions.values() for one in made.table.budgets}
    for (name, window, per_ms), count in used.items():
        if count > limits[name, per_ms]:
            text = f"{count} tasks began within window {window} of {name}, which allows {limits[name, per_ms]}"
            yield Violation("R-04", name, text)


@dataclass(slots=True)
class _FollowedBreaker:
    """A breaker, followed from what happened."""

    limits: BreakerLimits
    failures: int = 0
    open_until: int | None = None
    successes: int = 0
    probes: set[AttemptRef] = field(default_factory=set)

    def admit(self, one: AdmissionRecord, over: Mapping[AttemptRef, int]) -> str | None:
        """Count an admission; return what is wrong with it."""
        if self.open_until is None:
            return None
        if one.at < self.open_until:
            return f"admitted {self.open_until - one.at} ms before the end of the open time"
        self.probes = {held for held in self.probes if over.get(held, one.moment + 1) > one.moment}
        self.probes.add(one.attempt)
        if len(self.probes) > self.limits.probes:
            return f"admitted beside the probes {sorted(self.probes)}"
        return None

    def end(self, one: ReportRecord) -> None:
        """Count the end of an attempt."""
        if self.open_until is not None and one.held not in self.probes:
            return
        self.probes.discard(one.held)
        if one.result in _FAILURES:
            self.failures += 1
            if self.open_until is not None or self.failures >= self.limits.failures:
                self.open_until, self.successes, self.probes = one.ended_at + self.limits.open_ms, 0, set()
        elif one.result is Result.SUCCEEDED:
            self.successes += self.open_until is not None
            if self.open_until is None or self.successes >= self.limits.successes:
                self.failures, self.open_until, self.successes, self.probes = 0, None, 0, set()


def _breakers_hold(evidence: HistoryIndex, policy: PolicyHistory) -> Iterator[Violation]:
    """R-12: after so many failures in a row nothing is admitted for the open time, and then only a few probes."""
    breakers: dict[str, _FollowedBreaker] = {}
    named = {case.task.task_id: case for case in evidence.cases.values() if case.step and case.step.breaker}
    admitted = [one for one in policy.admissions if one.state is _ADMITTED and one.attempt[0] in named]
    ended = [one for one in evidence.history.reports if one.counted and one.held[0] in named]
    over = _ends_of_probes(evidence, policy)
    events: list[AdmissionRecord | ReportRecord] = [*admitted, *ended]
    for one in sorted(events, key=lambda one: one.moment):
        held = one.attempt if isinstance(one, AdmissionRecord) else one.held
        step = named[held[0]].step
        if step is None or step.breaker is None:
            continue
        breaker = breakers.setdefault(step.breaker.name, _FollowedBreaker(step.breaker.limits))
        if isinstance(one, ReportRecord):
            breaker.end(one)
        elif problem := breaker.admit(one, over):
            yield Violation("R-12", named[held[0]].name, f"{held[0]}: {problem}, of breaker {step.breaker.name}")


def _ends_of_probes(evidence: HistoryIndex, policy: PolicyHistory) -> dict[AttemptRef, int]:
    """When attempts were over that no report ended: their runs have ended in another way, or they were recalled."""
    found: dict[AttemptRef, int] = {}
    for one in policy.admissions:
        task_id = one.attempt[0]
        interval = evidence.history.run_intervals.get(evidence.cases[task_id].run.run_id)
        over = None if interval is None else interval.over
        recalls = (moment for moment, recalled in policy.recalls if recalled == task_id and moment > one.moment)
        ends = [*recalls, *([] if over is None else [over])]
        if ends:
            found[one.attempt] = min(ends)
    return found
