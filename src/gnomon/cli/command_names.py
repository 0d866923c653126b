"""Other names of commands: aliases, and suggestions for names that other programs use, or that are misspelt."""

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup

from gnomon.core.spelling import nearest

#: How many commands are suggested.
_MOST_MEANT = 3
#: Groups that have a second name.
ALIASES = {"runs": "executions", "dlq": "dead-letters"}
#: Names of other programs for a command of the same group.
_SYNONYMS = {
    "run": "trigger",
    "start": "trigger",
    "fire": "trigger",
    "add": "apply",
    "create": "apply",
    "register": "apply",
    "check": "validate",
    "lint": "validate",
    "diff": "plan",
    "ls": "list",
    "get": "show",
    "describe": "show",
    "inspect": "show",
    "rm": "delete",
    "remove": "delete",
    "disable": "pause",
    "stop": "cancel",
    "kill": "cancel",
    "enable": "resume",
    "unpause": "resume",
    "retry": "replay",
    "requeue": "replay",
    "log": "logs",
    "upgrade": "migrate",
}
#: Names of other programs for a whole command.
_COMMANDS = {
    "run": "jobs trigger NAME",
    "start": "up",
    "serve": "server",
    "scheduler": "server",
    "dev": "up",
    "beat": "up",
    "status": "doctor",
    "ps": "executions list",
    "history": "executions list",
    "crontab": "import crontab FILE",
    "next": "jobs next NAME",
    "version": "--version",
}


class CommandGroup(TyperGroup):
    """A group of commands that knows aliases, and names the command that was probably meant."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - the types of the library are private
        """See the library. Aliases stand for whole groups."""
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name) if ctx.parent is None else cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """See the library."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            path = ctx.command_path.split()[1:]
            meant = self._meant(name) if path else self._meant_at_root(name)
            hint = " or ".join(" ".join(["gnomon", *path, one]) for one in meant)
            ctx.fail(f"no such command {name!r}" + (f"; did you mean {hint}?" if hint else ""))
        return super().resolve_command(ctx, args)

    def _meant(self, name: str) -> list[str]:
        """The command of this group that was probably meant."""
        synonym = _SYNONYMS.get(name)
        meant = synonym if synonym in self.commands else nearest(name, self.commands)
        return [] if meant is None else [meant]

    def _meant_at_root(self, name: str) -> list[str]:
        """The commands that were probably meant by a word right after `gnomon`."""
        if name in _COMMANDS:
            return [_COMMANDS[name]]
        near = nearest(name, [*self.commands, *ALIASES])
        if near is not None:
            return [near]
        wanted = {name, _SYNONYMS.get(name, name)}
        return [path for path, command in self._inner() if command in wanted][:_MOST_MEANT]

    def _inner(self) -> Iterator[tuple[str, str]]:
        """The commands of the groups in this group: path and name."""
        for group, inner in self.commands.items():
            for command in getattr(inner, "commands", ()):
                yield f"{group} {command}", command
