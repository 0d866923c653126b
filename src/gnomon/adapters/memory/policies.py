"""The versions of the policy, and the rulings, in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import policy_applied_entry, shadow_entry
from gnomon.core.model import RunId, Task
from gnomon.core.policy.past_tasks import PastTask
from gnomon.core.policy.ruling import TaskRulings, plain_permission, with_permission
from gnomon.core.policy.shadow import (
    MOST_DIFFERENCES,
    PolicyShadow,
    ShadowCounts,
    ShadowDifference,
    counted_shadow,
    differences_by_size,
    merged_differences,
    new_shadow,
)
from gnomon.core.policy.version import PolicyVersion, next_version
from gnomon.core.runs.admission import ReadyTask
from gnomon.errors import NotFound


class MemoryPolicies:
    """Implements Policies."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def add(self, body: str, *, author: str, now: int, expected: int | None = None) -> PolicyVersion:
        """See Policies.add."""
        versions = self._state.policy_versions
        last = versions[-1] if versions else None
        made = next_version(last, body, author=author, now=now, expected=expected)
        if made is not last:
            versions.append(made)
            self._state.write_audit([policy_applied_entry(last, made)])
        return made

    async def newest(self) -> PolicyVersion | None:
        """See Policies.newest."""
        versions = self._state.policy_versions
        return versions[-1] if versions else None

    async def newest_number(self) -> int:
        """See Policies.newest_number."""
        return len(self._state.policy_versions)

    async def find(self, version: int) -> PolicyVersion | None:
        """See Policies.find."""
        versions = self._state.policy_versions
        return versions[version - 1] if 1 <= version <= len(versions) else None

    async def page(self, *, before: int | None, limit: int) -> Sequence[PolicyVersion]:
        """See Policies.page."""
        found = (one for one in reversed(self._state.policy_versions) if before is None or one.version < before)
        return list(found)[:limit]


class MemoryPolicyShadows:
    """Implements PolicyShadows."""

    def __init__(self, state: MemoryTables, policies: MemoryPolicies) -> None:
        self._state = state
        self._policies = policies

    async def start(self, body: str, *, author: str, now: int) -> PolicyShadow:
        """See PolicyShadows.start."""
        last = await self.newest()
        made = new_shadow(last, body, author=author, now=now)
        if made is not last:
            self._state.policy_shadows.clear()
            self._keep(made)
            self._state.shadow_differences.clear()
            self._state.write_audit([shadow_entry(last, made, actor=author, now=now)])
        return made

    async def stop(self, *, actor: str, now: int) -> PolicyShadow:
        """See PolicyShadows.stop."""
        last = self._running()
        if last is None:
            raise NotFound("shadow", "of the policy")
        ended = replace(last, ended_at=now)
        self._keep(ended)
        self._state.write_audit([shadow_entry(last, ended, actor=actor, now=now)])
        return ended

    async def promote(self, *, actor: str, now: int, expected: int | None = None) -> PolicyVersion:
        """See PolicyShadows.promote."""
        running = self._running()
        if running is None:
            raise NotFound("shadow", "of the policy")
        made = await self._policies.add(running.body, author=actor, now=now, expected=expected)
        await self.stop(actor=actor, now=now)
        return made

    async def newest(self) -> PolicyShadow | None:
        """See PolicyShadows.newest."""
        return next(iter(self._state.policy_shadows.values()), None)

    async def running_number(self) -> int:
        """See PolicyShadows.running_number."""
        running = self._running()
        return 0 if running is None else running.number

    async def count(self, number: int, counts: ShadowCounts) -> bool:
        """See PolicyShadows.count."""
        shadow = self._running()
        if shadow is None or shadow.number != number:
            return False
        known = self._state.shadow_differences
        changed, new, left_out = merged_differences(known, counts, free=MOST_DIFFERENCES - len(known))
        known.update({one.key: one for one in (*changed, *new)})
        self._keep(counted_shadow(shadow, counts, left_out=left_out))
        return True

    async def differences(self, *, limit: int) -> Sequence[ShadowDifference]:
        """See PolicyShadows.differences."""
        return differences_by_size(self._state.shadow_differences.values())[:limit]

    def _running(self) -> PolicyShadow | None:
        found = self._state.policy_shadows.values()
        return next((one for one in found if one.ended_at is None), None)

    def _keep(self, shadow: PolicyShadow) -> None:
        self._state.policy_shadows[shadow.number] = shadow


class MemoryRulings:
    """Implements Rulings."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state = state
        self._rules = rules

    async def of_tasks(self, run_id: RunId, *, after: str = "", limit: int) -> Sequence[TaskRulings]:
        """See Rulings.of_tasks."""
        tasks = sorted((task for task in self._rules.tasks_of(run_id) if task.task_id > after), key=_task_id)
        found = (self._of_task(task) for task in tasks)
        return [one for one in found if one.rulings][:limit]

    async def ruled_runs(self, runs: Sequence[RunId]) -> Collection[RunId]:
        """See Rulings.ruled_runs."""
        state = self._state
        return {
            run_id
            for run_id in runs
            if any(
                task.task_id in state.rulings or task.task_id in state.permissions
                for task in self._rules.tasks_of(run_id)
            )
        }

    def _of_task(self, task: Task) -> TaskRulings:
        state = self._state
        rows = tuple(state.rulings.get(task.task_id, ()))
        if task.task_id in state.permissions:
            rule, digest = state.permissions[task.task_id]
            dispatched_at = self._dispatched_at(task)
            at = task.available_at if dispatched_at is None else dispatched_at
            own = plain_permission(task.task_id, task.run_id, rule, digest, rows, at=at)
            rows = with_permission(rows, own)
        asked = sorted(
            (one for one in state.approvals.values() if one.request and one.request.task_id == task.task_id),
            key=lambda one: one.approval_id,
        )
        return TaskRulings(task_id=task.task_id, step=task.step, item=task.item, rulings=rows, approvals=tuple(asked))

    async def past_tasks(self, *, after: str = "", limit: int) -> Sequence[PastTask]:
        """See Rulings.past_tasks."""
        names = sorted(name for name in self._state.tasks if name > after)[:limit]
        return [self._past_task(self._state.tasks[name]) for name in names]

    def _past_task(self, task: Task) -> PastTask:
        state = self._state
        rows = state.rulings.get(task.task_id, ())
        permission = state.permissions.get(task.task_id)
        return PastTask(
            ready=ReadyTask(task=task, run=state.runs[task.run_id]),
            has_input=(task.task_id, "input") in state.payloads,
            has_actor=True,
            has_groups=True,
            dispatched_at=self._dispatched_at(task),
            permission=None if permission is None else permission[0],
            ruling=rows[-1] if rows else None,
        )

    def _dispatched_at(self, task: Task) -> int | None:
        found = (one.dispatched_at for held, one in self._state.attempts.items() if held[0] == task.task_id)
        return max(found, default=None)


def _task_id(task: Task) -> str:
    return task.task_id
