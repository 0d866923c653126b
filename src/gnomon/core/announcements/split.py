"""Texts in parts that a service accepts, each within its limit, in the units that the service counts."""

from enum import StrEnum

from msgspec import Struct

#: They stand in every part but the last, and in every part but the first.
CONTINUES, CONTINUED = "\n\n(continues...)", "(continued)\n\n"
_FIRST_ASTRAL = 0x10000


class TextUnit(StrEnum):
    """The unit in which a service counts the length of a text."""

    CHARACTERS = "characters"
    #: Characters beyond U+FFFF count twice.
    UTF16 = "utf16"


class TextLimit(Struct, frozen=True):
    """The length that one message may have."""

    most: int
    unit: TextUnit = TextUnit.CHARACTERS

    def measure(self, text: str) -> int:
        """The length of the text in the unit of the limit."""
        if self.unit is TextUnit.CHARACTERS or text.isascii():
            return len(text)
        return len(text) + sum(ord(letter) >= _FIRST_ASTRAL for letter in text)

    def fits(self, text: str) -> bool:
        """Whether the text is no longer than the limit."""
        return self.measure(text) <= self.most


def split_text(text: str, limit: TextLimit | None) -> list[str]:
    """The text in parts within the limit, markers included; the whole text if it fits.

    A part ends behind a line break in its second half, or else behind a space there, or else anywhere. Without their
    markers the parts are the text.
    """
    if limit is None or limit.fits(text):
        return [text]
    parts: list[str] = []
    begin = ""
    while not limit.fits(begin + text):
        space_left = limit.most - limit.measure(begin) - limit.measure(CONTINUES)
        cut = _cut(text, _longest_prefix(text, space_left, limit))
        parts.append(f"{begin}{text[:cut]}{CONTINUES}")
        begin, text = CONTINUED, text[cut:]
    return [*parts, begin + text]


def _longest_prefix(text: str, space_left: int, limit: TextLimit) -> int:
    """The number of characters at the beginning of the text whose length is within `space_left`."""
    if limit.unit is TextUnit.CHARACTERS:
        return space_left
    used = 0
    for count, letter in enumerate(text[:space_left]):
        used += 2 if ord(letter) >= _FIRST_ASTRAL else 1
        if used > space_left:
            return count
    return min(space_left, len(text))


def _cut(text: str, end: int) -> int:
    for mark in ("\n", " "):
        found = text.rfind(mark, end // 2, end)
        if found >= 0:
            return found + 1
    return end
