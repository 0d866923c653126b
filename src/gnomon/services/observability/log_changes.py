"""Changes of logs, of which an execution has at most one a second: those in between are told together."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from gnomon.ports.change_log import Change

#: The least time between two changes of the log of an execution.
INTERVAL_SECONDS = 1.0
#: The tenant and the id of an execution.
_Execution = tuple[str, str]


class LogChanges:
    """Passes the first change of a log on at once, and holds back the next ones for a moment."""

    def __init__(self, publish: Callable[[Change], None], *, interval: float = INTERVAL_SECONDS) -> None:
        self._publish = publish
        self._interval = interval
        #: The executions that have had a change a moment ago, with what was held back since.
        self._held: dict[_Execution, Change | None] = {}

    def add(self, change: Change) -> None:
        """Publish the change, now or with those that follow it. It is of the kind `log`."""
        key = change.tenant, change.facts["execution_id"]
        if key not in self._held:
            self._pass_on(key, change)
            return
        earlier = self._held[key]
        self._held[key] = change if earlier is None else merged_log_changes(earlier, change)

    def _pass_on(self, key: _Execution, change: Change) -> None:
        self._held[key] = None
        asyncio.get_running_loop().call_later(self._interval, self._release, key)
        self._publish(change)

    def _release(self, key: _Execution) -> None:
        change = self._held.pop(key)
        if change is not None:
            self._pass_on(key, change)


def merged_log_changes(earlier: Change, later: Change) -> Change:
    """One change instead of two of the same execution: the sum of their lines; without a step if they have two."""
    facts = later.facts | {"lines": earlier.facts["lines"] + later.facts["lines"]}
    if any(earlier.facts[name] != later.facts[name] for name in ("step", "attempt")):
        facts |= {"step": None, "attempt": None}
    return replace(later, facts=facts)
