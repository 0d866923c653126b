"""Names for what had none: taken from the command, and fit for a job."""

import re

from gnomon.core.said import NAME

_LONGEST = 60
#: What only says how something else is run, and which of its options have a word of their own.
_WRAPPERS = frozenset("sudo nice ionice exec env time nohup timeout flock chronic setsid command".split())
_VALUED = ("-u", "-g", "-n", "-c", "-k", "-s", "-w")
#: What a shell does itself, before anything worth a name.
_BUILT_IN = ("cd", "test", "[", "export", "set", "source", ".")
_SPAN = re.compile(r"[0-9.]+[smhd]")
_INTERPRETERS = re.compile(r"(?:sh|bash|dash|zsh|ksh|perl|ruby|node|php|python)[0-9.]*")
_ENDINGS = re.compile(r"\.(?:sh|bash|py|pl|rb|php|js)$")
_WORD = re.compile(r"""[A-Za-z0-9_./\\-]*[A-Za-z][A-Za-z0-9_./\\-]*""")
_BREAKS = re.compile(r"[;&|\n]+")


def name_of_command(command: str) -> str:
    """A name that reminds of the command."""
    for part in _BREAKS.split(command[:2000]):
        words = [word for word in re.split(r"[\s\"'()]+", part) if word and "=" not in word]
        named = _program(words)
        if named:
            return named
    return "command"


def _program(words: list[str]) -> str:
    if not words or words[0] in _BUILT_IN:
        return ""
    wrapped = skips = False
    for word in words:
        base = _ENDINGS.sub("", word.rstrip("/").rpartition("/")[2])
        if skips or word.startswith("-") or not _WORD.fullmatch(word) or _SPAN.fullmatch(word):
            skips = wrapped and word in _VALUED
        elif base in _WRAPPERS:
            wrapped = True
        elif not _INTERPRETERS.fullmatch(base) and (name := as_name(base)):
            return name
    return as_name(words[0].rpartition("/")[2])


def as_name(text: str) -> str:
    """The text as a job may be named; nothing, if nothing of it is left."""
    plain = re.sub(r"[^a-z0-9._]+", "-", text.lower()[: 4 * _LONGEST]).strip("-._")[:_LONGEST].rstrip("-._")
    return plain if NAME.fullmatch(plain) else ""


class Names:
    """Names that were given."""

    def __init__(self) -> None:
        #: Each with the number that the next one like it may have.
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, or with a number behind it that makes it another."""
        wanted = name
        while wanted in self._next:
            self._next[name] += 1
            wanted = f"{name}-{self._next[name]}"
        self._next[wanted] = 1
        return wanted
