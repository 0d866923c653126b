"""The client that is awaited."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gnomon.client import asks
from gnomon.client.asking import DEFAULT_ADDRESS, SECONDS, Ask, reached, read, sent_headers
from gnomon.core import answers
from gnomon.core.why_answers import WhyAnswer
from gnomon.errors import Unavailable

if TYPE_CHECKING:
    from aiohttp import ClientSession

T = TypeVar("T")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_FIRST_LOOK_SECONDS, _SELDOM_SECONDS = 0.05, 1.0


class AsyncClient:
    """The same as `Client`, for coroutines; many requests may be under way at once."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float = SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._to = reached(address, token)
        self._timeout = timeout
        self._tls = tls
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def finished(self, execution_id: str) -> answers.ExecutionDetail:
        """The execution, once it is over."""
        patience = _FIRST_LOOK_SECONDS
        while (found := await self.execution(execution_id)).completed_at is None:
            await asyncio.sleep(patience)
            patience = min(2 * patience, _SELDOM_SECONDS)
        return found

    async def _ask(self, ask: Ask[T]) -> T:
        from aiohttp import ClientError
        from yarl import URL

        url = URL(self._to.address + ask.target, encoded=True)
        try:
            async with self._connected().request(
                ask.method, url, data=ask.content, headers=sent_headers(ask, self._to), allow_redirects=False
            ) as answer:
                status, content = answer.status, await answer.read()
        except (ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{self._to.address} cannot be reached: {str(error) or type(error).__name__}") from None
        return read(ask, status, content)

    def _connected(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, TCPConnector

            connector = TCPConnector(ssl=self._tls or True)
            self._session = ClientSession(connector=connector, timeout=ClientTimeout(total=self._timeout))
        return self._session

    # ---- what can be asked for ---------------------------------------------------------------

    async def health(self) -> answers.HealthReport:
        """How the scheduler is, part by part."""
        return await self._ask(asks.health())

    async def register(self, job: Mapping[str, Any]) -> answers.JobApplied:
        """Register a job, in the words of a jobs file. The same again changes nothing."""
        return await self._ask(asks.register(job))

    async def update(self, name: str, job: Mapping[str, Any], *, etag: str | None = None) -> answers.JobApplied:
        """Change a job to what is said; `etag` refuses if it has changed since that was seen."""
        return await self._ask(asks.update(name, job, etag))

    async def job(self, name: str) -> answers.JobDetail:
        """All there is to know about a job."""
        return await self._ask(asks.job(name))

    async def delete(self, name: str) -> None:
        """End a job. Its history stays."""
        await self._ask(asks.delete(name))

    async def trigger(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
        *,
        key: str | None = None,
        force: bool = False,
    ) -> answers.Started:
        """Start an execution of a job; the same key starts one, however often it is asked for."""
        return await self._ask(asks.trigger(name, input, key, force=force))

    async def pause(self, name: str) -> answers.JobDetail:
        """Let no planned time of a job start anything until it is resumed."""
        return await self._ask(asks.pause(name))

    async def resume(self, name: str) -> answers.JobDetail:
        """Let a job go on from now."""
        return await self._ask(asks.resume(name))

    async def planned(self, *, hours: int = 24, limit: int = 1000) -> list[answers.PlannedFire]:
        """The planned times of all jobs in the next hours, the earliest first."""
        return (await self._ask(asks.planned(hours, limit))).items

    async def why(self, name: str, *, at: str | None = None, last: int | None = None) -> WhyAnswer:
        """Why a job did what it did at a moment, or the last few times, and what it will do next."""
        return await self._ask(asks.why(name, at, last))

    async def execution(self, execution_id: str) -> answers.ExecutionDetail:
        """All there is to know about an execution."""
        return await self._ask(asks.execution(execution_id))

    async def cancel(self, execution_id: str) -> answers.Ended:
        """End an execution: what waits at once, what runs as soon as it stops."""
        return await self._ask(asks.cancel(execution_id))

    async def logs(self, execution_id: str) -> list[answers.LogEntry]:
        """What the steps of an execution have said."""
        return (await self._ask(asks.logs(execution_id))).items

    async def submit(
        self,
        function: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
        *,
        key: str | None = None,
        **terms: object,
    ) -> answers.Started:
        """Run a function once, without a job; `terms` are fields of a job, such as timeout and retry."""
        return await self._ask(asks.submit(function, input, key, terms))

    async def dead_letter(self, dead_letter_id: str) -> answers.DeadLetterDetail:
        """A dead letter with every attempt."""
        return await self._ask(asks.dead_letter(dead_letter_id))

    async def replay(self, dead_letter_id: str, *, key: str | None = None) -> answers.Started:
        """Run again what has failed, as a new execution."""
        return await self._ask(asks.replay(dead_letter_id, key))

    async def replay_all(self, *, job: str | None = None) -> list[answers.Replay]:
        """Replay every dead letter that nobody has dealt with."""
        return (await self._ask(asks.replay_all(job))).items

    async def resolve(self, dead_letter_id: str) -> answers.DeadLetterDetail:
        """Mark a dead letter as dealt with."""
        return await self._ask(asks.resolve(dead_letter_id))

    async def emit(self, name: str, body: object = None, *, key: str | None = None) -> answers.EventDetail:
        """Say that something happened, and start the jobs that listen to it."""
        return await self._ask(asks.emit(name, body, key))

    async def deploy(self, definition: Mapping[str, Any]) -> answers.WorkflowDeployed:
        """Keep a workflow as a new version, and let its triggers stand."""
        return await self._ask(asks.deploy(definition))

    async def workers(self) -> list[answers.WorkerDetail]:
        """The workers that are alive."""
        return (await self._ask(asks.workers())).items

    async def jobs(self, *, tag: str | None = None, page: int = 100) -> AsyncIterator[answers.JobSummary]:
        """Every job by name, read page by page as it is asked for."""
        ask: Ask[answers.Page[answers.JobSummary]] | None = asks.jobs(tag, page)
        while ask is not None:
            found = await self._ask(ask)
            for one in found.items:
                yield one
            ask = asks.after(found, ask)

    async def executions(self, *, page: int = 100, **asked: object) -> AsyncIterator[answers.Execution]:
        """Executions, the newest first, by job, status, trigger, tag, since and until."""
        ask: Ask[answers.Page[answers.Execution]] | None = asks.executions({"limit": page, **asked})
        while ask is not None:
            found = await self._ask(ask)
            for one in found.items:
                yield one
            ask = asks.after(found, ask)

    async def ticks(
        self,
        job: str,
        *,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: int = 100,
    ) -> AsyncIterator[answers.LedgerTick]:
        """What became of the planned times of a job, the newest first."""
        ask: Ask[answers.Page[answers.LedgerTick]] | None = asks.ticks(job, kind, since, until, page)
        while ask is not None:
            found = await self._ask(ask)
            for one in found.items:
                yield one
            ask = asks.after(found, ask)

    async def dead_letters(
        self, *, job: str | None = None, resolved: bool = False, page: int = 100
    ) -> AsyncIterator[answers.DeadLetterSummary]:
        """Dead letters that nobody has dealt with; all of them if `resolved`."""
        ask: Ask[answers.Page[answers.DeadLetterSummary]] | None = asks.dead_letters(job, page, resolved=resolved)
        while ask is not None:
            found = await self._ask(ask)
            for one in found.items:
                yield one
            ask = asks.after(found, ask)
