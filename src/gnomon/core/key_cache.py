"""When fetched keys count, and when they are fetched again. Instants are of a clock that never goes back."""

from msgspec import Struct

from gnomon.core.access import Auth


class Fetching(Struct, frozen=True):
    """What is known about the keys that were fetched."""

    #: When they were last had, and when that was last tried.
    had_at: int | None = None
    tried_at: int | None = None


def counts(state: Fetching, settings: Auth, *, now: int) -> bool:
    """Whether the keys that we have may be used: those of an issuer that is away do not count for ever."""
    return state.had_at is not None and now - state.had_at < max(settings.keys_patience_ms, settings.keys_ttl_ms)


def worth_a_fetch(state: Fetching, settings: Auth, *, known: bool, now: int) -> bool:
    """Whether to ask the issuer: our keys are old, or a token names one we lack; but not again and again."""
    if state.tried_at is not None and now - state.tried_at < settings.refetch_ms:
        return False
    return not known or state.had_at is None or now - state.had_at >= settings.keys_ttl_ms
