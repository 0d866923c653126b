"""The inputs of compensations that refer to outputs that are held back: only their attempts get them."""

from msgspec.structs import replace

from gnomon.core.model import Result, TaskId
from gnomon.core.output_policy.ruling import HeldStatus
from gnomon.core.payloads import held_output_context
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.prepare import awaits_held_output, output_owners, prepare_task, undone_item_payloads
from gnomon.ports.output_policy import HeldOutputReader
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.runs import PayloadReader
from gnomon.ports.runtime import Clock

#: The reason holds nothing of the output.
_UNFIT = "bad_input: its input cannot be made of the output that is held back"


class CompensationInputs:
    """Makes these inputs when an attempt begins. They are not stored, and the gate has not seen them."""

    def __init__(
        self, payloads: PayloadReader, held: HeldOutputReader, clock: Clock, *, cipher: PayloadCipher | None
    ) -> None:
        """`cipher` decrypts what is held back."""
        self._payloads, self._held = payloads, held
        self._clock, self._cipher = clock, cipher

    async def completed(self, waiting: ReadyTask, assignment: Assignment) -> Assignment | AttemptOutcome:
        """The assignment as its worker gets it, or the outcome of an attempt that cannot have its input."""
        step, workflow = assignment.step, assignment.workflow
        request = AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input=assignment.input)
        if not awaits_held_output(request):
            return assignment
        owners = output_owners(request)
        kept = await self._payloads.payloads(list(owners), "output")
        outputs: dict[str, bytes | None] = {}
        for owner, name in owners.items():
            stored = kept.get(owner)
            outputs[name] = await self._held_body(waiting.run.tenant, owner) if stored is None else stored
        of_item = [
            (await self._payloads.payloads([owner], kind)).get(owner) for owner, kind in undone_item_payloads(request)
        ]
        made = prepare_task(request, outputs, None, now=self._clock.now(), of_item=of_item)
        if not isinstance(made, AdmissionRequest):
            return AttemptOutcome(result=Result.GAVE_UP, error=_UNFIT)
        return replace(assignment, input=made.input)

    async def _held_body(self, tenant: str, task_id: TaskId) -> bytes | None:
        """The output of the task that is held back; None if none is."""
        found = await self._held.find(tenant, task_id)
        if found is None or found.body is None or found.ruling.status is not HeldStatus.HELD:
            return None
        if self._cipher is None:
            return found.body
        return self._cipher.unseal(held_output_context(task_id), found.body)
