"""The rulings on outputs in memory. No method awaits half-way, so each one is a transaction."""

from collections.abc import Sequence

from msgspec.structs import replace

from gnomon.adapters.memory.rules import MemoryRules
from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import Action, held_output_entry
from gnomon.core.model import TaskId
from gnomon.core.output_policy.ruling import HeldDecision, HeldOutput, HeldStatus, StoredOutputRuling
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.core.runs.states import TaskState
from gnomon.errors import HeldOutputDecided, NotFound
from gnomon.ports.output_policy import HeldOutputQuery
from gnomon.ports.tasks import AttemptRef


class MemoryOutputRulings:
    """Implements OutputRulings."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def of_task(self, tenant: str, task_id: TaskId) -> StoredOutputRuling | None:
        """See OutputRulings.of_task."""
        found = [one for (name, _), one in sorted(self._state.output_rulings.items()) if name == task_id]
        return found[-1] if found and found[-1].tenant == tenant else None

    async def is_exempt(self, tenant: str, content_digest: str) -> bool:
        """See OutputRulings.is_exempt."""
        return (tenant, content_digest) in self._state.output_exemptions


class MemoryHeldOutputs:
    """Implements HeldOutputs."""

    def __init__(self, state: MemoryTables, rules: MemoryRules) -> None:
        self._state, self._rules = state, rules

    async def page(self, query: HeldOutputQuery) -> Sequence[HeldOutput]:
        """See HeldOutputs.page."""
        found = [
            one
            for one in self._state.output_rulings.values()
            if one.tenant == query.tenant and one.status is not None and query.status in (None, one.status)
        ]
        found.sort(key=lambda one: (one.ruled_at, one.task_id), reverse=True)
        page = [one for one in found if query.after is None or (one.ruled_at, one.task_id) < query.after]
        return [HeldOutput(ruling=one, body=None) for one in page[: query.limit]]

    async def find(self, tenant: str, task_id: TaskId) -> HeldOutput | None:
        """See HeldOutputs.find."""
        ref = self._ref(tenant, task_id)
        return None if ref is None else self._held(ref)

    async def look(self, tenant: str, task_id: TaskId, looked: HeldDecision) -> HeldOutput:
        """See HeldOutputs.look."""
        held = self._held(self._known(tenant, task_id))
        self._state.write_audit([held_output_entry(Action.LOOK, held.ruling, looked)])
        return held

    async def release(self, tenant: str, task_id: TaskId, output: bytes, decided: HeldDecision) -> bool:
        """See HeldOutputs.release."""
        state, ref = self._state, self._known(tenant, task_id)
        self._decide(ref, HeldStatus.RELEASED, decided)
        task = state.tasks[task_id]
        state.tasks[task_id] = replace(task, state=TaskState.SUCCEEDED, note=None)
        state.payloads[task_id, "output"] = output
        state.output_exemptions.setdefault((tenant, state.output_rulings[ref].content_digest), task_id)
        return self._rules.go_on_after_release(task, decided.at)

    async def discard(self, tenant: str, task_id: TaskId, decided: HeldDecision) -> None:
        """See HeldOutputs.discard."""
        self._decide(self._known(tenant, task_id), HeldStatus.DISCARDED, decided)

    def _decide(self, ref: AttemptRef, status: HeldStatus, decided: HeldDecision) -> None:
        state, held = self._state, self._state.output_rulings[ref]
        if held.status is not HeldStatus.HELD:
            raise HeldOutputDecided(held.task_id, str(held.status))
        state.output_rulings[ref] = replace(
            held, status=status, decided_by=decided.actor, decided_at=decided.at, decided_why=decided.reason
        )
        state.held_outputs.pop(ref, None)
        self._rules.resolve(dead_letter_id(held.task_id), f"output {status.value}", decided.at)
        action = Action.RELEASE if status is HeldStatus.RELEASED else Action.DISCARD
        state.write_audit([held_output_entry(action, held, decided)])

    def _held(self, ref: AttemptRef) -> HeldOutput:
        return HeldOutput(ruling=self._state.output_rulings[ref], body=self._state.held_outputs.get(ref))

    def _known(self, tenant: str, task_id: TaskId) -> AttemptRef:
        ref = self._ref(tenant, task_id)
        if ref is None:
            raise NotFound("output that is held back", task_id)
        return ref

    def _ref(self, tenant: str, task_id: TaskId) -> AttemptRef | None:
        found = [
            ref
            for ref, one in sorted(self._state.output_rulings.items())
            if ref[0] == task_id and one.tenant == tenant and one.status is not None
        ]
        return found[-1] if found else None
