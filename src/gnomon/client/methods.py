"""The methods of both clients in one table; each client binds them to its own way of sending a request."""

import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from gnomon.client import requests
from gnomon.client.transport import CONNECT_TIMEOUT_SECONDS, DEFAULT_ADDRESS, ApiRequest, endpoint_at
from gnomon.core.responses.base import Page

if TYPE_CHECKING:
    from gnomon.client.async_client import AsyncClient
    from gnomon.client.sync_client import Client

T = TypeVar("T")
P = ParamSpec("P")


class _Method(Generic[P, T]):
    """A method that builds a request; it has the docstring and the signature of the function that builds it."""

    def __init__(self, make: Callable[P, ApiRequest[T]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make


class SingleMethod(_Method[P, T]):
    """A method that returns the response."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_single(self.make)


class ListMethod(_Method[P, Page[T]]):
    """A method that returns the items of all pages as a list."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, list[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, list[T]]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_list(self.make)


class PagedMethod(_Method[P, Page[T]]):
    """A method that iterates over the items of all pages and requests a page when it is needed."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_pages(self.make)


class ClientMethods:
    """The server of a client, and a method for every operation of the API."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`timeout` is the number of seconds to wait for a response: 30 by default, 120 for many jobs at once."""
        self._endpoint = endpoint_at(address, token)
        self._timeout = timeout
        self._connect_seconds = CONNECT_TIMEOUT_SECONDS if timeout is None else min(timeout, CONNECT_TIMEOUT_SECONDS)
        self._tls = tls

    def _timeout_for(self, request: ApiRequest[Any]) -> float:
        """How long to wait for the response."""
        return request.timeout if self._timeout is None else self._timeout

    health = SingleMethod(requests.health)
    whoami = SingleMethod(requests.whoami)
    overview = SingleMethod(requests.overview)
    calendar = SingleMethod(requests.calendar)

    register = SingleMethod(requests.register)
    update = SingleMethod(requests.update)
    apply = ListMethod(requests.apply)
    plan = SingleMethod(requests.plan)
    simulate = SingleMethod(requests.simulate)
    jobs = PagedMethod(requests.jobs)
    job = SingleMethod(requests.job)
    delete = SingleMethod(requests.delete)
    trigger = SingleMethod(requests.trigger)
    pause = SingleMethod(requests.pause)
    resume = SingleMethod(requests.resume)
    pause_jobs = ListMethod(requests.pause_jobs)
    resume_jobs = ListMethod(requests.resume_jobs)
    trigger_jobs = ListMethod(requests.trigger_jobs)
    cancel_executions = ListMethod(requests.cancel_executions)
    skip = SingleMethod(requests.skip)
    unskip = SingleMethod(requests.unskip)
    planned = PagedMethod(requests.planned)
    ticks = PagedMethod(requests.ticks)
    revisions = PagedMethod(requests.revisions)
    why = SingleMethod(requests.why)
    explain = SingleMethod(requests.explain)

    backfill = SingleMethod(requests.backfill)
    preview_backfill = SingleMethod(requests.preview_backfill)
    backfills = PagedMethod(requests.backfills)
    backfill_state = SingleMethod(requests.backfill_state)
    cancel_backfill = SingleMethod(requests.cancel_backfill)

    executions = PagedMethod(requests.executions)
    execution = SingleMethod(requests.execution)
    items = PagedMethod(requests.items)
    cancel = SingleMethod(requests.cancel)
    roll_back = SingleMethod(requests.roll_back)
    logs = PagedMethod(requests.logs)
    submit = SingleMethod(requests.submit)

    agent_usage = SingleMethod(requests.agent_usage)
    sessions = ListMethod(requests.sessions)
    session = ListMethod(requests.session)
    clear_session = SingleMethod(requests.clear_session)

    announcements = PagedMethod(requests.announcements)
    announcements_by_prefix = PagedMethod(requests.announcements_by_prefix)
    announcement = SingleMethod(requests.announcement)
    retry_announcement = SingleMethod(requests.retry_announcement)

    breakers = PagedMethod(requests.breakers)
    breaker = SingleMethod(requests.breaker)
    reset_breaker = SingleMethod(requests.reset_breaker)

    held_outputs = PagedMethod(requests.held_outputs)
    held_output = SingleMethod(requests.held_output)
    release_held_output = SingleMethod(requests.release_held_output)
    discard_held_output = SingleMethod(requests.discard_held_output)
    approvals = PagedMethod(requests.approvals)
    approval = SingleMethod(requests.approval)
    ask_for_approval = SingleMethod(requests.ask_for_approval)
    approve = SingleMethod(requests.approve)
    reject = SingleMethod(requests.reject)
    override_approval = SingleMethod(requests.override_approval)
    revoke_approval = SingleMethod(requests.revoke_approval)

    dead_letters = PagedMethod(requests.dead_letters)
    dead_letters_by_prefix = PagedMethod(requests.dead_letters_by_prefix)
    dead_letter = SingleMethod(requests.dead_letter)
    replay = SingleMethod(requests.replay)
    dead_letter_groups = ListMethod(requests.dead_letter_groups)
    replay_all = ListMethod(requests.replay_all)
    resolve_all = ListMethod(requests.resolve_all)
    resolve = SingleMethod(requests.resolve)

    emit = SingleMethod(requests.emit)
    events = PagedMethod(requests.events)
    event = SingleMethod(requests.event)
    deploy = SingleMethod(requests.deploy)
    workflows = PagedMethod(requests.workflows)
    workflow = SingleMethod(requests.workflow)
    upsert_schedule = SingleMethod(requests.upsert_schedule)
    pause_schedule = SingleMethod(requests.pause_schedule)
    schedule = SingleMethod(requests.schedule)
    delete_schedule = SingleMethod(requests.delete_schedule)
    start = SingleMethod(requests.start)
    workers = ListMethod(requests.workers)
    security = SingleMethod(requests.security)
    audit = PagedMethod(requests.audit)
    tokens = PagedMethod(requests.tokens)
    revoke_token = SingleMethod(requests.revoke_token)
    revoke_all_tokens = SingleMethod(requests.revoke_all_tokens)
    sign_in_code = SingleMethod(requests.sign_in_code)
    policy = SingleMethod(requests.policy)
    policy_versions = PagedMethod(requests.policy_versions)
    budgets = PagedMethod(requests.budgets)
    apply_policy = SingleMethod(requests.apply_policy)
    diff_policy = SingleMethod(requests.diff_policy)
    replay_policy = SingleMethod(requests.replay_policy)
    start_policy_shadow = SingleMethod(requests.start_policy_shadow)
    policy_shadow = SingleMethod(requests.policy_shadow)
    stop_policy_shadow = SingleMethod(requests.stop_policy_shadow)
    promote_policy_shadow = SingleMethod(requests.promote_policy_shadow)
    decisions = PagedMethod(requests.decisions)
    explain_policy = SingleMethod(requests.explain_policy)
