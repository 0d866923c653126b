"""Finds jobs that call functions which nobody has registered, perhaps because their name is misspelt."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from gnomon.core.jobs.job import Job
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL
from gnomon.core.spelling import nearest


class UnknownFunction(Struct, frozen=True, kw_only=True):
    """A function that is not registered, and the jobs that call it."""

    function: str
    jobs: tuple[str, ...]
    #: A registered function with a similar name.
    meant: str | None


def unknown_functions(jobs: Iterable[Job], known: Collection[str]) -> list[UnknownFunction]:
    """The functions that these jobs call and that are not known, in the order of the jobs."""
    callers: dict[str, dict[str, None]] = {}
    for job in jobs:
        for step in job.workflow.all_steps:
            if step.function not in (None, SHELL, HTTP, AGENT) and step.function not in known:
                callers.setdefault(step.function, {})[job.name] = None
    return [
        UnknownFunction(function=function, jobs=tuple(names), meant=nearest(function, sorted(known)))
        for function, names in callers.items()
    ]
