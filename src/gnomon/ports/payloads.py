"""The cipher of payloads."""

from typing import Protocol


class PayloadCipher(Protocol):
    """Encrypts payloads in the store and on the bus."""

    def seal(self, context: str, body: bytes) -> bytes:
        """The payload in an envelope (core/payloads.py) that opens only under this context."""
        ...

    def fingerprint(self, body: bytes) -> bytes:
        """A digest of the payload that only holders of the key can compute."""
        ...

    def unseal(self, context: str, body: bytes) -> bytes:
        """The payload in the envelope.

        An envelope that cannot be opened, because its key is missing or it was altered or moved, is returned as it is.
        So is a payload that was never encrypted.
        """
        ...
