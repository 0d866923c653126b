"""The verbs of the scheduler for the models of agents, on the store of their worker."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.model_names import job_actor, name_of_program
from gnomon.errors import UsageError
from gnomon.ports.runtime import Clock
from gnomon.ports.store import Store

if TYPE_CHECKING:
    from gnomon.api.route import ApiServices


class StoreVerbs:
    """Calls verbs as the API does: with its checks, its limits and its audit trail, in the tenant of the job.

    The worker acts, never the process of the agent. Calls come from the loop of processes, and are worked on in the
    loop of the store.
    """

    def __init__(self, store: Store, settings: Settings, clock: Clock, *, changed: Callable[[], None]) -> None:
        """`changed` is called after a change, to wake the loops that wait for one."""
        self._store, self._settings, self._clock = store, settings, clock
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._services: ApiServices | None = None

    async def call(self, verb: str, arguments: Mapping[str, object], *, job: str, tenant: str) -> str:
        """See SchedulerVerbs.call."""
        work = asyncio.run_coroutine_threadsafe(self._answer(verb, arguments, job, tenant), self._loop)
        return await asyncio.wrap_future(work)

    async def _answer(self, verb: str, arguments: Mapping[str, object], job: str, tenant: str) -> str:
        # The API is large, and workers without such agents do not need it.
        from gnomon.app.gateway import LocalGateway, RequestActor
        from gnomon.client.verbs import call_verb

        gateway = LocalGateway(self._api_services(), RequestActor(job_actor(job), tenant, OriginKind.MCP))
        model = name_of_program(f"agent.{job}")
        # The job lists the verb: the one who added the job has allowed it.
        answer = await call_verb(gateway.send, verb, arguments, model=model, allow_changes=True)
        if answer.failed:
            raise UsageError(json.loads(answer.text)["error"]["message"])
        return answer.text

    def _api_services(self) -> "ApiServices":
        from gnomon.app.gate import build_model_actions
        from gnomon.app.gateway import services_without_scheduler
        from gnomon.app.operations import Operations

        if self._services is None:
            operations = Operations(self._store, self._settings, clock=self._clock)
            services = services_without_scheduler(operations, self._settings, changed=self._changed)
            # The actions of an agent are reserved with its attempt, and must not count twice.
            actions = build_model_actions(self._settings, self._store, self._clock, reserved=True)
            self._services = replace(services, model_actions=actions)
        return self._services
