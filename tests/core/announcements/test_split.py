"""Texts in parts: within the limit in the units of the service, and without a lost character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.announcements.channels import TRAITS, ChannelKind
from gnomon.core.announcements.split import CONTINUED, CONTINUES, TextLimit, TextUnit, split_text

LIMITS = [
    (ChannelKind.TELEGRAM, 4096, "utf-16-le"),
    (ChannelKind.DISCORD, 2000, "utf-32-le"),
    (ChannelKind.SLACK, 40_000, "utf-32-le"),
    (ChannelKind.MATTERMOST, 16_383, "utf-32-le"),
]
WIDTHS = {"utf-16-le": 2, "utf-32-le": 4}
#: Characters of one and of two UTF-16 units, and those behind which a text is cut with preference.
LETTERS = st.sampled_from(["a", "é", "😀", "🚀", " ", "\n", "中"])
TEXTS = st.lists(st.tuples(LETTERS, st.integers(1, 400)), max_size=60).map(
    lambda runs: "".join(letter * count for letter, count in runs)
)


def body_of(part: str, *, first: bool, last: bool) -> str:
    """The part without its markers."""
    if not first:
        assert part.startswith(CONTINUED)
        part = part.removeprefix(CONTINUED)
    if not last:
        assert part.endswith(CONTINUES)
        part = part.removesuffix(CONTINUES)
    return part


def check(text: str, parts: list[str], most: int, encoding: str) -> None:
    lengths = [len(part.encode(encoding)) // WIDTHS[encoding] for part in parts]
    assert max(lengths) <= most
    ends = len(parts) - 1
    bodies = [body_of(part, first=at == 0, last=at == ends) for at, part in enumerate(parts)]
    assert "".join(bodies) == text
    assert len(parts) == 1 or all(bodies)


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(("kind", "most", "encoding"), LIMITS)
@given(text=TEXTS, letter=LETTERS)
def test_every_part_is_within_the_limit_of_its_service_and_nothing_is_lost(
    kind: ChannelKind, most: int, encoding: str, text: str, letter: str
) -> None:
    for whole in (text, letter * (most + 1), letter * (3 * most), text * 20):
        parts = split_text(whole, TRAITS[kind].limit)

        check(whole, parts, most, encoding)
        fits = len(whole.encode(encoding)) // WIDTHS[encoding] <= most
        assert (len(parts) == 1) is fits


@given(text=TEXTS, most=st.integers(64, 300), unit=st.sampled_from(TextUnit))
def test_any_limit_holds(text: str, most: int, unit: TextUnit) -> None:
    encoding = "utf-16-le" if unit is TextUnit.UTF16 else "utf-32-le"

    check(text, split_text(text, TextLimit(most, unit)), most, encoding)


def test_a_text_as_long_as_the_limit_is_one_part_and_one_more_character_makes_two() -> None:
    limit = TextLimit(4096, TextUnit.UTF16)

    assert split_text("😀" * 2048, limit) == ["😀" * 2048]
    assert len(split_text("😀" * 2048 + "a", limit)) == 2


def test_a_part_ends_behind_a_line_break_in_its_second_half_or_else_behind_a_space() -> None:
    limit = TextLimit(100)
    lines = split_text("x" * 60 + "\n" + "y" * 90, limit)
    words = split_text("x" * 60 + " " + "y" * 90, limit)
    early = split_text("x" * 10 + "\n" + "y" * 140, limit)

    assert lines[0] == "x" * 60 + "\n" + CONTINUES
    assert words[0] == "x" * 60 + " " + CONTINUES
    assert early[0] == "x" * 10 + "\n" + "y" * (100 - 11 - len(CONTINUES)) + CONTINUES


def test_a_text_without_a_limit_is_one_part() -> None:
    assert split_text("x" * 100_000, None) == ["x" * 100_000]
