"""A command instead of a function: what a shell runs, with which variables, where, and what it reads.

Data never becomes a part of the program: references stand in `env`, `workdir` and `stdin`, and the shell is given the
command as it was written.
"""

import re
from collections.abc import Mapping
from typing import Any

from gnomon.core.inputs import SECRET_BEGINS, read_input, read_json
from gnomon.core.references import ROOTS, check_references, references
from gnomon.core.said import Said, key_text, printable
from gnomon.core.workflow import SHELL
from gnomon.errors import FieldError

COMMAND_FIELDS = ("command", "env", "workdir", "stdin")
LONGEST_COMMAND = 16_384
MOST_VARIABLES = 200
#: Our own variables begin with GNOMON_.
ENV_NAME = re.compile(r"(?!GNOMON_)[A-Za-z_][A-Za-z0-9_]{0,127}")


def refuse_without_command(said: Said) -> None:
    """Refuse what says something about a command where there is none."""
    for field in COMMAND_FIELDS[1:]:
        if field in said and "command" not in said:
            raise said.refused(field, "means nothing without command")


def read_command(said: Said, *, alone: bool) -> dict[str, Any]:
    """The fields of a step that runs the command. `alone`: it is a job's only step, and refers to no other."""
    given: dict[str, Any] = {}
    if "env" in said:
        given["env"] = _env(said)
    if "workdir" in said:
        given["workdir"] = _workdir(said)
    if "stdin" in said:
        given["stdin"] = _stdin(said)
    if alone:
        for field, value in given.items():
            check_references(said.at(field), value, frozenset(), item=False)
    return {"function": SHELL, "command": _command(said, each="foreach" in said), "input": given}


def _command(said: Said, *, each: bool) -> str:
    value = read_json(said.at("command"), said["command"])
    if not isinstance(value, str) or not value.strip():
        raise said.refused("command", "must be a text, as one would type it into a shell")
    if len(value) > LONGEST_COMMAND:
        reason = f"has {len(value)} characters; at most {LONGEST_COMMAND} are taken: put it into a script"
        raise said.refused("command", reason)
    if SECRET_BEGINS.search(value):
        raise said.refused("command", "names a secret, and everybody can see commands that run: give it as env")
    for path in references(value):
        root = re.split(r"[.\[]", path, maxsplit=1)[0]
        if root in ROOTS and ("." in path or (each and path in ("item", "index"))):
            reason = 'would make data a part of the program: give it as env, and write "$NAME" here'
            raise FieldError(said.at("command"), f"${{{path}}}", reason)
    return value


def _env(said: Said) -> dict[str, str]:
    value = said["env"]
    if not isinstance(value, Mapping):
        raise said.refused("env", "must be a mapping of variables")
    if len(value) > MOST_VARIABLES:
        raise said.refused("env", f"has {len(value)} variables; at most {MOST_VARIABLES} are taken")
    env = {}
    for name, text in value.items():
        at = f"{said.at('env')}.{key_text(name)}"
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise FieldError(
                at, name, "is no name of a variable: letters, digits and _, and not beginning with GNOMON_"
            )
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise FieldError(at, text, "must be a text")
        env[name] = str(text)
    read_input(said.at("env"), env)
    return env


def _workdir(said: Said) -> str:
    text = printable(said.at("workdir"), said["workdir"])
    if not text or ".." in text.split("/"):
        raise said.refused("workdir", "must be a folder inside of the workspace")
    return text


def _stdin(said: Said) -> str:
    value = read_json(said.at("stdin"), said["stdin"])
    if not isinstance(value, str):
        raise said.refused("stdin", "must be a text")
    return value
