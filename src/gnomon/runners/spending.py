"""The spending of one attempt: how much of each meter of a budget it has used, of what it may."""

from collections.abc import Mapping
from threading import Lock

from gnomon.errors import BudgetExceeded, FieldError

#: The longest name of a meter.
_LONGEST_METER = 128


class AttemptSpending:
    """Counts what a function spends. Any thread may use it."""

    __slots__ = ("_allowed", "_lock", "_spent")

    def __init__(self, allowed: Mapping[str, int]) -> None:
        """`allowed` is how much the attempt may spend of each meter; others have no limit, and are not counted."""
        self._allowed = allowed
        self._spent: dict[str, int] = {}
        self._lock = Lock()

    def spend(self, meter: str, amount: int) -> None:
        """Count the amount; BudgetExceeded, and nothing counted, if the attempt may not spend so much."""
        if not isinstance(meter, str) or not 0 < len(meter) <= _LONGEST_METER:
            raise FieldError("meter", meter, "must be the name of a meter")
        if type(amount) is not int or amount < 0:
            raise FieldError("amount", amount, "must be a whole number, not below 0")
        allowed = self._allowed.get(meter)
        if allowed is None:
            return
        with self._lock:
            spent = self._spent.get(meter, 0)
            if spent + amount > allowed:
                raise BudgetExceeded(meter, amount, left=allowed - spent)
            self._spent[meter] = spent + amount

    @property
    def amounts(self) -> dict[str, int]:
        """How much was spent of each meter."""
        with self._lock:
            return dict(self._spent)
