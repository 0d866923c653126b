"""Writing changes of many tasks: one that the store cannot write does not hold up the others."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from gnomon.core.model import TaskId
from gnomon.errors import Unavailable
from gnomon.ports.runtime import Events


class TaskChange(Protocol):
    """A change of one task."""

    @property
    def task_id(self) -> TaskId:
        """The task that it changes."""
        ...


C = TypeVar("C", bound=TaskChange)
K = TypeVar("K")


async def write_each(
    changes: Sequence[C], write: Callable[[Sequence[C]], Awaitable[frozenset[K]]], events: Events, *, tries: int
) -> frozenset[K]:
    """Write the changes together; if the store refuses that, each by itself, in so many tries. Return the done ones.

    A task whose change fails in every try is announced, and left for the next time.
    """
    if not changes:
        return frozenset()
    try:
        return await write(changes)
    except Unavailable:
        raise
    except Exception:  # noqa: BLE001 - for any reason: the other changes must be written
        done: frozenset[K] = frozenset()
        for one in changes:
            done |= await _write_alone(one, write, events, tries)
        return done


async def _write_alone(
    one: C, write: Callable[[Sequence[C]], Awaitable[frozenset[K]]], events: Events, tries: int
) -> frozenset[K]:
    error = ""
    for _ in range(tries):
        try:
            return await write([one])
        except Unavailable:
            raise
        except Exception as failure:  # noqa: BLE001 - as above
            error = repr(failure)
    events.emit("task_not_ended", task=one.task_id, tries=tries, error=error)
    return frozenset()
