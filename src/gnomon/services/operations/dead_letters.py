"""Lists, replays and resolves dead letters: tasks that failed for good."""

from asyncio import gather
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import idempotency_key, page_limit, printable, schedule_name
from gnomon.core.model import Attempt, DeadLetter, Run, RunId
from gnomon.core.runs.launch import LaunchOutcome
from gnomon.core.runs.rollback import is_compensation
from gnomon.errors import NotFound, NotReplayed, Refused
from gnomon.ports.runs import DeadLetters, Executions, LetterGroups, LetterPage, LetterPosition, LetterQuery
from gnomon.ports.runtime import Clock
from gnomon.services.operations.launcher import Launcher, LaunchResult, ReplayedLetter

#: The letters that are resolved at once.
_RESOLVED_AT_ONCE = 20
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


class ResolvePage(Struct, frozen=True):
    """The dead letters that were resolved, and the position of the next page; None after the last."""

    items: tuple[DeadLetter, ...]
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

    async def search(self, query: LetterQuery) -> LetterPage:
        """The dead letters that match, newest first."""
        return await self._letters.search(query)

    async def groups(self, query: LetterQuery) -> LetterGroups:
        """The groups of the dead letters that match."""
        return await self._letters.groups(query)

    async def replay_all(
        self,
        query: LetterQuery,
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        after: ReplayCursor | None = None,
    ) -> ReplayPage:
        """Replay a page of the unresolved dead letters that match, oldest first, and return the result of each.

        All letters of an execution have one replay. It waits for other runs of its job where the overlap policy forbids
        that they overlap, so that many letters of a job are replayed one after the other. With a key, no letter of a
        run that a request with the same key has started is replayed.
        """
        printable("actor", actor)
        due, last = await self._due(query, after)
        done = [await self._outcome(letter, actor, groups, key) for letter in due]
        return ReplayPage(tuple(one for one in done if one is not None), last)

    async def replay_these(
        self,
        dead_letter_ids: Sequence[str],
        *,
        actor: str,
        groups: Collection[str] = (),
        key: str | None = None,
        tenant: str = "default",
    ) -> ReplayPage:
        """Replay these dead letters as `replay_all` does, and return the result of each that is unresolved."""
        printable("actor", actor)
        found = [await self._find(tenant, name) for name in dead_letter_ids]
        due = [letter for letter in found if letter.resolved_at is None]
        done = [await self._outcome(letter, actor, groups, key) for letter in due]
        return ReplayPage(tuple(one for one in done if one is not None), None)

    async def resolve_all(self, query: LetterQuery, *, actor: str, after: ReplayCursor | None = None) -> ResolvePage:
        """Mark a page of the unresolved dead letters that match as resolved, oldest first; return those."""
        printable("actor", actor)
        due, last = await self._due(query, after)
        return ResolvePage(await self._resolved(query.tenant, due, actor), last)

    async def resolve_these(
        self, dead_letter_ids: Sequence[str], *, actor: str, tenant: str = "default"
    ) -> ResolvePage:
        """Mark these dead letters as resolved; return those that were not."""
        printable("actor", actor)
        found = [await self._find(tenant, name) for name in dead_letter_ids]
        return ResolvePage(await self._resolved(tenant, found, actor), None)

    async def _due(
        self, query: LetterQuery, after: ReplayCursor | None
    ) -> tuple[Sequence[DeadLetter], ReplayCursor | None]:
        """A page of unresolved letters that are as old as the request, and the position of the next page."""
        position, requested_at = (None, self._clock.now()) if after is None else (after[:2], after[2])
        page = await self._letters.search(replace(query, unresolved=True, oldest_first=True, after=position))
        # A replay that fails between two pages leaves a new letter, which this request must not replay again.
        due = [letter for letter in page.letters if after is None or letter.created_at < requested_at]
        return due, None if page.after is None else (*page.after, requested_at)

    async def _resolved(self, tenant: str, letters: Sequence[DeadLetter], actor: str) -> tuple[DeadLetter, ...]:
        now, found = self._clock.now(), list[DeadLetter]()
        for start in range(0, len(letters), _RESOLVED_AT_ONCE):
            some = letters[start : start + _RESOLVED_AT_ONCE]
            # Each by itself, so that its own outcome is known; a store commits them together.
            counts = await gather(
                *(self._letters.resolve(tenant, [one.dead_letter_id], by=actor, actor=actor, now=now) for one in some)
            )
            found += [one for one, count in zip(some, counts, strict=True) if count]
        return tuple(found)

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

    async def _outcome(
        self, letter: DeadLetter, actor: str, groups: Collection[str], key: str | None
    ) -> ReplayResult | None:
        """The result of the replay; None if the letter is of a replay that a request with this key has started."""
        try:
            if key is not None and await self._is_replay_of(letter, idempotency_key(key)):
                return None
            done = await self._replay(letter, actor=actor, groups=groups, key=None, noted_key=key, waits=True)
        except (Refused, NotFound) as error:
            return ReplayResult(dead_letter_id=letter.dead_letter_id, job=letter.job, refused=str(error))
        return ReplayResult(
            dead_letter_id=letter.dead_letter_id, job=letter.job, run_id=done.run_id, became=done.became
        )

    async def _is_replay_of(self, letter: DeadLetter, key: str) -> bool:
        failed = await self._executions.find_run(letter.run_id)
        return failed is not None and failed.replay_of is not None and failed.idempotency_key == key

    async def _replay(
        self,
        letter: DeadLetter,
        *,
        actor: str,
        groups: Collection[str],
        key: str | None,
        noted_key: str | None = None,
        waits: bool = False,
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
            return await self._launcher.replay(
                letter.job, replayed, actor=actor, groups=groups, key=key, noted_key=noted_key, waits=waits
            )
        return await self._launcher.replay_workflow(
            letter.job, replayed, actor=actor, groups=groups, key=key, noted_key=noted_key
        )
