"""Parses YAML into plain data with the position of each value, from the parser's events, within limits.

Values that need a tag are refused, and so are values that YAML parsers disagree about: `yes`, `1:30`, `010` and dates
must be quoted to be texts.
"""

import re
from collections.abc import Collection, Iterator
from datetime import date
from math import isfinite
from typing import Any, NamedTuple

import yaml

#: How many nodes aliases may add to the document.
_MOST_ALIASED = 100_000
_DEEPEST = 64
_LONGEST_NUMBER = 40
_LONGEST_EXPLAINED = 100_000
_TAGS = "tag:yaml.org,2002:"
_MERGE = "<<"

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]*)?)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?)?"
)
#: Switches, octal, hexadecimal, binary, grouped, sexagesimal and exponential numbers, infinity and NaN.
#: Booleans to some parsers, and texts to others.
_WORDS = ("yes", "no", "on", "off")
_UNCLEAR = re.compile(
    r"(?:yes|no|on|off|[-+]?\.(?:inf|nan)|[-+]?0[0-9_]+|[-+]?0[xob][0-9a-f_]+|[-+]?[0-9][0-9_]*_[0-9_]*"
    r"|[-+]?[0-9][0-9_]*(?::[0-9]{1,2})+(?:\.[0-9_]*)?|[-+]?[0-9._]+e[-+]?[0-9]+)",
    re.IGNORECASE,
)
#: The first characters of values that may be something else than a text.
_NO_TEXT = frozenset("~-+.0123456789tTfFnNyYoO")


class SourcePosition(NamedTuple):
    """A line and a column of a file, counted from 1."""

    line: int
    column: int


class YamlNode:
    """A value and its position. A list holds nodes; a mapping holds nodes and the positions of their keys."""

    __slots__ = ("place", "size", "value")

    def __init__(self, value: Any, place: SourcePosition, size: int = 1) -> None:  # noqa: ANN401 - as varied as YAML is
        self.value, self.place, self.size = value, place, size

    def to_data(self) -> Any:  # noqa: ANN401 - as varied as YAML is
        """The value without positions."""
        if isinstance(self.value, dict):
            return {key: node.to_data() for key, (_, node) in self.value.items()}
        if isinstance(self.value, list):
            return [node.to_data() for node in self.value]
        return self.value

    def position_of(self, path: str) -> SourcePosition:
        """The position of a path such as `jobs[3].retry.max_attempts`, or of the longest part of it that exists."""
        node, place = self, self.place
        for key, index in re.findall(r"([^.\[\]]+)|\[([0-9]+)\]", path):
            keys = {str(known): known for known in node.value} if isinstance(node.value, dict) else {}
            if key and key in keys:
                place, node = node.value[keys[key]]
            elif index and isinstance(node.value, list) and int(index) < len(node.value):
                node = node.value[int(index)]
                place = node.place
            else:
                break
        return place


