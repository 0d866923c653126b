"""Codes that sign a browser in, in memory. No method awaits half-way, so each one is a transaction."""

from gnomon.adapters.memory.state import MemoryTables
from gnomon.core.audit import sign_in_code_entry
from gnomon.ports.auth import Caller
from gnomon.ports.sign_in_codes import SignInCode


class MemorySignInCodes:
    """Implements SignInCodes."""

    def __init__(self, state: MemoryTables) -> None:
        self._state = state

    async def issue(self, code: SignInCode, *, actor: str, now: int) -> None:
        """See SignInCodes.issue."""
        codes, caller = self._state.sign_in_codes, code.caller
        for key in [key for key, one in codes.items() if one.expires_at <= now]:
            del codes[key]
        codes[caller.tenant, caller.subject] = code
        self._state.write_audit([sign_in_code_entry(caller.tenant, caller.subject, code.expires_at, actor, now)])

    async def take(self, digest: str, *, now: int) -> Caller | None:
        """See SignInCodes.take."""
        codes = self._state.sign_in_codes
        found = next((key for key, one in codes.items() if one.digest == digest and one.expires_at > now), None)
        return None if found is None else codes.pop(found).caller
