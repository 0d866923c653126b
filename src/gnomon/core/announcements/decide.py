"""Which announcements follow from the end of a run or from the decision on a tick, and how a run ends that waits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

from gnomon.core.announcements.model import (
    AnnouncedApproval,
    Announcement,
    AnnouncementFacts,
    AnnouncementState,
    AnnounceMoment,
    AnnounceRule,
)
from gnomon.core.approvals.model import Approval
from gnomon.core.approvals.terms import terms_text
from gnomon.core.ids import run_id
from gnomon.core.model import Decision, Reason, Run, RunStatus, Schedule, TickKind

T = TypeVar("T")
#: The reasons of skipped ticks that are announced: for the others an operator has asked.
_SKIPS = frozenset((Reason.OVERLAP, Reason.QUEUE_FULL))


def counts_failures(rules: Sequence[AnnounceRule]) -> bool:
    """Whether one of the rules depends on how many runs have failed in a row."""
    return any(rule.after > 1 or AnnounceMoment.RECOVERY in rule.on for rule in rules)


def streak_key(run: Run) -> str:
    """The key under which the failures in a row are counted to which the run belongs."""
    return run.schedule_uid or f"{run.tenant}/{run.workflow_id}"


def run_announcements(
    run: Run, rules: Sequence[AnnounceRule], status: RunStatus, error: str | None, *, failures: int, at: int
) -> list[Announcement]:
    """The announcements of a run that ends so.

    `failures` is how many runs have failed in a row: this one included, or before this success.
    """
    if status not in (RunStatus.COMPLETED, RunStatus.FAILED):
        return []
    made = []
    for number, rule in enumerate(rules):
        moment = _moment_of_end(rule, status, failures)
        if moment is not None:
            made.append(
                Announcement(
                    announcement_id=_id(run.run_id, number),
                    tenant=run.tenant,
                    job=run.schedule_id or run.workflow_id,
                    run_id=run.run_id,
                    schedule_uid=run.schedule_uid,
                    planned_at=run.planned_at,
                    moment=moment,
                    channel=rule.channel,
                    recipient=rule.to,
                    template=rule.text,
                    best_effort=rule.best_effort,
                    facts=AnnouncementFacts(error=error, failures=failures),
                    next_at=at,
                    since_at=at,
                    created_at=at,
                )
            )
    return made


def _moment_of_end(rule: AnnounceRule, status: RunStatus, failures: int) -> AnnounceMoment | None:
    if status is RunStatus.FAILED:
        is_due = AnnounceMoment.FAILURE in rule.on and failures >= rule.after
        return AnnounceMoment.FAILURE if is_due else None
    if AnnounceMoment.RECOVERY in rule.on and failures >= rule.after:
        return AnnounceMoment.RECOVERY
    return AnnounceMoment.SUCCESS if AnnounceMoment.SUCCESS in rule.on else None


def tick_moment(decision: Decision) -> AnnounceMoment | None:
    """The moment that a decision on ticks without a run is; None if it is none."""
    if decision.kind is TickKind.MISSED:
        return AnnounceMoment.MISSED
    if decision.kind is TickKind.SKIPPED and decision.reason in _SKIPS:
        return AnnounceMoment.SKIPPED
    return None


def tick_announcements(
    schedule: Schedule, decisions: Iterable[Decision], rules: Sequence[AnnounceRule], *, at: int
) -> list[Announcement]:
    """The announcements of the decisions on the ticks of a schedule."""
    made = []
    for decision in decisions:
        moment = tick_moment(decision)
        for number, rule in enumerate(rules):
            if moment is None or moment not in rule.on:
                continue
            made.append(
                Announcement(
                    # A tick has one run at most: its id belongs to the tick, also if it has none.
                    announcement_id=_id(run_id(schedule.uid, decision.planned_at), number),
                    tenant=schedule.tenant,
                    job=schedule.schedule_id,
                    run_id=None,
                    schedule_uid=schedule.uid,
                    planned_at=decision.planned_at,
                    moment=moment,
                    channel=rule.channel,
                    recipient=rule.to,
                    template=rule.text,
                    # There is no run that could wait.
                    best_effort=True,
                    facts=AnnouncementFacts(
                        reason=decision.reason.value, count=decision.count, last_at=decision.last_at
                    ),
                    next_at=at,
                    since_at=at,
                    created_at=at,
                )
            )
    return made


def approval_announcements(run: Run, rules: Sequence[AnnounceRule], asked: Approval, *, at: int) -> list[Announcement]:
    """The announcements of a task of the run that waits for this approval."""
    request = asked.request
    if request is None:
        return []
    about = AnnouncedApproval(
        approval_id=asked.approval_id,
        step=request.step,
        items=request.items,
        rule=request.rule,
        reason=asked.reason,
        needs=terms_text(request.terms),
        expires_at=request.expires_at,
        digest=asked.digest,
    )
    return [
        Announcement(
            announcement_id=f"ann_{asked.approval_id.removeprefix('apr_')}_{number}",
            tenant=run.tenant,
            job=asked.subject,
            run_id=run.run_id,
            schedule_uid=run.schedule_uid,
            planned_at=run.planned_at,
            moment=AnnounceMoment.APPROVAL,
            channel=rule.channel,
            recipient=rule.to,
            template=rule.text,
            # The run waits for people anyway.
            best_effort=True,
            facts=AnnouncementFacts(approval=about),
            next_at=at,
            since_at=at,
            created_at=at,
        )
        for number, rule in enumerate(rules)
        if AnnounceMoment.APPROVAL in rule.on
    ]


def _id(run: str, number: int) -> str:
    return f"ann_{run.removeprefix('run_')}_{number}"


def waits_behind(one: Announcement, other: Announcement) -> bool:
    """Whether an announcement waits for another one of its job to the same recipient, which is to be tried again."""
    same = (one.tenant, one.channel, one.recipient, one.job) == (
        other.tenant, other.channel, other.recipient, other.job,
    )  # fmt: skip
    earlier = (other.created_at, other.announcement_id) < (one.created_at, one.announcement_id)
    return same and earlier and other.tries > 0 and not other.over


def share_between_tenants(
    due: Mapping[tuple[str, str], Sequence[T]], *, limit: int, per_channel: int
) -> Iterator[tuple[tuple[str, str], T]]:
    """The first of these to send, in turns: by tenant and channel, so many at most in all and of one channel."""
    left = dict.fromkeys((channel for _, channel in due), per_channel)
    lines: dict[str, list[tuple[tuple[str, str], T]]] = {}
    for of, found in due.items():
        lines.setdefault(of[0], []).extend((of, one) for one in found)
    # The channels of a tenant take turns, too.
    turns = [_alternating(line) for _, line in sorted(lines.items())]
    for one in chain.from_iterable(zip_longest(*turns)):
        if one is None or limit <= 0 or not left[one[0][1]]:
            continue
        left[one[0][1]] -= 1
        limit -= 1
        yield one


def _alternating(line: Sequence[tuple[tuple[str, str], T]]) -> Iterator[tuple[tuple[str, str], T]]:
    by_channel: dict[tuple[str, str], list[tuple[tuple[str, str], T]]] = {}
    for one in line:
        by_channel.setdefault(one[0], []).append(one)
    return (one for one in chain.from_iterable(zip_longest(*by_channel.values())) if one is not None)


def end_of_held_run(announcements: Sequence[Announcement]) -> tuple[RunStatus, str | None] | None:
    """The status and the error with which a run ends that waits for these; None while one of them is pending."""
    holding = [one for one in announcements if one.holds_run]
    if not holding or not all(one.over for one in holding):
        return None
    if holding[0].moment is AnnounceMoment.FAILURE:
        return RunStatus.FAILED, holding[0].facts.error
    lost = next((one for one in holding if one.state is AnnouncementState.GIVEN_UP), None)
    if lost is not None:
        return RunStatus.FAILED, f"not announced to {lost.channel}: {lost.note}"
    return RunStatus.COMPLETED, None
