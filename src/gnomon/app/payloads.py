"""Decryption of archived payloads."""

from collections.abc import Iterable, Iterator

import msgspec

from gnomon.adapters.payload_cipher import build_cipher
from gnomon.config.settings import Settings
from gnomon.core.payloads import SEALED_FIELD, is_sealed, payload_of_row
from gnomon.errors import UsageError
from gnomon.ports.payloads import PayloadCipher


def decrypted_lines(settings: Settings, lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The lines of an archive with their payloads in plain text, each with whether all of it could be decrypted.

    UsageError without keys. Other lines stay as they are.
    """
    cipher = build_cipher(settings.payload.keys)
    if cipher is None:
        raise UsageError("payload.keys is empty: set the keys that encrypted the archive")
    return (_decrypted(cipher, line) if SEALED_FIELD.encode() in line else (line, True) for line in lines)


def _decrypted(cipher: PayloadCipher, line: bytes) -> tuple[bytes, bool]:
    try:
        row = msgspec.json.decode(line, type=dict[str, object])
        place = payload_of_row(row)
    except (msgspec.DecodeError, KeyError):
        return line, False
    if place is None:
        return line, True
    body = cipher.unseal(place.context, str(row[place.column]).encode())
    return msgspec.json.encode({**row, place.column: body.decode()}) + b"\n", not is_sealed(body)
