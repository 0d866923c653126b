"""Outputs that are held back, for admins: what there is, a look at the content, release and deletion."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.jobs.fields import page_limit, printable, schedule_name
from gnomon.core.model import TaskId
from gnomon.core.output_policy.ruling import HeldDecision, HeldOutput, HeldStatus
from gnomon.core.payloads import held_output_context, is_sealed
from gnomon.errors import FieldError, Forbidden, HeldOutputDecided, NotFound, Refused
from gnomon.ports.output_policy import HeldOutputQuery, HeldOutputs
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runtime import Clock

_LONGEST_REASON = 500


class HeldOutputView(Struct, frozen=True, kw_only=True):
    """An output that is or was held back, with its content."""

    held: HeldOutput
    #: None once it was released or discarded.
    content: Any = None
    #: Whether the run goes on, after a release.
    continued: bool = False


class QuarantineService:
    """Lists, shows, releases and discards outputs that are held back."""

    def __init__(self, outputs: HeldOutputs, clock: Clock, *, cipher: PayloadCipher | None = None) -> None:
        """`cipher` decrypts what was encrypted when it was held back."""
        self._outputs, self._clock, self._cipher = outputs, clock, cipher

    async def page(
        self,
        *,
        status: HeldStatus | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        tenant: str = "default",
    ) -> Sequence[HeldOutput]:
        """Outputs that are or were held back, newest first, without their contents."""
        query = HeldOutputQuery(
            tenant=schedule_name("tenant", tenant), status=status, after=after, limit=page_limit(limit)
        )
        return await self._outputs.page(query)

    async def look(self, task: str, *, actor: str, tenant: str = "default") -> HeldOutputView:
        """The output of the task with its content. The look is audited."""
        looked = self._decision(actor, "")
        held = await self._outputs.look(schedule_name("tenant", tenant), _task(task), looked)
        body = self._unsealed(held)
        return HeldOutputView(held=held, content=None if body is None else msgspec.json.decode(body))

    async def release(
        self, task: str, *, actor: str, reason: str, model: bool = False, tenant: str = "default"
    ) -> HeldOutputView:
        """Store the output as that of its task, and let its run go on: the task does not run again.

        The same content of the tenant is let pass from now on. `model` says that a model makes the request.
        """
        if model:
            raise Forbidden("a model may not release outputs: only people may")
        decided = self._decision(actor, _reason(reason))
        if not decided.reason:
            raise FieldError("reason", reason, "is empty: a release needs a reason")
        held = await self._find(task, tenant)
        body = self._unsealed(held)
        if body is None:
            raise HeldOutputDecided(held.ruling.task_id, str(held.ruling.status))
        if is_sealed(body):
            raise Refused("the output is encrypted with a key that this process does not have: set output_policy.keys")
        continued = await self._outputs.release(tenant, held.ruling.task_id, body, decided)
        return HeldOutputView(held=await self._find(task, tenant), continued=continued)

    async def discard(
        self, task: str, *, actor: str, reason: str = "", model: bool = False, tenant: str = "default"
    ) -> HeldOutputView:
        """Delete the content for good. The task and its run stay as they ended."""
        if model:
            raise Forbidden("a model may not discard outputs: only people may")
        held = await self._find(task, tenant)
        await self._outputs.discard(tenant, held.ruling.task_id, self._decision(actor, _reason(reason)))
        return HeldOutputView(held=await self._find(task, tenant))

    async def _find(self, task: str, tenant: str) -> HeldOutput:
        held = await self._outputs.find(schedule_name("tenant", tenant), _task(task))
        if held is None:
            raise NotFound("output that is held back", task)
        return held

    def _unsealed(self, held: HeldOutput) -> bytes | None:
        if held.body is None or self._cipher is None:
            return held.body
        return self._cipher.unseal(held_output_context(held.ruling.task_id), held.body)

    def _decision(self, actor: str, reason: str) -> HeldDecision:
        return HeldDecision(actor=printable("actor", actor), reason=reason, at=self._clock.now())


def _task(name: str) -> TaskId:
    return TaskId(printable("task", name))


def _reason(text: str) -> str:
    return printable("reason", text, longest=_LONGEST_REASON).strip()
