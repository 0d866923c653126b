"""Helpers that read a lark tree: its subtrees and tokens, their numbers, and their position in the text."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gnomon.core.cron.fields import FieldKind
from gnomon.core.english.normalizer import place_of
from gnomon.core.english.statement import SentenceRefusal
from gnomon.core.english.vocabulary import NUMBERS, ORDINALS
from gnomon.errors import Position

if TYPE_CHECKING:
    from typing import TypeAlias

    from lark import Token, Tree

    Node: TypeAlias = Tree[Token]


def trees_in(tree: "Node") -> list["Node"]:
    """The children of a tree that are trees."""
    return [child for child in tree.children if not isinstance(child, str)]


def tokens_in(tree: "Node") -> list["Token"]:
    """The children of a tree that are tokens."""
    return [child for child in tree.children if isinstance(child, str)]


def types_in(tree: "Node") -> list[str]:
    """The types of the tokens directly in a tree."""
    return [token.type for token in tokens_in(tree)]


def of_type(tree: "Node", name: str) -> list["Token"]:
    """The tokens of one type directly in a tree."""
    return [token for token in tokens_in(tree) if token.type == name]


def place_in(tree: "Node") -> Position:
    """The position of a tree in the text."""
    return Position(tree.meta.start_pos, tree.meta.end_pos)


def number_of(token: "Token", kind: FieldKind) -> int:
    """The whole number that a token spells, as a value of a field."""
    word = token.lower()
    if token.type == "ORDINAL":
        value = ORDINALS.index(word) + 1 if word in ORDINALS else int(word[:-2])
    else:
        value = NUMBERS.get(word, -1) if "." in word or word in NUMBERS else int(word)
    if not kind.low <= value <= kind.high:
        reason = f'has "{token}", but a {kind.name} is a whole number from {kind.low} to {kind.high}'
        raise SentenceRefusal(reason, place_of(token))
    return value


def range_of(tree: "Node", kind: FieldKind) -> Iterator[int]:
    """The numbers of a range, as values of a field."""
    start, end = (number_of(token, kind) for token in tokens_in(tree) if token.type != "THROUGH")
    if start > end:
        raise SentenceRefusal("has a range whose start is after its end", place_in(tree))
    yield from range(start, end + 1)


def numbers_of(tree: "Node", kind: FieldKind) -> Iterator[int]:
    """The numbers of a list, as values of a field."""
    for child in tree.children:
        if isinstance(child, str):
            yield number_of(child, kind)
        else:
            yield from range_of(child, kind)


def index_of(token: "Token", names: Iterable[str]) -> int:
    """The index of a name among `names`; its first three letters identify it."""
    return next(place for place, name in enumerate(names) if name[:3].lower() == token[:3].lower())


def cyclic_range(tree: "Node", names: tuple[str, ...]) -> list[int]:
    """The values of a range of names; it may wrap around the end of the week or year."""
    start, end = (index_of(token, names) for token in tokens_in(tree) if token.type != "THROUGH")
    return [(start + step) % len(names) for step in range((end - start) % len(names) + 1)]
