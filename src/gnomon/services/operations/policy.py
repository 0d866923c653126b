"""The policy of tasks for operators: its versions, and what a new file would change."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.model import RunId
from gnomon.core.policy.ruling import TaskRulings
from gnomon.core.policy.shadow import PolicyShadow, ShadowDifference
from gnomon.core.policy.version import PolicyVersion, body_digest
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import FieldError, NotFound
from gnomon.ports.budgets import BudgetWindows
from gnomon.ports.policy import Policies, PolicyShadows, Rulings
from gnomon.ports.runs import Executions
from gnomon.ports.runtime import Clock
from gnomon.ports.schedules import Jobs, Schedules
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.budgets import BudgetPage, BudgetReader
from gnomon.services.operations.policy_replay import HistoryReplay, ReplayPart

if TYPE_CHECKING:
    from gnomon.core.policy.diff import RuleChange
    from gnomon.core.policy.document import PolicyDocument
    from gnomon.core.policy.explanation import AssumedRun, StepExplanation
    from gnomon.core.policy.replay import PolicyReplay

#: How many files are remembered, compiled, between the parts of their replays.
_MOST_REPLAYS = 2


class ReadVersion(Struct, frozen=True, kw_only=True):
    """A version of the policy, and the rules in it."""

    version: PolicyVersion
    document: "PolicyDocument"


class ShadowReport(Struct, frozen=True, kw_only=True):
    """The newest shadow, and the ways in which its rulings differ."""

    shadow: PolicyShadow
    differences: Sequence[ShadowDifference]


class JobRulings(Struct, frozen=True, kw_only=True):
    """The rulings that a policy would make about a job."""

    #: 0 for a file that is not in force; None if there is no policy.
    version: int | None
    steps: "list[StepExplanation]"


class PolicyService:
    """Checks policy files, keeps them as versions, and compares and explains them; reads its decisions."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        policies: Policies,
        rulings: Rulings,
        executions: Executions,
        jobs: Jobs,
        schedules: Schedules,
        clock: Clock,
        *,
        shadows: PolicyShadows,
        budget_windows: BudgetWindows,
        parse: "Callable[[str], PolicyDocument]",
        compute: ComputeQueue | None = None,
    ) -> None:
        """`parse` reads the text of a file; it raises FileError for the first mistake."""
        self._policies, self._rulings, self._shadows = policies, rulings, shadows
        self._executions, self._clock = executions, clock
        self._jobs, self._schedules = jobs, schedules
        self._parse = parse
        self._budgets = BudgetReader(budget_windows, clock)
        self._compute = compute or ComputeQueue()
        self._history = HistoryReplay(rulings, executions, jobs, self._compute)
        self._replays: OrderedDict[str, PolicyReplay] = OrderedDict()

    async def check(self, body: str) -> "PolicyDocument":
        """The policy in the text of a file; FileError names the line and the field of the first mistake."""
        # In a thread: a long file takes too long to parse on the event loop, which the ticker shares.
        return await self._compute.run_in_thread(lambda: self._parse(body))

    async def apply(self, body: str, *, actor: str, expected: int | None = None) -> ReadVersion:
        """Put a file in force as the next version; the same file again is no new version.

        FileError, and nothing changes, if it has a mistake. Stale if the version in force is not `expected`.
        """
        document = await self.check(body)
        made = await self._policies.add(
            body, author=printable("actor", actor), now=self._clock.now(), expected=expected
        )
        return ReadVersion(version=made, document=document)

    async def in_force(self) -> PolicyVersion | None:
        """The version in force; None if there is no policy."""
        return await self._policies.newest()

    async def get(self, version: int) -> PolicyVersion:
        """The version of that number; NotFound if there is none."""
        if version < 1:
            raise FieldError("version", version, "must be at least 1")
        found = await self._policies.find(version)
        if found is None:
            raise NotFound("policy version", str(version))
        return found

    async def page(self, *, before: int | None, limit: int) -> Sequence[PolicyVersion]:
        """The versions before that one, newest first."""
        return await self._policies.page(before=before, limit=page_limit(limit))

    async def diff(self, body: str) -> "tuple[int, list[RuleChange]]":
        """The number of the version in force, 0 if there is none, and what the file would change."""
        from gnomon.core.policy.diff import rule_changes

        document = await self.check(body)
        current = await self._policies.newest()
        if current is None:
            return 0, rule_changes(None, document)
        return current.version, rule_changes(await self.check(current.body), document)

    async def budgets(self, *, after: str = "", limit: int) -> BudgetPage:
        """How much is left of the budgets of the policy in force."""
        current = await self._policies.newest()
        if current is None:
            return BudgetPage((), None)
        return await self._budgets.page((await self.check(current.body)).budgets, after=after, limit=limit)

    async def decisions(
        self, execution_id: str, *, after: str = "", limit: int, tenant: str = "default"
    ) -> Sequence[TaskRulings]:
        """The decisions of the policy about the tasks of an execution, task by task; NotFound if it is unknown."""
        run = await self._executions.find_run(RunId(printable("execution", execution_id)))
        if run is None or run.tenant != tenant:
            raise NotFound("execution", execution_id)
        return await self._rulings.of_tasks(run.run_id, after=after, limit=page_limit(limit))

    async def explain(
        self, job: str, *, given: Mapping[str, Any] | None = None, body: str | None = None, tenant: str = "default"
    ) -> JobRulings:
        """The rulings about the steps of a job if it started now with that input, by a file or the policy in force."""
        from gnomon.core.policy.explanation import AssumedRun

        workflow = await self._workflow(job, tenant)
        version, document = 0, None
        if body is not None:
            document = await self.check(body)
        elif (newest := await self._policies.newest()) is not None:
            version, document = newest.version, await self.check(newest.body)
        if document is None:
            return JobRulings(version=None, steps=[])
        run = AssumedRun(tenant=tenant, job=job, input=given, at=self._clock.now())
        # In a thread: a long policy takes too long to compile on the event loop, which the ticker shares.
        steps = await self._compute.run_in_thread(lambda: _explain(document, version, workflow, run))
        return JobRulings(version=version, steps=steps)

    async def start_shadow(self, body: str, *, actor: str) -> PolicyShadow:
        """Judge by a file beside the policy in force, from now on; FileError, and nothing changes, if it is broken."""
        await self.check(body)
        return await self._shadows.start(body, author=printable("actor", actor), now=self._clock.now())

    async def stop_shadow(self, *, actor: str) -> PolicyShadow:
        """End the shadow; NotFound if none runs."""
        return await self._shadows.stop(actor=printable("actor", actor), now=self._clock.now())

    async def shadow(self, *, limit: int) -> ShadowReport:
        """The newest shadow, and its most frequent differences; NotFound if there never was one."""
        found = await self._shadows.newest()
        if found is None:
            raise NotFound("shadow", "of the policy")
        return ShadowReport(shadow=found, differences=await self._shadows.differences(limit=page_limit(limit)))

    async def promote(self, *, actor: str, expected: int | None = None) -> ReadVersion:
        """End the shadow and put its file in force; NotFound if none runs, Stale as `apply`."""
        made = await self._shadows.promote(actor=printable("actor", actor), now=self._clock.now(), expected=expected)
        return ReadVersion(version=made, document=await self.check(made.body))

    async def replay(self, body: str, *, since: int, after: str = "", limit: int) -> ReplayPart:
        """Judge the next `limit` tasks of the history by a file, in all tenants; nothing is written."""
        replay = await self._replay_of(body)
        return await self._history.part(replay, since=since, after=after, limit=limit)

    async def _replay_of(self, body: str) -> "PolicyReplay":
        """The compiled file: the parts of a replay come one by one, and compiling may take longer than one of them."""
        digest = body_digest(body)
        found = self._replays.get(digest)
        if found is None:
            document = await self.check(body)
            found = self._replays[digest] = await self._compute.run_in_thread(lambda: _replay(document))
            if len(self._replays) > _MOST_REPLAYS:
                self._replays.popitem(last=False)
        return found

    async def _workflow(self, job: str, tenant: str) -> Workflow:
        """The version that the job runs, or the newest one of a workflow without a job of that name."""
        schedule_name("job", job)
        schedule = await self._schedules.find(tenant, job)
        key = (job, None) if schedule is None else (schedule.spec.workflow_id, schedule.spec.workflow_version)
        found = await self._jobs.workflow(tenant, *key)
        if found is None:
            raise NotFound("job", job)
        return found


def _explain(
    document: "PolicyDocument", version: int, workflow: Workflow, run: "AssumedRun"
) -> "list[StepExplanation]":
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.core.policy.explanation import explain_steps

    return explain_steps(CompiledPolicy(document, version, throttle_ms=0), workflow, run)


def _replay(document: "PolicyDocument") -> "PolicyReplay":
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.core.policy.replay import PolicyReplay

    return PolicyReplay(CompiledPolicy(document, 0, throttle_ms=0))
