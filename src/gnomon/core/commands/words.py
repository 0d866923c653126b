"""The words of a command as its programs get them: variables and patterns are filled in before the check.

The value of a variable is always a part of the word in which it stands: it is neither split at white space nor taken
for a pattern. A pattern that no path matches stands for itself, as in a shell.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gnomon.core.commands.files import MOST_MATCHES, MOST_PATTERNS, FileView
from gnomon.core.commands.syntax import PartKind, SimpleCommand, VariableAssignment, Word
from gnomon.errors import CommandUnreadable

#: The kernel passes no longer argument to a program, and little more than that many in all.
_MOST_BYTES_OF_WORD = 131_071
_MOST_BYTES = 1_048_576
#: No longer path exists, so that nothing could match.
_LONGEST_PATTERN = 4096
_SPECIAL_SIGN = re.compile(r"[*?\[]")
_SLASHES = re.compile("(/+)")
_ABOVE = re.compile(r"/\.\.(?:/|$)")
_SPECIAL = str.maketrans({character: f"[{character}]" for character in "*?["})


class FilledWord(NamedTuple):
    """A word as a program gets it."""

    #: Its place in the text of the command.
    start: int
    #: Variables and patterns that are not known here stand in it as they are written.
    text: str
    #: The same for people: values of variables, which may be secret, and names of files are not shown.
    shown: str
    is_known: bool
    #: Whether it is written as a pattern.
    is_match: bool = False


class FilledCommand(NamedTuple):
    """A simple command with its words as the program gets them."""

    written: SimpleCommand
    assignments: tuple[tuple[str, FilledWord], ...]
    words: tuple[FilledWord, ...]
    stdin: FilledWord | None

    @property
    def is_known(self) -> bool:
        """Whether everything that the program gets is known here."""
        for word in self.words:
            if not word.is_known:
                return False
        if self.stdin is not None and not self.stdin.is_known:
            return False
        return all(value.is_known for _, value in self.assignments)


class WordFiller:
    """Fills in the words of one text, and counts what they add up to: a short text must not become a huge one."""

    def __init__(
        self, text: str, variables: Mapping[str, str | None], files: FileView, may_list: Callable[[str], bool]
    ) -> None:
        """`variables` are those of the step; None as a value is not known yet.

        `may_list` answers whether the paths in a folder may be looked at, so that no pattern is an answer about others.
        """
        self._text = text
        self._variables = variables
        self._files = files
        self._may_list = may_list
        self._bytes = 0
        self._assigned: frozenset[str] = frozenset()
        self._patterns = 0
        self._matches = 0
        #: Whether every pattern so far could be filled in: if one cannot, there is no plan anyway.
        self._is_listing = True

    def command(self, written: SimpleCommand) -> FilledCommand:
        """The words of a simple command; raise CommandUnreadable if a variable is missing, or they are too many."""
        self._assigned = frozenset(assignment.name for assignment in written.assignments)
        return FilledCommand(
            written,
            tuple(self._assignment(assignment) for assignment in written.assignments),
            tuple(filled for word in written.words for filled in self._words(word)),
            None if written.stdin is None else self._one(written.stdin),
        )

    def _assignment(self, assignment: VariableAssignment) -> tuple[str, FilledWord]:
        # No pattern is filled in behind `NAME=`.
        return assignment.name, self._one(assignment.value)

    def _words(self, word: Word) -> Sequence[FilledWord]:
        if word.is_literal or not word.is_pattern:
            return (self._one(word),)
        self._patterns += 1
        if self._patterns > MOST_PATTERNS:
            raise CommandUnreadable(word.start, f"has more than {MOST_PATTERNS} patterns")
        pattern = self._pattern(word)
        if pattern is None:
            # The value of a variable in it is not known yet, so that nobody can say what matches.
            return (self._one(word)._replace(is_known=False, is_match=True),)
        special = _SPECIAL_SIGN.search(pattern)
        start = special.start() if special else len(pattern)
        if _ABOVE.search(pattern, start) is not None:
            raise CommandUnreadable(word.start, "has .. behind a pattern")
        first = pattern.rfind("/", 0, start) + 1
        found = self._found(word, pattern[:first], _SLASHES.split(pattern[first:]))
        if isinstance(found, FilledWord):
            return (found,)
        if found is None:
            self._is_listing = False
            return (self._one(word)._replace(is_known=False, is_match=True),)
        matches = [self._counted(word, text, known=True) for text in found] or [self._one(word)]
        return [match._replace(is_match=True) for match in matches]

    def _found(self, word: Word, folder: str, parts: Sequence[str]) -> Sequence[str] | FilledWord | None:
        """The paths that match, None if they are not known, or a folder that the pattern may not look into.

        Names and slashes take turns in the parts. A pattern is followed folder by folder, so that it tells nothing
        about files outside to which a link leads.
        """
        paths = [folder]
        for name, slash in zip(parts[::2], [*parts[1::2], ""], strict=True):
            if not name:
                break
            below: list[str] = []
            for path in paths:
                if not self._may_list(path):
                    return self._counted(word, path, known=False)._replace(is_match=True)
                found = self._files.matches(path.translate(_SPECIAL) + name + slash) if self._is_listing else None
                if found is None:
                    return None
                self._matches += len(found)
                if self._matches > MOST_MATCHES:
                    raise CommandUnreadable(word.start, f"has patterns that match more than {MOST_MATCHES} paths")
                below += found
            paths = below
        return sorted(paths, key=lambda path: path.encode(errors="surrogateescape"))

    def _pattern(self, word: Word) -> str | None:
        parts: list[str] = []
        length = 0
        for kind, text in word.parts:
            value = self._value(word, text) if kind is PartKind.VARIABLE else text
            if value is None:
                return None
            length += len(value)
            if length > _LONGEST_PATTERN:
                raise CommandUnreadable(word.start, f"has a pattern of more than {_LONGEST_PATTERN} characters")
            parts.append(value if kind is PartKind.PATTERN else value.translate(_SPECIAL))
        return "".join(parts)

    def _one(self, word: Word) -> FilledWord:
        """The word with its variables, patterns as they are written."""
        parts = word.parts
        if len(parts) == 1 and parts[0].kind is PartKind.TEXT:
            return self._counted(word, parts[0].text, known=True)
        known, length, texts = True, 0, []
        for kind, text in parts:
            value = self._value(word, text) if kind is PartKind.VARIABLE else text
            if value is None:
                known, value = False, f"${text}"
            length += len(value)
            if length > _MOST_BYTES_OF_WORD:
                raise CommandUnreadable(word.start, f"has a word of more than {_MOST_BYTES_OF_WORD} bytes")
            texts.append(value)
        return self._counted(word, "".join(texts), known=known)

    def _value(self, word: Word, name: str) -> str | None:
        if name not in self._variables:
            place = self._text.find(f"${name}", word.start)
            raise CommandUnreadable(place, f"has ${name}, which is not in the env of the step")
        if name in self._assigned:
            # Shells differ in whether such a word has the old value or the new one.
            raise CommandUnreadable(word.start, f"sets {name} and has ${name} for the same program")
        value = self._variables[name]
        if value is not None and "\0" in value:
            raise CommandUnreadable(word.start, f"has ${name}, whose value has a NUL character")
        return value

    def _counted(self, word: Word, text: str, *, known: bool) -> FilledWord:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise CommandUnreadable(word.start, "has a word that is not UTF-8") from None
        self._bytes += size + 1
        if size > _MOST_BYTES_OF_WORD:
            raise CommandUnreadable(word.start, f"has a word of more than {_MOST_BYTES_OF_WORD} bytes")
        if self._bytes > _MOST_BYTES:
            raise CommandUnreadable(word.start, f"has words of more than {_MOST_BYTES} bytes")
        return FilledWord(word.start, text, text if word.is_literal else self._text[word.start : word.end], known)
