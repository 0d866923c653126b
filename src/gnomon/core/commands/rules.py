"""The rules of one installation for the commands of definitions, as a process without the files of the worker has them.

The same check decides when a definition is added and when a task of it is admitted. The worker checks again on its own
file system, and the stricter answer wins.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.commands.actions import actions_per_hour
from gnomon.core.commands.files import TextFiles, is_inside, normal_path
from gnomon.core.commands.policy import (
    Autonomy,
    CommandPolicy,
    CommandVerdict,
    PolicySettings,
    check_command,
    policy_for,
)
from gnomon.core.runs.expressions import references
from gnomon.core.runs.secret_text import parts_of
from gnomon.core.runs.workflow import ONLY_STEP, Step, Workflow
from gnomon.errors import FieldError

#: The command that reasons name without knowing the job.
_ASK_FOR_ANY = "gnomon approvals ask NAME"
_ASKS = f"{_ASK_FOR_ANY} asks an admin to approve it"
#: The folder for commands of a process that does not know it: no path of the system is in it.
_ANY_WORKSPACE = "/workspace"
#: How many origins have their policy remembered: each file is one.
_MOST_POLICIES = 1000


class CheckedStep(Struct, frozen=True, kw_only=True):
    """A guarded command of a definition, and the judgement about it."""

    #: The path of the field, such as `command` or `dag[1].command`.
    field: str
    step: Step
    verdict: CommandVerdict


class CommandRules:
    """The policies by origin, and the check of commands against them."""

    def __init__(
        self,
        settings: PolicySettings,
        *,
        workspace: str = _ANY_WORKSPACE,
        home: str = "",
        workspaces: Collection[str] = (),
    ) -> None:
        """`workspace` is the absolute path of the folder for commands, and `home` the home of their user, if known.

        `workspaces` are the absolute paths by which all workers know that folder; without any it may be another one
        on each worker.
        """
        self._settings = settings
        self._workspaces = workspaces
        self._workspace = workspace
        self._policy_for = lru_cache(_MOST_POLICIES)(lambda origin: policy_for(settings, origin, home=home))

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._settings.autonomy is Autonomy.READ_ONLY

    def policy(self, origin: str) -> CommandPolicy | None:
        """The policy of the commands of a definition with this origin; None if they are open."""
        return self._policy_for(origin)

    def action_limit(self, origin: str) -> int | None:
        """How many actions may count within an hour with one of this origin; None if it does not count."""
        return actions_per_hour(self._settings, origin)

    def judge(
        self, workflow: Workflow, step: Step, given: Mapping[str, Any] | None = None, *, approved: bool
    ) -> CommandVerdict | None:
        """The judgement about the command of a step; None if the command is open.

        `given` is the input of a task, whose references are resolved. Without it the values of references are not known
        yet, as those of secrets never are here.
        """
        policy = self.policy(workflow.origin)
        if policy is None:
            return None
        resolved = given is not None
        own = {field: (given or step.input).get(field) for field in step.input}
        folder = posixpath.join(self._workspace, _known_text(own.get("workdir") or "", resolved=resolved) or "")
        variables: Mapping[str, object] = own.get("env") or {}
        return check_command(
            policy,
            step.command,
            variables={name: _known_text(value, resolved=resolved) for name, value in variables.items()},
            files=TextFiles(folder),
            workspace=self._workspace,
            approved=approved,
        )

    def judge_all(
        self, workflow: Workflow, *, approved: bool = False, list_field: str = "dag"
    ) -> Iterator[CheckedStep]:
        """The judgements about all guarded commands of a definition, in the order of its steps.

        `list_field` is the name of the field with its steps.
        """
        for path, one in _commands_of(workflow, list_field):
            verdict = self.judge(workflow, one, approved=approved)
            if verdict is not None:
                yield CheckedStep(field=f"{path}command", step=one, verdict=verdict)

    def refuse_outside(self, workflow: Workflow, *, list_field: str = "dag") -> None:
        """Raise FieldError for a command, open or not, in a folder that is in the workspace of no worker."""
        for path, one in _commands_of(workflow, list_field):
            folder = _known_text(one.input.get("workdir") or "", resolved=False) or ""
            if not folder.startswith("/") or not self._workspaces:
                # Of other paths, the job was read only if they do not lead out.
                continue
            if not any(is_inside(normal_path(folder), workspace) for workspace in self._workspaces):
                # The path of the workspace is not for every caller.
                raise FieldError(f"{path}workdir", folder, "is outside of the workspace (shell.workspace)")


def _commands_of(workflow: Workflow, list_field: str) -> Iterator[tuple[str, Step]]:
    """All commands of a definition, in the order of its steps, with the beginning of the paths of their fields."""
    for number, step in enumerate(workflow.steps):
        alone = len(workflow.steps) == 1 and step.name == ONLY_STEP
        path = "" if alone else f"{list_field}[{number}]."
        for place, one in ((path, step), (f"{path}compensate.", step.compensate)):
            if one is not None and one.is_command:
                yield place, one


def _known_text(value: object, *, resolved: bool) -> str | None:
    """The text that a program gets for the value; None if a reference or a secret takes its place later."""
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if not resolved and any(references(value)):
        return None
    parts = parts_of(value)
    literals = [part for part in parts if isinstance(part, str)]
    return "".join(literals) if len(literals) == len(parts) else None


def approval_hint(verdict: CommandVerdict, job: str) -> str:
    """The reason of a refusal. One that an approval would lift names the job to type."""
    return verdict.reason.replace(_ASK_FOR_ANY, f"gnomon approvals ask {job}")


def tool_refusal_text(verdict: CommandVerdict) -> str:
    """The reason for a model, whose commands no approval covers: it makes them up while it runs."""
    return verdict.reason.replace(_ASKS, "no approval covers the commands of a model")
