"""The client that waits for each answer."""

import http.client
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from gnomon.client import asks
from gnomon.client.asking import DEFAULT_ADDRESS, SECONDS, Ask, reached, read, sent_headers
from gnomon.core import answers
from gnomon.core.why_answers import WhyAnswer
from gnomon.errors import Unavailable

T = TypeVar("T")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_FIRST_LOOK_SECONDS, _SELDOM_SECONDS = 0.05, 1.0


class Client:
    """A scheduler at an address. The token is the one that is given, or that of the environment (GNOMON_TOKEN)."""

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
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._hang_up()

    def finished(self, execution_id: str, *, timeout: float | None = None) -> answers.ExecutionDetail:
        """The execution, once it is over; TimeoutError if that takes longer."""
        until = None if timeout is None else time.monotonic() + timeout
        patience = _FIRST_LOOK_SECONDS
        while (found := self.execution(execution_id)).completed_at is None:
            if until is not None and time.monotonic() + patience > until:
                raise TimeoutError(f"{execution_id} is still {found.status}")
            time.sleep(patience)
            patience = min(2 * patience, _SELDOM_SECONDS)
        return found

    def _ask(self, ask: Ask[T]) -> T:
        with self._lock:
            kept = self._connection is not None
            try:
                status, content = self._sent(ask)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self._hang_up()
                if not kept or not _again(ask):
                    raise Unavailable(f"{self._to.address} hung up: {error}") from None
                # It was hung up on us while nothing was asked.
                status, content = self._sent(ask)
            except (OSError, http.client.HTTPException) as error:
                self._hang_up()
                raise Unavailable(f"{self._to.address} cannot be reached: {error}") from None
        return read(ask, status, content)

    def _sent(self, ask: Ask[Any]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connected()
        prefix = urlsplit(self._to.address).path
        self._connection.request(ask.method, prefix + ask.target, ask.content, sent_headers(ask, self._to))
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._to.address)
        host = parts.hostname or ""
        if parts.scheme == "https":
            tls = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(host, parts.port, timeout=self._timeout, context=tls)
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---- what can be asked for ---------------------------------------------------------------

    def health(self) -> answers.HealthReport:
        """How the scheduler is, part by part."""
        return self._ask(asks.health())

    def register(self, job: Mapping[str, Any]) -> answers.JobApplied:
        """Register a job, in the words of a jobs file. The same again changes nothing."""
        return self._ask(asks.register(job))

    def update(self, name: str, job: Mapping[str, Any], *, etag: str | None = None) -> answers.JobApplied:
        """Change a job to what is said; `etag` refuses if it has changed since that was seen."""
        return self._ask(asks.update(name, job, etag))

    def job(self, name: str) -> answers.JobDetail:
        """All there is to know about a job."""
        return self._ask(asks.job(name))

    def delete(self, name: str) -> None:
        """End a job. Its history stays."""
        self._ask(asks.delete(name))

    def trigger(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
        *,
        key: str | None = None,
        force: bool = False,
    ) -> answers.Started:
        """Start an execution of a job; the same key starts one, however often it is asked for."""
        return self._ask(asks.trigger(name, input, key, force=force))

    def pause(self, name: str) -> answers.JobDetail:
        """Let no planned time of a job start anything until it is resumed."""
        return self._ask(asks.pause(name))

    def resume(self, name: str) -> answers.JobDetail:
        """Let a job go on from now."""
        return self._ask(asks.resume(name))

    def planned(self, *, hours: int = 24, limit: int = 1000) -> list[answers.PlannedFire]:
        """The planned times of all jobs in the next hours, the earliest first."""
        return (self._ask(asks.planned(hours, limit))).items

    def why(self, name: str, *, at: str | None = None, last: int | None = None) -> WhyAnswer:
        """Why a job did what it did at a moment, or the last few times, and what it will do next."""
        return self._ask(asks.why(name, at, last))

    def execution(self, execution_id: str) -> answers.ExecutionDetail:
        """All there is to know about an execution."""
        return self._ask(asks.execution(execution_id))

    def cancel(self, execution_id: str) -> answers.Ended:
        """End an execution: what waits at once, what runs as soon as it stops."""
        return self._ask(asks.cancel(execution_id))

    def logs(self, execution_id: str) -> list[answers.LogEntry]:
        """What the steps of an execution have said."""
        return (self._ask(asks.logs(execution_id))).items

    def submit(
        self,
        function: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
        *,
        key: str | None = None,
        **terms: object,
    ) -> answers.Started:
        """Run a function once, without a job; `terms` are fields of a job, such as timeout and retry."""
        return self._ask(asks.submit(function, input, key, terms))

    def dead_letter(self, dead_letter_id: str) -> answers.DeadLetterDetail:
        """A dead letter with every attempt."""
        return self._ask(asks.dead_letter(dead_letter_id))

    def replay(self, dead_letter_id: str, *, key: str | None = None) -> answers.Started:
        """Run again what has failed, as a new execution."""
        return self._ask(asks.replay(dead_letter_id, key))

    def replay_all(self, *, job: str | None = None) -> list[answers.Replay]:
        """Replay every dead letter that nobody has dealt with."""
        return (self._ask(asks.replay_all(job))).items

    def resolve(self, dead_letter_id: str) -> answers.DeadLetterDetail:
        """Mark a dead letter as dealt with."""
        return self._ask(asks.resolve(dead_letter_id))

    def emit(self, name: str, body: object = None, *, key: str | None = None) -> answers.EventDetail:
        """Say that something happened, and start the jobs that listen to it."""
        return self._ask(asks.emit(name, body, key))

    def deploy(self, definition: Mapping[str, Any]) -> answers.WorkflowDeployed:
        """Keep a workflow as a new version, and let its triggers stand."""
        return self._ask(asks.deploy(definition))

    def workers(self) -> list[answers.WorkerDetail]:
        """The workers that are alive."""
        return (self._ask(asks.workers())).items

    def jobs(self, *, tag: str | None = None, page: int = 100) -> Iterator[answers.JobSummary]:
        """Every job by name, read page by page as it is asked for."""
        ask: Ask[answers.Page[answers.JobSummary]] | None = asks.jobs(tag, page)
        while ask is not None:
            found = self._ask(ask)
            yield from found.items
            ask = asks.after(found, ask)

    def executions(self, *, page: int = 100, **asked: object) -> Iterator[answers.Execution]:
        """Executions, the newest first, by job, status, trigger, tag, since and until."""
        ask: Ask[answers.Page[answers.Execution]] | None = asks.executions({"limit": page, **asked})
        while ask is not None:
            found = self._ask(ask)
            yield from found.items
            ask = asks.after(found, ask)

    def ticks(
        self,
        job: str,
        *,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: int = 100,
    ) -> Iterator[answers.LedgerTick]:
        """What became of the planned times of a job, the newest first."""
        ask: Ask[answers.Page[answers.LedgerTick]] | None = asks.ticks(job, kind, since, until, page)
        while ask is not None:
            found = self._ask(ask)
            yield from found.items
            ask = asks.after(found, ask)

    def dead_letters(
        self, *, job: str | None = None, resolved: bool = False, page: int = 100
    ) -> Iterator[answers.DeadLetterSummary]:
        """Dead letters that nobody has dealt with; all of them if `resolved`."""
        ask: Ask[answers.Page[answers.DeadLetterSummary]] | None = asks.dead_letters(job, page, resolved=resolved)
        while ask is not None:
            found = self._ask(ask)
            yield from found.items
            ask = asks.after(found, ask)


def _again(ask: Ask[Any]) -> bool:
    """Whether asking twice is the same as asking once."""
    return ask.method != "POST" or "Idempotency-Key" in ask.headers
