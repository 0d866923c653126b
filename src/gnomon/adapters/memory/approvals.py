"""Approvals in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.approvals.commands import ask_about_commands
from gnomon.core.approvals.decide import counted, expired, with_authors_of_agents
from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote
from gnomon.core.audit import approval_asked_entry, approval_revoked_entry, voted_entry
from gnomon.core.model import Run, Task, TaskId
from gnomon.core.runs.admission import refused_admission, reopened_wait
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.errors import ApprovalClosed, NotFound
from gnomon.ports.approvals import ApprovalFilter, Reopened, ReopenPosition, Resumed

#: A task in these states has an open question: it waits for votes, or the gate is asked about it again.
_OPEN = (TaskState.APPROVAL_REQUIRED, TaskState.PENDING)


class MemoryApprovals:
    """Implements Approvals and ApprovalUpkeep."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def ask(self, asked: Approval, *, actor: str, now: int) -> Approval:
        """See Approvals.ask."""
        outcome = ask_about_commands(self._of_commands(asked.tenant, [asked.subject]), asked, now=now)
        for one in (*outcome.void, *filter(None, [outcome.added])):
            self._state.approvals[one.approval_id] = one
        if outcome.added is not None:
            self._state.write_audit([approval_asked_entry(asked, actor, now)])
        return outcome.kept or asked

    async def revoke(self, tenant: str, approval_id: str, *, actor: str, now: int) -> Approval:
        """See Approvals.revoke."""
        found = await self.find(tenant, approval_id)
        if found is None:
            raise NotFound("approval", approval_id)
        if found.kind is not ApprovalKind.COMMAND or found.status is not ApprovalStatus.APPROVED:
            raise ApprovalClosed(approval_id, found.status)
        after = replace(found, status=ApprovalStatus.REVOKED, revoked_at=now, revoked_by=actor)
        self._state.approvals[approval_id] = after
        self._state.write_audit([approval_revoked_entry(after)])
        return after

    async def standing(self, tenant: str, subjects: Collection[str]) -> Sequence[Approval]:
        """See Approvals.standing."""
        found = self._of_commands(tenant, subjects)
        return [replace(one, votes=()) for one in found if one.status is ApprovalStatus.APPROVED]

    def _of_commands(self, tenant: str, subjects: Collection[str]) -> list[Approval]:
        """The approvals of the commands of these definitions that wait or count."""
        found = (
            one
            for one in self._state.approvals.values()
            if (one.tenant, one.kind, one.revoked_at) == (tenant, ApprovalKind.COMMAND, None)
            and one.subject in subjects
        )
        return sorted(found, key=lambda one: one.approval_id)

    async def of_task(self, task_id: TaskId) -> Sequence[Approval]:
        """See Approvals.of_task."""
        return self._rules.approvals_of(task_id)

    async def find(self, tenant: str, approval_id: str) -> Approval | None:
        """See Approvals.find."""
        found = self._state.approvals.get(approval_id)
        return _without_digests(found) if found is not None and found.tenant == tenant else None

    async def page(self, wanted: ApprovalFilter, *, before: str | None, limit: int) -> Sequence[Approval]:
        """See Approvals.page."""
        found = (
            one
            for one in self._state.approvals.values()
            if one.tenant == wanted.tenant
            and wanted.status in (None, one.status)
            and wanted.kind in (None, one.kind)
            and wanted.subject in (None, one.subject)
            and (before is None or one.approval_id < before)
        )
        newest = sorted(found, key=lambda one: one.approval_id, reverse=True)
        return [_without_digests(one) for one in newest[:limit]]

    async def vote(self, tenant: str, approval_id: str, vote: Vote, *, digest: str) -> Approval:
        """See Approvals.vote."""
        found = self._state.approvals.get(approval_id)
        if found is None or found.tenant != tenant:
            raise NotFound("approval", approval_id)
        task = None if found.request is None else self._state.tasks.get(found.request.task_id)
        waits = found.status is ApprovalStatus.WAITING and found.request is not None
        if waits and (task is None or task.state not in _OPEN):
            raise ApprovalClosed(approval_id, ApprovalStatus.VOID)
        after = counted(found, vote, digest=digest)
        self._state.approvals[approval_id] = after
        self._state.write_audit([voted_entry(after, vote)])
        if task is not None and after.status is ApprovalStatus.APPROVED:
            self._go_on(task, None, WaitReason.READY, vote.at)
        if task is not None and after.status is ApprovalStatus.REJECTED:
            self._deny(task, after, vote.at)
        return _without_digests(after)

    async def authors(self, approval: Approval) -> frozenset[str]:
        """See Approvals.authors."""
        run = None if approval.request is None else self._state.runs.get(approval.request.run_id)
        found = set[str]()
        ahead = [] if run is None else [run]
        while ahead:
            one = ahead.pop()
            found |= self._authors_of(one)
            task = None if one.parent_task is None else self._state.tasks.get(one.parent_task)
            letter = None if one.replay_of is None else self._state.dead_letters.get(one.replay_of)
            names = [above.run_id for above in (task, letter) if above is not None]
            ahead += [self._state.runs[name] for name in names if name in self._state.runs]
        tenant = approval.tenant
        return with_authors_of_agents(filter(None, found), lambda job: self._authors_of_job(tenant, job))

    def _authors_of_job(self, tenant: str, job: str) -> set[str]:
        newest = max((one.version for one in self._state.workflows.get((tenant, job), [])), default=0)
        uids = [one.uid for one in self._state.schedules.values() if (one.tenant, one.schedule_id) == (tenant, job)]
        revisions = [made for uid in uids for made in self._state.revisions.get(uid, [])[-1:]]
        found = {self._state.workflow_authors.get((tenant, job, newest), ""), *(one.actor for one in revisions)}
        return found - {""}

    def _authors_of(self, run: Run) -> set[str]:
        newest = max((one.version for one in self._state.workflows.get((run.tenant, run.workflow_id), [])), default=0)
        versions = (run.workflow_version, newest)
        written = [self._state.workflow_authors.get((run.tenant, run.workflow_id, version), "") for version in versions]
        revisions = [] if run.schedule_uid is None else self._state.revisions.get(run.schedule_uid, [])
        events = [one.event_id for one in self._state.effects.values() if one.run_id == run.run_id and not run.actor]
        emitted = (self._state.events[name].actor for name in events)
        return {run.actor, *written, *(one.actor for one in revisions[-1:]), *emitted}

    async def next_expiry(self) -> int | None:
        """See ApprovalUpkeep.next_expiry."""
        return min((at for at, _ in self._expiries()), default=None)

    async def expire(self, *, now: int, limit: int) -> int:
        """See ApprovalUpkeep.expire."""
        now = min(now, self._state.now())
        due = sorted((at, name) for at, name in self._expiries() if at <= now)[:limit]
        for _, name in due:
            one = self._state.approvals[name]
            after = expired(one, now=now)
            task = None if one.request is None else self._state.tasks.get(one.request.task_id)
            if task is None or task.state not in _OPEN:
                self._rules.void_approvals(one.request.task_id if one.request else TaskId(""), now)
            elif after is not None:
                self._state.approvals[name] = after
                self._deny(task, after, now)
        return len(due)

    def _expiries(self) -> list[tuple[int, str]]:
        return [
            (one.request.expires_at, one.approval_id)
            for one in self._state.approvals.values()
            if one.status is ApprovalStatus.WAITING and one.request is not None
        ]

    async def reopen(self, version: int, *, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
        """See ApprovalUpkeep.reopen."""
        outdated = sorted(
            (one.request.version, one.approval_id, one.request.task_id)
            for one in self._state.approvals.values()
            if one.status is ApprovalStatus.WAITING and one.request is not None and one.request.version < version
        )
        page = [one for one in outdated if after is None or one[:2] > after][:limit]
        moved = over = 0
        for *_, task_id in page:
            task = self._state.tasks.get(task_id)
            if task is None or task.state not in _OPEN:
                self._rules.void_approvals(task_id, now)
                over += 1
            elif task.state is TaskState.APPROVAL_REQUIRED:
                self._go_on(task, reopened_wait(version), WaitReason.POLICY, now)
                moved += 1
        return Reopened(tasks=moved, left=len(page) - over, after=page[-1][:2] if len(page) == limit else None)

    async def resume(self, *, after: TaskId, now: int, limit: int) -> Resumed:
        """See ApprovalUpkeep.resume."""
        asking = {one.request.task_id for one in self._state.approvals.values() if one.request and _waits(one)}
        page = sorted(
            task.task_id
            for task in self._state.tasks.live.values()
            if task.state is TaskState.APPROVAL_REQUIRED and task.task_id > after
        )[:limit]
        stuck = [name for name in page if name not in asking]
        for name in stuck:
            self._go_on(self._state.tasks[name], None, WaitReason.READY, now)
        return Resumed(tasks=len(stuck), after=page[-1] if len(page) == limit else None)

    def _go_on(self, task: Task, note: str | None, wait: WaitReason, now: int) -> None:
        """Let a task that waits for votes be admitted. One about which the gate is asked again goes on by itself."""
        if task.state is TaskState.APPROVAL_REQUIRED:
            moved = replace(task, state=TaskState.PENDING, wait_reason=wait, available_at=now, note=note)
            self._state.tasks[task.task_id] = moved

    def _deny(self, task: Task, approval: Approval, now: int) -> None:
        """End a task that was rejected, or that nobody approved in time."""
        state = self._state
        run = state.runs[task.run_id]
        made = self._rules.with_earlier_error(
            refused_admission(task, run, self._rules.workflow_of(run), approval, now=now)
        )
        ended = replace(task, state=TaskState.DENIED, wait_reason=WaitReason.READY, available_at=now, note=made.note)
        state.tasks[task.task_id] = ended
        if made.ruling is not None:
            self._rules.write_ruling(task.task_id, task.run_id, made.ruling, now)
        self._rules.give_back_untaken(task)
        self._rules.after_task_end(made, made.note, now)


def _waits(one: Approval) -> bool:
    return one.status is ApprovalStatus.WAITING


def _without_digests(one: Approval) -> Approval:
    """The approval as it is listed."""
    return one if one.request is None else replace(one, request=replace(one.request, item_digests=b""))
