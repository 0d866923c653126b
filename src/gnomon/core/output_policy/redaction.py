"""Redaction: an output without the texts that were found in it, still valid JSON."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.core.output_policy.scanners import REDACTED, ContentScanner, scanned_text

#: How deep an output may be nested to be redacted.
_DEEPEST = 200


def redacted_output(output: bytes, scanner: ContentScanner) -> bytes | None:
    """The output in JSON with each found text replaced; None if something would still be found in it."""
    try:
        value = msgspec.json.decode(output)
        clean = msgspec.json.encode(_redacted(value, scanner, _DEEPEST))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return None if scanner.matches(scanned_text(clean)) else clean


def redacted_texts(texts: Sequence[str], scanner: ContentScanner) -> list[str]:
    """The lines with each found part replaced. A part may begin in one line and end in another, such as a key."""
    content = "\n".join(texts).encode(errors="replace")
    ranges = scanner.ranges(content)
    if not ranges:
        return list(texts)
    parts, last = list[bytes](), 0
    for start, end in ranges:
        parts += content[last:start], b"\n".join([REDACTED.encode()] * (content.count(b"\n", start, end) + 1))
        last = end
    clean = b"".join((*parts, content[last:])).decode(errors="replace").split("\n")
    if len(clean) == len(texts):
        return clean
    # Some of the texts have several lines of their own.
    found = list[str]()
    for text in texts:
        count = text.count("\n") + 1
        found.append("\n".join(clean[:count]))
        del clean[:count]
    return found


def redacted_text(text: str, scanner: ContentScanner) -> str:
    """The text with each found part replaced."""
    content = text.encode(errors="replace")
    ranges = scanner.ranges(content)
    if not ranges:
        return text
    parts, last = list[bytes](), 0
    for start, end in ranges:
        parts += content[last:start], REDACTED.encode()
        last = end
    return b"".join((*parts, content[last:])).decode(errors="replace")


def _redacted(value: Any, scanner: ContentScanner, depth: int) -> Any:  # noqa: ANN401 - decoded JSON
    if depth == 0:
        raise RecursionError("the output is nested too deep")
    if isinstance(value, str):
        return redacted_text(value, scanner)
    if isinstance(value, dict):
        return _redacted_mapping(value, scanner, depth - 1)
    if isinstance(value, list):
        return [_redacted(one, scanner, depth - 1) for one in value]
    if isinstance(value, bool) or value is None:
        return value
    return REDACTED if scanner.matches(msgspec.json.encode(value)) else value


def _redacted_mapping(value: dict[str, Any], scanner: ContentScanner, depth: int) -> dict[str, Any]:
    """The mapping with its keys and values redacted.

    Some patterns find a name together with its value, such as a password. Then the value is replaced.
    """
    found: dict[str, Any] = {}
    for key, entry in value.items():
        clean_key, clean = redacted_text(key, scanner), _redacted(entry, scanner, depth)
        if not isinstance(clean, dict | list) and clean != REDACTED:
            pair = scanned_text(msgspec.json.encode({clean_key: clean}))
            if scanner.matches(pair):
                clean = REDACTED
        found[_free(clean_key, found)] = clean
    return found


def _free(key: str, taken: dict[str, Any]) -> str:
    """The key, or one like it that is not taken: two keys may have become equal."""
    number, name = 1, key
    while name in taken:
        number += 1
        name = f"{key}_{number}"
    return name
