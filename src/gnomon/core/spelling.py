"""Suggestions for misspelt words: the nearest known word by edit distance, or none if all are far."""

from collections.abc import Iterable

#: A word of this many letters or fewer may differ by one edit, a longer one by two.
_LETTERS_PER_EDIT = 4
_MOST_EDITS = 2
#: Longer words are not compared: the cost is the product of the lengths.
_LONGEST = 80


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word with the fewest edits, ignoring case; None if it differs too much from all of them."""
    if len(word) > _LONGEST:
        return None
    written = word.lower()
    bound = min(1 + (len(word) - 1) // _LETTERS_PER_EDIT, _MOST_EDITS)
    found: str | None = None
    for candidate in known:
        if abs(len(candidate) - len(word)) > bound:
            continue
        edits = _edits(written, candidate.lower())
        # A word of which half has to be changed is another word.
        if edits <= bound and 2 * edits < len(candidate):
            found, bound = candidate, edits - 1
    return found


def _edits(one: str, other: str) -> int:
    """How many letters to insert, remove, replace, or swap with the next one turn one word into the other."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, wanted in enumerate(other, start=1):
            cost = min(current[-1] + 1, last[column] + 1, last[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        before, last = last, current
    return last[-1]
