"""Names for what had none: taken from the command, and fit for a job."""

import re
from collections.abc import Collection

from gnomon.core.said import NAME

_LONGEST = 60
#: What only says how something else is run.
_WRAPPERS = frozenset(
    "sudo nice ionice exec env time nohup timeout flock chronic setsid command cd test [ source . export set".split()
)
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
    if not words or words[0] in ("cd", "test", "[", "export", "set", "source", "."):
        return ""
    for word in words:
        base = _ENDINGS.sub("", word.rstrip("/").rpartition("/")[2])
        wraps = base in _WRAPPERS or _INTERPRETERS.fullmatch(base)
        if not wraps and not word.startswith("-") and _WORD.fullmatch(word) and (name := as_name(base)):
            return name
    return as_name(words[0].rpartition("/")[2])


def as_name(text: str) -> str:
    """The text as a job may be named; nothing, if nothing of it is left."""
    plain = re.sub(r"[^a-z0-9._]+", "-", text.lower()[: 4 * _LONGEST]).strip("-._")[:_LONGEST].rstrip("-._")
    return plain if NAME.fullmatch(plain) else ""


def unique(name: str, taken: Collection[str]) -> str:
    """The name, or with the first number behind it that makes it another."""
    number, wanted = 2, name
    while wanted in taken:
        wanted = f"{name}-{number}"
        number += 1
    return wanted
