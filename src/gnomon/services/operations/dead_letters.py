"""Lists, replays and resolves dead letters: tasks that failed for good."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.model import Attempt, DeadLetter, Run, RunId
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.rollback import is_compensation
from gnomon.errors import NotFound, NotReplayed, Refused
from gnomon.ports.runs import DeadLetters, Executions, LetterPosition
from gnomon.ports.runtime import Clock
from gnomon.services.operations.launcher import Launcher, LaunchResult, ReplayedLetter

_PAGE = 500
#: The last dead letter of a page, and the time of the first request: letters created since are not replayed.
ReplayCursor = tuple[int, str, int]


class DeadLetterView(Struct, frozen=True):
    """A dead letter and its attempts."""

    letter: DeadLetter
    #: Every attempt of its task, the first one first.
    attempts: tuple[Attempt, ...]
    #: The run that failed; None if its history is no longer kept.
    run: Run | None


class ReplayResult(Struct, frozen=True, kw_only=True):
    """The result of one of many replays."""

    dead_letter_id: str
    job: str
    run_id: RunId | None = None
    became: LaunchOutcome | None = None
    #: Why there is no run.
    refused: str | None = None


class ReplayPage(Struct, frozen=True):
    """The results of some replays, and the position of the next page; None after the last."""

    items: tuple[ReplayResult, ...]
    after: ReplayCursor | None


class DeadLetterService:
    """Lists, shows, replays and resolves dead letters."""

    def __init__(self, letters: DeadLetters, executions: Executions, launcher: Launcher, clock: Clock) -> None:
        self._letters = letters
        self._executions = executions
        self._launcher = launcher
        self._clock = clock

    async def page(
        self,
        *,
        job: str | None = None,
        unresolved: bool = False,
        oldest_first: bool = False,
        after: LetterPosition | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[DeadLetter]:
        """Dead letters, newest first unless `oldest_first`."""
        page_limit(limit)
        return await self._letters.page(
            schedule_name("tenant", tenant),
            job=job,
            unresolved=unresolved,
            oldest_first=oldest_first,
            after=after,
            limit=limit,
        )

    async def by_prefix(self, prefix: str, *, limit: int, tenant: str = "default") -> Sequence[DeadLetter]:
        """The dead letters whose ids begin with these characters, by id, resolved or not."""
        return await self._letters.find_by_prefix(tenant, printable("prefix", prefix), limit=page_limit(limit))

    async def get(self, dead_letter_id: str, *, tenant: str = "default") -> DeadLetterView:
        """The dead letter with the attempts of its task."""
        letter = await self._find(tenant, dead_letter_id)
        attempts = await self._executions.attempts([letter.task_id])
        return DeadLetterView(letter, tuple(attempts), await self._executions.find_run(letter.run_id))

    async def replay(
        self,
        dead_letter_id: str,
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        tenant: str = "default",
    ) -> LaunchResult:
        """Replay its execution as a new run: once per idempotency key, and once without one.

        The newest version of the workflow runs with the input of the failed run. The job's overlap policy applies.
        The dead letter is resolved when the new run succeeds.
        """
        return await self._replay(await self._find(tenant, dead_letter_id), actor=actor, groups=groups, key=key)

    async def replay_all(
        self,
        *,
        actor: str,
        groups: Collection[str] = (),
        job: str | None = None,
        after: ReplayCursor | None = None,
        limit: int = _PAGE,
        tenant: str = "default",
    ) -> ReplayPage:
        """Replay a page of unresolved dead letters, oldest first, and return the result of each.

        All letters of an execution have one replay. It waits for other runs of its job where the overlap policy forbids
        that they overlap, so that many letters of a job are replayed one after the other.
        """
        printable("actor", actor)
        position, requested_at = (None, self._clock.now()) if after is None else (after[:2], after[2])
        found = await self.page(job=job, unresolved=True, oldest_first=True, after=position, limit=limit, tenant=tenant)
        # A replay that fails between two pages leaves a new letter, which this request must not replay again.
        due = [letter for letter in found if after is None or letter.created_at < requested_at]
        done = tuple([await self._outcome(letter, actor, groups) for letter in due])
        last = (found[-1].created_at, found[-1].dead_letter_id, requested_at) if len(found) == limit else None
        return ReplayPage(done, last)

    async def resolve(self, dead_letter_id: str, *, actor: str, tenant: str = "default") -> bool:
        """Mark the dead letter as resolved; return False if it was resolved before."""
        printable("actor", actor)
        letter = await self._find(tenant, dead_letter_id)
        now = self._clock.now()
        return bool(await self._letters.resolve(tenant, [letter.dead_letter_id], by=actor, actor=actor, now=now))

    async def _find(self, tenant: str, dead_letter_id: str) -> DeadLetter:
        schedule_name("tenant", tenant)
        printable("dead_letter", dead_letter_id)
        found = await self._letters.find(tenant, dead_letter_id)
        if found is None:
            raise NotFound("dead letter", dead_letter_id)
        return found

    async def _outcome(self, letter: DeadLetter, actor: str, groups: Collection[str]) -> ReplayResult:
        try:
            done = await self._replay(letter, actor=actor, groups=groups, key=None, waits=True)
        except (Refused, NotFound) as error:
            return ReplayResult(dead_letter_id=letter.dead_letter_id, job=letter.job, refused=str(error))
        return ReplayResult(
            dead_letter_id=letter.dead_letter_id, job=letter.job, run_id=done.run_id, became=done.became
        )

    async def _replay(
        self, letter: DeadLetter, *, actor: str, groups: Collection[str], key: str | None, waits: bool = False
    ) -> LaunchResult:
        if is_compensation(letter.step):
            raise NotReplayed(letter.dead_letter_id, letter.run_id)
        if key is None and letter.replayed_by is not None:
            return LaunchResult(letter.replayed_by, LaunchOutcome.ALREADY)
        failed = await self._executions.find_run(letter.run_id)
        of_a_job = failed is None or failed.schedule_id is not None
        replayed = ReplayedLetter(
            letter=letter.dead_letter_id, execution=letter.run_id, input=letter.input, tenant=letter.tenant
        )
        if of_a_job:
            return await self._launcher.replay(letter.job, replayed, actor=actor, groups=groups, key=key, waits=waits)
        return await self._launcher.replay_workflow(letter.job, replayed, actor=actor, groups=groups, key=key)
