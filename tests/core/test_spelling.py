"""The nearest word: few edits, relative to the length of the word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.spelling import nearest

WORDS = ["on", "tags", "retry", "requires", "schedule", "timezone"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("schedlue", "schedule"),  # two letters swapped
        ("scedule", "schedule"),
        ("scheduule", "schedule"),
        ("SCHEDULE", "schedule"),
        ("rety", "retry"),
        ("cron", None),
        ("args", None),
        ("no", None),
        ("in", None),
        ("t", None),
    ],
)
def test_the_nearest_word_differs_by_few_edits(word: str, found: str | None) -> None:
    assert nearest(word, WORDS) == found


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=12)))
def test_a_known_word_is_its_own_nearest_and_nothing_unknown_is_found(word: str, known: list[str]) -> None:
    found = nearest(word, known)

    assert found is None or found in known
    if word and word in known:
        assert found is not None
        assert found.lower() == word.lower()


def test_a_word_without_end_is_compared_with_none() -> None:
    assert nearest("a" * 1_000_000, ["a" * 999_999]) is None
