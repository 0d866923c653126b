"""Variables that another scheduler gives to a command."""

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from gnomon.core.importing.entries import Note
from gnomon.core.job_commands import ENV_NAME


def with_variables(
    command: str, variables: Mapping[str, str], notes: list[Note], *, secrets: Collection[str] = ()
) -> dict[str, Any]:
    """The command and its `env`. What would mean something else in a job is set by the command itself.

    `secrets` are those whose values are meant as references to secrets.
    """
    env: dict[str, str] = {}
    for name, value in variables.items():
        if not ENV_NAME.fullmatch(name):
            notes.append(Note(f"{shown(name)}: no variable may be called that here"))
        elif "${" in value and name not in secrets:
            # In a job that is a reference; elsewhere it is just what it says.
            command = f"export {name}={shlex.quote(value)}; {command}"
        else:
            env[name] = value
    return {"command": command, "env": env} if env else {"command": command}


def inside_quotes(text: str) -> str:
    """The text as it must stand between double quotes for a shell to take it as it is."""
    return re.sub(r'([\\"`$])', r"\\\1", text)


def shown(text: str, longest: int = 60) -> str:
    """The text on one line, as long as a report has room for."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
