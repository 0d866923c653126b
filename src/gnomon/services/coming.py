"""What has come to a worker elsewhere, and what it has to say of it."""

from collections.abc import Sequence

from msgspec import Struct

from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.messaging import Delivered
from gnomon.ports.tasks import Held


class InHand(Struct):
    """An assignment, the message that brought it, and when it came."""

    assignment: Assignment
    delivered: Delivered
    came_at: float
    #: After this instant it is not begun, and after this one not without being granted: by then it may be cancelled.
    deadline: int
    ask_from: int
    #: How often the bus may have forgotten whom it gave what, when it came.
    doubts: int
    #: Whether it may still be begun, whether a server has granted it, and why it is not begun here although it may be.
    waits: bool = True
    granted: bool = False
    refusal: str | None = None

    @property
    def held(self) -> Held:
        """Its task and attempt."""
        return self.assignment.task.task_id, self.assignment.task.fence

    @property
    def doubtful(self) -> bool:
        """Whether somebody else may have been given it before."""
        return self.delivered.doubtful or self.delivered.tries > 1


class Saying(Struct, frozen=True):
    """A report that is being made: what is begun and let go of once it is kept."""

    name: str
    body: bytes
    starts: Sequence[InHand]
    ends: Sequence[Held]
