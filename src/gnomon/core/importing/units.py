"""Unit files of systemd: sections of assignments, and the command lines in them."""

import re
import shlex
from collections.abc import Iterator, Mapping

from gnomon.core.importing.variables import inside_quotes
from gnomon.errors import FieldError

_PREFIXES = re.compile(r"[-@:+!|]*")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_ESCAPED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_SPECIFIER = re.compile(r"%(.?)", re.DOTALL)
_LAST_CHARACTER = 0x10FFFF


class Unit:
    """What a unit file says."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._said: dict[str, list[tuple[str, str]]] = {}
        section = ""
        for line in _lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1].strip()
            elif "=" in line:
                key, _, value = line.partition("=")
                self._said.setdefault(section, []).append((key.strip(), value.strip()))

    def all(self, section: str, key: str) -> list[str]:
        """Every value of a key. An empty one takes back those before it."""
        values = [value for name, value in self._said.get(section, ()) if name == key]
        if "" in values:
            values = values[len(values) - values[::-1].index("") :]
        return values

    def last(self, section: str, key: str, default: str = "") -> str:
        """The value that counts."""
        return next(reversed(self.all(section, key)), default)

    def yes(self, section: str, key: str) -> bool:
        """Whether it is switched on."""
        return self.last(section, key).lower() in ("1", "yes", "y", "true", "t", "on")

    def keys(self, section: str) -> list[str]:
        """What the section says something about, each once."""
        return list(dict.fromkeys(key for key, value in self._said.get(section, ()) if value))

    def filled(self, field: str, text: str) -> str:
        """The text with what systemd fills in for a %."""
        prefix, _, _ = self.name.rpartition(".")
        stem, _, instance = prefix.partition("@")
        known = {"%": "%", "n": self.name, "N": prefix, "p": stem, "i": instance, "I": instance}

        def value(found: re.Match[str]) -> str:
            if found[1] not in known:
                raise FieldError(field, text, f"has {found[0]}, which only systemd can fill in")
            return known[found[1]]

        return _SPECIFIER.sub(value, text)


def _lines(text: str) -> Iterator[str]:
    """Lines without comments, put together where they go on."""
    pending = ""
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = raw.strip()
        if line.startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield (pending + line).strip()
        pending = ""
    yield pending.strip()


def words_of(field: str, text: str) -> list[str]:
    """The words of a line, without their quotes and escapes. A ; that was escaped has a NUL before it."""
    words: list[str] = []
    current, quote, begun, place = "", "", False, 0
    while place < len(text):
        letter = text[place]
        place += 1
        if letter == "\\" and quote != "'":
            piece, place = _unescaped(field, text, place)
            current, begun = current + ("\0;" if piece == ";" and not current else piece), True
        elif quote or letter in "\"'":
            if not quote:
                quote, begun = letter, True
            elif letter == quote:
                quote = ""
            else:
                current += letter
        elif letter.isspace():
            words += [current] if begun else []
            current, begun = "", False
        else:
            current, begun = current + letter, True
    if quote:
        raise FieldError(field, text, "has a quote that does not end")
    return [*words, current] if begun else words


def _unescaped(field: str, text: str, place: int) -> tuple[str, int]:
    letter = text[place : place + 1]
    if letter in _ESCAPES and letter:
        return _ESCAPES[letter], place + 1
    found = _ESCAPED.match(text, place)
    if found is None:
        return letter or "\\", place + 1
    code = int(found[4], 8) if found[4] else int(found[1] or found[2] or found[3], 16)
    if not 0 < code <= _LAST_CHARACTER:
        raise FieldError(field, text, "has an escape that is no character")
    return chr(code), found.end()


def assignments_of(field: str, lines: list[str]) -> Mapping[str, str]:
    """The variables that such lines set."""
    found: dict[str, str] = {}
    for line in lines:
        for word in words_of(field, line):
            name, equals, value = word.partition("=")
            if not equals:
                raise FieldError(field, word, "is no assignment")
            found[name] = value
    return found


def shell_command(field: str, line: str) -> tuple[str, str]:
    """A command line for a shell that does what systemd would do with this one, and the marks that stood before it."""
    words = words_of(field, line)
    if not words:
        raise FieldError(field, line, "is empty")
    marks = _PREFIXES.match(words[0])
    prefixes = marks[0] if marks else ""
    words[0] = words[0][len(prefixes) :]
    if "@" in prefixes:
        # The second word is only what the program is told to be called.
        del words[1:2]
    commands: list[list[str]] = [[]] if words[0] else []
    for word in words:
        if word == ";":
            commands.append([])
        elif commands:
            commands[-1].append(_for_shell(word.replace("\0", ""), expand=":" not in prefixes))
    spoken = [" ".join(command) for command in commands if command]
    if not spoken:
        raise FieldError(field, line, "names no program")
    text = " && ".join(spoken)
    return f"{{ {text} || :; }}" if "-" in prefixes else text, prefixes.replace("-", "").replace(":", "")


def _for_shell(word: str, *, expand: bool) -> str:
    if not expand or not (_VARIABLE.search(word) or _BARE_VARIABLE.fullmatch(word)):
        return shlex.quote(word)
    if _BARE_VARIABLE.fullmatch(word):
        # Alone, it is split at blanks, there as here.
        return word
    spoken, place = "", 0
    for found in _VARIABLE.finditer(word):
        spoken += inside_quotes(word[place : found.start()]) + (found[0] if found[1] else "\\$")
        place = found.end()
    return f'"{spoken}{inside_quotes(word[place:])}"'
