r"""The cost of the patterns in a JSON Schema, computed before the library reads any of them.

The library translates a pattern from the dialect of JSON Schema first. It replaces one escape of a class outside of
brackets, such as `\s`, reads the whole pattern again, and then replaces the next one. A pattern of 4 KB took 2 s.
`pattern_cost` computes from the text of a pattern how long the library needs for it at most, and how many states each
character of a value may pass. That takes time proportional to the text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

# How long each part of the work takes, measured with the slowest patterns of each kind:

#: to read one character of the pattern, once; and what follows for each character, repetition and class in it
_READ_NS, _CHARACTER_NS, _REPETITION_NS, _CLASS_NS = 100, 250, 4_000, 4_000
#: to make one state, one class, and one character of a class, as often as they are repeated; and the most for all of
#: them, since a pattern that needs more memory is refused
_STATE_NS, _CLASS_COPY_NS, _CLASS_CHARACTER_NS, _MOST_COPIES_NS = 600, 3_000, 200, 6_000_000
#: to make a class of Unicode, and to find the other case of one character, or of all of them
_UNICODE_NS, _OTHER_CASE_NS, _ALL_CASES_NS = 300_000, 300, 2_100_000
#: For each escape of a class: how many characters replace it, and how long it takes to make its class.
_REPLACED = {**dict.fromkeys("sS", (30, 5_000)), **dict.fromkeys("wWdD", (6, 2_000))}
#: The states of a class of Unicode.
_UNICODE_STATES = 500
#: More digits than this make a number larger than any limit.
_DIGITS = 6

#: Parts that have no end, as in `[a`, reach to the end of the pattern: it is no pattern.
_ATOM = re.compile(r"\\[pP](?:\{[^}]*\}?|.)|\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\(\?[A-Za-z-]*+[:)]|\(\??|.", re.DOTALL)
#: One of several repetitions of an atom; white space around its numbers counts for nothing.
_REPETITION = re.compile(r"[*+?]|\{\s*+(\d*+)\s*+(?:,\s*+(\d*+)\s*+)?\}")
_FLAGS = re.compile(r"\(\?([A-Za-z-]+)[:)]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
#: A range of characters in brackets; its ends are written as themselves, escaped, or as numbers.
_END = r"(\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[xuU]\{[0-9A-Fa-f]{1,8}\}|.)|[^\\])"
_RANGE = re.compile(f"{_END}-{_END}", re.DOTALL)


class PatternCost(Struct, frozen=True):
    """How much work a pattern is at most."""

    #: The states of its automaton; each character of a value may pass all of them.
    states: int
    #: How long the library takes to translate and compile the pattern.
    compile_ns: int


class _Kind(Struct, frozen=True):
    """The atoms with one text: parts of a pattern that can be repeated."""

    #: How long it takes to make one of them, and to make it once more where it is repeated.
    own_ns: int = 0
    copy_ns: int = _STATE_NS
    states: int = 1
    #: The escapes after which the library reads the pattern again.
    rereads: int = 0
    #: The characters that replace escapes of classes, outside and inside of brackets.
    replaced_outside: int = 0
    replaced_inside: int = 0


def pattern_cost(pattern: str) -> PatternCost:
    """The cost of the pattern; what is repeated counts as often as it may occur.

    Raise ValueError if the pattern has the flag for white space and comments, which hide what is repeated.
    """
    atoms = list(_atoms(pattern))
    texts = {text for text, _ in atoms}
    flags = {flag for text in texts if (found := _FLAGS.match(text)) for flag in found[1]}
    if "x" in flags:
        raise ValueError("has the flag x: write it without white space and comments")
    kinds = {text: _kind(text, any_case="i" in flags) for text in texts}
    states, copies_ns = _copies(atoms, kinds)
    each = [kinds[text] for text, _ in atoms]
    own_ns = sum(kind.own_ns for kind in each) + _REPETITION_NS * sum(times is not None for _, times in atoms)
    own_ns += _CHARACTER_NS * len(pattern) + _translation_ns(len(pattern), each)
    return PatternCost(states, own_ns + min(copies_ns, _MOST_COPIES_NS))


def _atoms(pattern: str) -> Iterator[tuple[str, int | None]]:
    """The text of each atom, and how often it may occur; None if nothing is said of that."""
    place = 0
    while (atom := _ATOM.match(pattern, place)) is not None:
        place, times = atom.end(), None
        while (repetition := _REPETITION.match(pattern, place)) is not None:
            place = repetition.end()
            times = (times or 1) * max(1, *map(_number, repetition.groups("")))
        yield atom[0], times


def _number(digits: str) -> int:
    return int(digits.lstrip("0")[:_DIGITS] or 0)


def _copies(atoms: list[tuple[str, int | None]], kinds: Mapping[str, _Kind]) -> tuple[int, int]:
    """The states of all atoms, each as often as it may occur, and how long it takes to make all of them."""
    open_groups = [[0, 0]]
    for text, said in atoms:
        if text[0] == "(" and text[-1] != ")":
            open_groups.append([0, 0])
            continue
        kind, times = kinds[text], said or 1
        states, copy_ns = kind.states, kind.copy_ns
        if text == ")" and len(open_groups) > 1:
            inner = open_groups.pop()
            states, copy_ns = states + inner[0], copy_ns + inner[1]
        open_groups[-1][0] += states * times
        open_groups[-1][1] += copy_ns * times
    return sum(one[0] for one in open_groups), sum(one[1] for one in open_groups)


def _kind(text: str, *, any_case: bool) -> _Kind:
    letters = _ESCAPE.findall(text)
    replaced = [_REPLACED[letter] for letter in letters if letter in _REPLACED]
    unicode = sum(letter in "pP" for letter in letters)
    controls = letters.count("c")
    in_brackets = text.startswith("[")
    if not (in_brackets or replaced or unicode or text == "."):
        return _Kind(rereads=controls)
    characters = sum(count for count, _ in replaced)
    own_ns = _CLASS_NS + sum(each for _, each in replaced)
    own_ns += unicode * _UNICODE_NS + (_other_cases_ns(text, letters) if any_case else 0)
    return _Kind(
        own_ns=own_ns,
        copy_ns=_CLASS_COPY_NS + _CLASS_CHARACTER_NS * (len(text) + characters + unicode * _UNICODE_STATES),
        states=1 + unicode * _UNICODE_STATES,
        rereads=controls + (0 if in_brackets else len(replaced)),
        replaced_outside=0 if in_brackets else characters,
        replaced_inside=characters if in_brackets else 0,
    )


def _other_cases_ns(text: str, letters: Sequence[str]) -> int:
    """How long it takes to find the other case of each character in a class."""
    # Nearly all characters are in a class inside of brackets that is negated, and may be in one of Unicode.
    all_cases = sum(letter in "SWDpP" for letter in letters) + text.count("[^", 1)
    ranges = sum(min(_ALL_CASES_NS, _OTHER_CASE_NS * _width(*ends)) for ends in _RANGE.findall(text))
    return all_cases * _ALL_CASES_NS + len(text) * _OTHER_CASE_NS + ranges


def _width(first: str, last: str) -> int:
    return max(0, _code_point(last) - _code_point(first))


def _code_point(character: str) -> int:
    digits = character[2:].strip("{}")
    return int(digits, 16) if digits else ord(character[-1])


def _translation_ns(length: int, atoms: list[_Kind]) -> int:
    """How long it takes to read the pattern as often as something in it is replaced, while it grows."""
    inside = sum(atom.replaced_inside for atom in atoms)
    outside = sum(atom.replaced_outside for atom in atoms)
    reads = 1 + sum(atom.rereads for atom in atoms) + bool(inside)
    return _READ_NS * reads * (length + inside + outside // 2)
