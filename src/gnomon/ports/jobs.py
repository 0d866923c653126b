"""Jobs: workflows and their schedules, registered together."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import Schedule, Verdict
from gnomon.core.runs.workflow import Workflow


class Edit(Struct, frozen=True):
    """A change of a schedule, as Schedules.change takes it."""

    verdict: Verdict
    changed: Schedule


class Application(Struct, frozen=True, kw_only=True):
    """What an operator's wish comes to: carried out whole, or not at all."""

    #: New versions.
    workflows: Sequence[Workflow] = ()
    #: New schedules.
    added: Sequence[Schedule] = ()
    edits: Sequence[Edit] = ()
    #: Schedules that are to go, as Schedules.delete takes them.
    removed: Sequence[Verdict] = ()


class Jobs(Protocol):
    """Every method is one transaction."""

    async def workflow(self, tenant: str, workflow_id: str, version: int | None = None) -> Workflow | None:
        """That version of the workflow; the newest, if none is named."""
        ...

    async def page_of_workflows(self, tenant: str, *, after: str, limit: int) -> Sequence[Workflow]:
        """The newest version of each workflow whose id comes after `after`, in the order of their ids."""
        ...

    async def newest_workflows(self, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
        """The newest version of each that exists."""
        ...

    async def apply(self, wish: Application, *, now: int, actor: str, tzdata: str) -> bool:
        """Carry the whole wish out, if every schedule is still as it was read and every name and version is free.

        False, and nothing is done, otherwise.
        """
        ...