class YamlDocumentError(Exception):
    """A document is refused: the reason, the position and the path."""

    def __init__(self, reason: str, place: SourcePosition | None = None, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.place, self.path = reason, place, path


def compose(
    text: str, *, instants: Collection[str] = (), flags: re.Pattern[str] | None = None, showing: bool = False
) -> YamlNode:
    """The only document of the text. Under the keys in `instants`, an unquoted date is read as a text.

    At paths that match `flags`, `yes` and the like are texts, which the reader of the field refuses. `showing` allows
    errors to contain values.
    """
    try:
        return _Composer(text, instants, flags, showing=showing).document()
    except yaml.YAMLError as error:
        raise _not_yaml(_explained(text) or error, text) from None


def _explained(text: str) -> yaml.YAMLError | None:
    """The error of the slow parser, which explains more; None if the text is too long for it."""
    if len(text) <= _LONGEST_EXPLAINED:
        try:
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                del event
        except yaml.YAMLError as error:
            return error
    return None


def _not_yaml(error: yaml.YAMLError, text: str) -> YamlDocumentError:
    if not isinstance(error, yaml.MarkedYAMLError):
        return YamlDocumentError(f"is not YAML: {' '.join(str(error).split())}")
    mark = error.problem_mark or error.context_mark
    place = SourcePosition(mark.line + 1, mark.column + 1) if mark else None
    return YamlDocumentError(f"is not YAML: {error.problem or error.context}{_hint(error, text)}", place)


def _hint(error: yaml.MarkedYAMLError, text: str) -> str:
    marks = [mark for mark in (error.problem_mark, error.context_mark) if mark]
    lines = text.split("\n")
    letters = [lines[mark.line][mark.column : mark.column + 1] for mark in marks if mark.line < len(lines)]
    if "\t" in letters:
        return ": indent with spaces, not with tabs"
    special = next((letter for letter in letters if letter and letter in "@*`%"), None)
    return f": a value that begins with {special} must be quoted" if special else ""


class _Composer:
    """Builds nodes from the events of the parser."""

    def __init__(self, text: str, instants: Collection[str], flags: re.Pattern[str] | None, *, showing: bool) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[Any] = yaml.parse(text, Loader=loader)
        self._instants, self._flags, self._showing = instants, flags, showing
        self._anchors: dict[str, YamlNode | None] = {}
        self._aliased = 0
        self._path: list[str] = []

    def document(self) -> YamlNode:
        """The root of the only document."""
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return YamlNode(None, SourcePosition(1, 1))
        root = self._node(next(self._events), _DEEPEST)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise YamlDocumentError("is a second document: a file has only one", _place(after))
        return root

    def _refused(self, reason: str, place: SourcePosition) -> YamlDocumentError:
        return YamlDocumentError(reason, place, self._path_text())

    def _path_text(self) -> str:
        return "".join(self._path).lstrip(".")

    def _node(self, event: Any, depth: int) -> YamlNode:  # noqa: ANN401 - the parser's events have no common type
        place = _place(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), place)
        if not depth:
            raise self._refused("is nested too deeply", place)
        if event.anchor:
            # An alias cannot refer to it until it is complete.
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = YamlNode(self._scalar(event, place), place)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, anchor: str, place: SourcePosition) -> YamlNode:
        node = self._anchors.get(anchor)
        if node is None:
            within = "contains itself" if anchor in self._anchors else "names no anchor before it"
            raise self._refused(f"the alias {within}: a value that begins with * must be quoted", place)
        self._aliased += node.size
        if self._aliased > _MOST_ALIASED:
            raise self._refused("aliases repeat too much", place)
        return node

    def _sequence(self, event: Any, depth: int) -> YamlNode:  # noqa: ANN401 - the parser's events have no common type
        self._check_tag(event, "seq")
        entries: list[YamlNode] = []
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            self._path.append(f"[{len(entries)}]")
            entries.append(self._node(inner, depth - 1))
            self._path.pop()
        return YamlNode(entries, _place(event), 1 + sum(entry.size for entry in entries))

    def _mapping(self, event: Any, depth: int) -> YamlNode:  # noqa: ANN401 - the parser's events have no common type
        self._check_tag(event, "map")
        members: dict[Any, tuple[SourcePosition, YamlNode]] = {}
        merges: list[YamlNode] = []
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            place, key = _place(inner), self._key(inner)
            self._path.append(f".{key}")
            if key in members:
                raise self._refused(f"is given a second time; the first is in line {members[key][0].line}", place)
            members[key] = (place, self._node(next(self._events), depth - 1))
            if key == _MERGE and not inner.style:
                merges = self._merges(members[key][1], place)
            self._path.pop()
        if merges:
            del members[_MERGE]
        for other in merges:
            members = {**other.value, **members}
        return YamlNode(members, _place(event), 1 + sum(1 + node.size for _, node in members.values()))

    def _merges(self, node: YamlNode, place: SourcePosition) -> list[YamlNode]:
        """The mappings to merge, in order of precedence."""
        found = node.value if isinstance(node.value, list) else [node]
        if not all(isinstance(other.value, dict) for other in found):
            raise self._refused("takes a mapping, or a list of them", place)
        return list(found)

    def _key(self, event: Any) -> Any:  # noqa: ANN401 - any scalar; the reader of the mapping may refuse it
        place = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refused("has a key that is no text", place)
        # A field of jobs is called "on"; as a key it is never a boolean.
        return "on" if event.value == "on" else self._scalar(event, place)

    def _check_tag(self, event: Any, *taken: str) -> None:  # noqa: ANN401 - the parser's events have no common type
        if event.tag not in (None, "!", *(_TAGS + tag for tag in taken)):
            reason = f"is not YAML that is taken here: it has the tag {event.tag[:60]}"
            raise self._refused(reason, _place(event))

    def _scalar(self, event: Any, place: SourcePosition) -> Any:  # noqa: ANN401 - any of the simple values
        value: str = event.value
        if event.tag is not None:
            self._check_tag(event, "str")
            return value
        if event.style or (value and value[0] not in _NO_TEXT):
            return value
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if _DATE.fullmatch(value) and self._path and self._path[-1].lstrip(".") in self._instants:
            return value
        if _INTEGER.fullmatch(value) or _DECIMAL.fullmatch(value):
            return self._number(value, place)
        if _DATE.fullmatch(value):
            raise self._refused(self._about_date(value), place)
        if _UNCLEAR.fullmatch(value) and not self._is_flag(value):
            instead = "write true or false, or quote it" if value.lower() in _WORDS else "quote it"
            raise self._refused(f"means different things to different YAML parsers: {instead}", place)
        return value

    def _is_flag(self, value: str) -> bool:
        """Whether it is a word for a boolean, under a field that refuses it by itself."""
        known = self._flags
        return known is not None and value.lower() in _WORDS and known.fullmatch(self._path_text()) is not None

    def _about_date(self, value: str) -> str:
        year, month, day = (int(part) for part in re.findall("[0-9]+", value)[:3])
        try:
            date(year, month, day)
        except ValueError as error:
            why = str(error).partition(":")[0]
            return f"looks like a date or a number to YAML, but is none ({why}): quote it"
        return f"must be a text, not {value}: quote it" if self._showing else "must be a text, not a date: quote it"

    def _number(self, value: str, place: SourcePosition) -> int | float:
        number = float(value)
        if len(value) > _LONGEST_NUMBER or not isfinite(number):
            raise self._refused("is too large a number: quote it to make it a text", place)
        return int(value) if _INTEGER.fullmatch(value) else number


def _place(event: Any) -> SourcePosition:  # noqa: ANN401 - the parser's events have no common type
    return SourcePosition(event.start_mark.line + 1, event.start_mark.column + 1)
