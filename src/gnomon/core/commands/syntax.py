r"""The grammar of guarded commands: the part of the shell's language whose meaning is certain before it runs.

    command     pipeline, then further ones behind `;`, a new line, `&&` or `||`
    pipeline    simple commands with `|` between them
    simple      NAME=value …, a program, its words; with `< file`, `>/dev/null`, `2>/dev/null` and `2>&1` anywhere
    word        plain characters, 'text', "text with $NAME", \c, $NAME, and the patterns * ? [abc] [!a-z]

A text that this grammar does not cover is refused with the position of the first character that it does not cover, also
where a shell would find a meaning. The text is read once, from left to right, in linear time.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import ClassVar, NamedTuple

from gnomon.core.commands.plan import Connector, OutputTarget
from gnomon.errors import CommandUnreadable

LONGEST_COMMAND = 16_384
#: A longer list of programs is a script, which belongs into a file.
MOST_PROGRAMS = 500
#: A text with more words, or with words of more parts, costs more time than its check is worth.
MOST_WORDS = 2500
MOST_PARTS = 5000

#: The only file that a guarded command may name behind `>`.
NULL_DEVICE = "/dev/null"
#: Control characters apart from tab and new line, white space that only some programs take for such, characters that
#: change how the text is shown, and halves of characters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200b\u200e\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_SPACE = re.compile(r"(?:[ \t]|(?<=[ \t])\\\n)*")
_SPACE_BEGINS = frozenset(" \t\\")
_PLAIN = re.compile(r"[^ \t\n|&;<>()$`\"'\\*?\[{}~#]+")
#: A word of such characters alone, up to its end.
_PLAIN_WORD = re.compile(r"[^ \t\n|&;<>()$`\"'\\*?\[{}~#]++(?=[ \t\n|&;<>]|\Z)")
_IN_QUOTES = re.compile(r"[^\"$`\\]+")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_DOLLAR = re.compile(r"\$(?=[ \t\n;|&<>/.,:%=+]|\Z)")
_DOLLAR_IN_QUOTES = re.compile(r"\$(?=[ \t\n\"|)/.,:;%=+\]&<>])")
_BRACKETS = re.compile(r"\[!?((?:[A-Za-z0-9_.,:=@%+](?:-[A-Za-z0-9_.,:=@%+])?)+)\]")
_RANGE = re.compile("(.)-(.)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_REDIRECTION = re.compile(r"([0-9]*)([<>])")
_ENDS = frozenset(" \t\n|&;<>()")
#: Words with which a shell begins or continues something other than a simple command.
_RESERVED = frozenset(
    "! [[ ]] case coproc do done elif else esac fi for function if in select then time until while".split()
)
_CONNECTORS = {"&&": Connector.AND, "||": Connector.OR}


class PartKind(Enum):
    """The kinds of parts of a word."""

    TEXT = "text"
    #: A variable, by its name.
    VARIABLE = "variable"
    #: Characters of a pattern for paths.
    PATTERN = "pattern"


class WordPart(NamedTuple):
    """A part of a word: its kind, and its text without quotes."""

    kind: PartKind
    text: str


_KIND = attrgetter("kind")


class Word(NamedTuple):
    """A word: its place in the text of the command, and its parts."""

    start: int
    end: int
    parts: tuple[WordPart, ...]

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for the paths that match it."""
        return PartKind.PATTERN in map(_KIND, self.parts)

    @property
    def is_literal(self) -> bool:
        """Whether it has neither variables nor patterns."""
        if len(self.parts) == 1:
            return self.parts[0].kind is PartKind.TEXT
        return list(map(_KIND, self.parts)).count(PartKind.TEXT) == len(self.parts)

    @property
    def text(self) -> str | None:
        """The text of a word that has no variables and no patterns."""
        if not self.is_literal:
            return None
        return "".join(part.text for part in self.parts)


class VariableAssignment(NamedTuple):
    """A variable of one program."""

    name: str
    value: Word


class SimpleCommand(NamedTuple):
    """A program with its words, as they are written. The first word is the program."""

    assignments: tuple[VariableAssignment, ...]
    words: tuple[Word, ...]
    stdin: Word | None
    stdout: OutputTarget
    stderr: OutputTarget


class Pipeline(NamedTuple):
    """Simple commands side by side."""

    connector: Connector
    commands: tuple[SimpleCommand, ...]


def read_command(text: str) -> tuple[Pipeline, ...]:
    """The pipelines of a text; raise CommandUnreadable with the position of what the grammar does not cover."""
    if len(text) > LONGEST_COMMAND:
        raise CommandUnreadable(LONGEST_COMMAND, f"is longer than {LONGEST_COMMAND} characters")
    if found := _UNPRINTABLE.search(text):
        raise CommandUnreadable(found.start(), f"has the character U+{ord(found[0]):04X}, which is not printable")
    return _CommandReader(text).pipelines()


class _Redirections:
    """The effect of the redirections of a simple command so far."""

    def __init__(self) -> None:
        self.stdin: Word | None = None
        self.stdout = OutputTarget.INHERIT
        self.stderr = OutputTarget.INHERIT


class _CommandReader:
    """Reads a text from left to right. Every method begins at the position, and leaves it behind what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._programs = self._words = self._parts = 0

    def pipelines(self) -> tuple[Pipeline, ...]:
        """All pipelines of the text."""
        found = []
        connector = Connector.ALWAYS
        self._skip_lines()
        while self._at < len(self._text):
            found.append(Pipeline(connector, self._pipeline()))
            connector = self._connector()
        if not found or connector is not Connector.ALWAYS:
            raise CommandUnreadable(self._at, "ends where a program is missing")
        return tuple(found)

    def _pipeline(self) -> tuple[SimpleCommand, ...]:
        commands = [self._simple()]
        while self._char() == "|" and not self._text.startswith("||", self._at):
            self._at += 1
            self._skip_lines()
            commands.append(self._simple())
        return tuple(commands)

    def _connector(self) -> Connector:
        """The connector behind a pipeline; empty lines behind it are skipped."""
        operator = self._text[self._at : self._at + 2]
        if operator in _CONNECTORS:
            self._at += 2
            self._skip_lines()
            return _CONNECTORS[operator]
        if operator[:1] == ";":
            self._at += 1
            if self._char() == ";":
                raise CommandUnreadable(self._at, "has a second ; without a program before it")
        elif operator[:1] == "&":
            raise CommandUnreadable(self._at, "has a &, which would leave a program in the background")
        self._skip_lines()
        return Connector.ALWAYS

    def _simple(self) -> SimpleCommand:
        """A simple command, up to the operator or the end of the line behind it."""
        self._programs += 1
        if self._programs > MOST_PROGRAMS:
            raise CommandUnreadable(self._at, f"starts more than {MOST_PROGRAMS} programs: put it into a script")
        assignments: list[VariableAssignment] = []
        words: list[Word] = []
        redirections = _Redirections()
        began = self._at
        while (char := self._char()) and char not in "\n|&;":
            if char in "<>0123456789" and (found := _REDIRECTION.match(self._text, self._at)):
                self._redirect(redirections, found)
            elif not words and (named := _ASSIGNMENT.match(self._text, self._at)):
                start = self._at
                self._at = named.end()
                assignments.append(VariableAssignment(named[1], self._word(start)))
            else:
                words.append(self._word(self._at))
                if len(words) == 1:
                    self._check_program(words[0])
            self._skip_space()
        if not words:
            raise CommandUnreadable(self._at if began == self._at else began, "has no program here")
        return SimpleCommand(
            tuple(assignments), tuple(words), redirections.stdin, redirections.stdout, redirections.stderr
        )

    def _check_program(self, word: Word) -> None:
        written = self._text[word.start : word.end]
        if written in _RESERVED:
            raise CommandUnreadable(word.start, f"has {written}, a word of control flow")

    def _redirect(self, found: _Redirections, operator: re.Match[str]) -> None:
        began, (number, direction) = self._at, operator.groups()
        self._at = operator.end()
        following = self._char()
        if direction == "<":
            self._redirect_input(found, began, number, following)
        elif number == "2" and following == "&":
            self._merge_errors(found, began)
        elif number not in ("", "1", "2") or following in ("&", ">", "|"):
            raise CommandUnreadable(began, "has a redirection other than < file, 2>&1, >/dev/null and 2>/dev/null")
        else:
            self._discard_output(found, began, number)

    def _redirect_input(self, found: _Redirections, began: int, number: str, following: str) -> None:
        if following == "<":
            raise CommandUnreadable(began, "has a here-document or here-string: give the text as stdin")
        if number not in ("", "0") or following in ("&", ">", "("):
            raise CommandUnreadable(began, "has a redirection other than < file, 2>&1, >/dev/null and 2>/dev/null")
        if found.stdin is not None:
            raise CommandUnreadable(began, "reads a second file")
        target = self._target(began)
        if target.is_pattern:
            raise CommandUnreadable(target.start, "has a pattern behind <: name one file")
        found.stdin = target

    def _discard_output(self, found: _Redirections, began: int, number: str) -> None:
        if self._target(began).text != NULL_DEVICE:
            raise CommandUnreadable(began, f"writes to a file: only {NULL_DEVICE} may stand behind >")
        if number == "2":
            found.stderr = OutputTarget.NULL
        elif found.stderr is OutputTarget.STDOUT:
            raise CommandUnreadable(began, f"must have >{NULL_DEVICE} before 2>&1")
        else:
            found.stdout = OutputTarget.NULL

    def _merge_errors(self, found: _Redirections, began: int) -> None:
        behind = self._text[self._at + 1 : self._at + 3]
        if behind[:1] != "1" or (behind[1:] and behind[1] not in _ENDS):
            raise CommandUnreadable(began, "has a redirection other than < file, 2>&1, >/dev/null and 2>/dev/null")
        self._at += 2
        found.stderr = OutputTarget.NULL if found.stdout is OutputTarget.NULL else OutputTarget.STDOUT

    def _target(self, began: int) -> Word:
        """The word behind a redirection."""
        self._skip_space()
        if self._char() in _ENDS or not self._char():
            raise CommandUnreadable(began, "has a redirection without a file")
        return self._word(self._at)

    def _word(self, start: int) -> Word:
        """A word; what precedes it since `start` is the name of an assignment."""
        self._words += 1
        if self._words > MOST_WORDS:
            raise CommandUnreadable(start, f"has more than {MOST_WORDS} words: put them into a file")
        if (plain := _PLAIN_WORD.match(self._text, self._at)) and self._parts < MOST_PARTS:
            self._parts += 1
            self._at = plain.end()
            return Word(start, self._at, (WordPart(PartKind.TEXT, plain[0]),))
        parts: list[WordPart] = []
        if self._char() == "#" and start == self._at:
            raise CommandUnreadable(self._at, "has a comment: put a # that is meant into quotes")
        while (char := self._char()) and char not in _ENDS:
            if found := _PLAIN.match(self._text, self._at):
                parts.append(WordPart(PartKind.TEXT, found[0]))
                self._at = found.end()
            else:
                self._READERS[char](self, parts)
            if len(parts) > MOST_PARTS - self._parts:
                raise CommandUnreadable(start, f"has words of more than {MOST_PARTS} parts: put them into a file")
        self._parts += len(parts)
        if char in ("(", ")"):
            raise CommandUnreadable(self._at, f"has a {char}: groups and functions are no simple commands")
        return Word(start, self._at, tuple(parts))

    def _single_quotes(self, parts: list[WordPart]) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise CommandUnreadable(self._at, "has a ' that is not closed")
        parts.append(WordPart(PartKind.TEXT, self._text[self._at + 1 : end]))
        self._at = end + 1

    def _double_quotes(self, parts: list[WordPart]) -> None:
        began = self._at
        self._at += 1
        parts.append(WordPart(PartKind.TEXT, ""))
        while (char := self._char()) != '"':
            if not char:
                raise CommandUnreadable(began, 'has a " that is not closed')
            if char == "$":
                self._dollar(parts, _DOLLAR_IN_QUOTES)
            elif char == "\\":
                self._backslash_in_quotes(parts)
            elif char == "`":
                self._backtick(parts)
            elif found := _IN_QUOTES.match(self._text, self._at):
                parts.append(WordPart(PartKind.TEXT, found[0]))
                self._at = found.end()
        self._at += 1

    def _backslash_in_quotes(self, parts: list[WordPart]) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            raise CommandUnreadable(self._at, "continues a line within quotes")
        escaped = following and following in '$`"\\'
        parts.append(WordPart(PartKind.TEXT, following if escaped else "\\"))
        self._at += 2 if escaped else 1

    def _backslash(self, parts: list[WordPart]) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in ("", "\n"):
            raise CommandUnreadable(self._at, "has a \\ before the end of a line, and no space before it")
        parts.append(WordPart(PartKind.TEXT, following))
        self._at += 2

    def _backtick(self, _: list[WordPart]) -> None:
        raise CommandUnreadable(self._at, "has a `, which would run another command")

    def _any_dollar(self, parts: list[WordPart]) -> None:
        self._dollar(parts, _DOLLAR)

    def _dollar(self, parts: list[WordPart], alone: re.Pattern[str]) -> None:
        if found := _VARIABLE.match(self._text, self._at):
            parts.append(WordPart(PartKind.VARIABLE, found[1]))
        elif found := alone.match(self._text, self._at):
            parts.append(WordPart(PartKind.TEXT, "$"))
        else:
            raise CommandUnreadable(self._at, _dollar_reason(self._text[self._at + 1 : self._at + 2]))
        self._at = found.end()

    def _pattern(self, parts: list[WordPart]) -> None:
        parts.append(WordPart(PartKind.PATTERN, self._text[self._at]))
        self._at += 1

    def _brackets(self, parts: list[WordPart]) -> None:
        found = _BRACKETS.match(self._text, self._at)
        if found is None:
            raise CommandUnreadable(
                self._at, "has a [ that is not a pattern such as [abc] or [!a-z]: put it into quotes"
            )
        if any(low > high for low, high in _RANGE.findall(found[1])):
            raise CommandUnreadable(self._at, "has a range in brackets that ends before it begins")
        parts.append(WordPart(PartKind.PATTERN, found[0]))
        self._at = found.end()

    def _tilde(self, parts: list[WordPart]) -> None:
        before = self._text[self._at - 1 : self._at]
        if before in ("", " ", "\t", "\n", "=", ":") or before in _ENDS:
            raise CommandUnreadable(
                self._at, "has a ~ that stands for a home folder: put a ~ that is meant into quotes"
            )
        self._literal(parts)

    def _brace(self, _: list[WordPart]) -> None:
        raise CommandUnreadable(self._at, f"has a {self._char()}: put it into quotes")

    def _literal(self, parts: list[WordPart]) -> None:
        parts.append(WordPart(PartKind.TEXT, self._char()))
        self._at += 1

    def _char(self) -> str:
        """The next character; an empty text at the end."""
        return self._text[self._at : self._at + 1]

    def _skip_space(self) -> None:
        if self._char() in _SPACE_BEGINS and (found := _SPACE.match(self._text, self._at)):
            self._at = found.end()

    def _skip_lines(self) -> None:
        """Skip white space and empty lines."""
        self._skip_space()
        while self._char() == "\n":
            self._at += 1
            self._skip_space()

    #: How a part begins that is not made of plain characters, and the method that reads it.
    _READERS: ClassVar[Mapping[str, Callable[["_CommandReader", list[WordPart]], None]]] = {
        "'": _single_quotes,
        '"': _double_quotes,
        "\\": _backslash,
        "$": _any_dollar,
        "`": _backtick,
        "*": _pattern,
        "?": _pattern,
        "[": _brackets,
        "~": _tilde,
        "#": _literal,
        "{": _brace,
        "}": _brace,
    }


def _dollar_reason(following: str) -> str:
    if following == "(":
        return "has a $(, which would run another command"
    if following == "{":
        return "has a ${: write $NAME for a variable of env"
    return "has a $ that is no $NAME of a variable of env: put it into single quotes"
