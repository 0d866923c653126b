"""The policy of commands: which programs may run, on which paths, and how much of that needs a person.

A check reads the text once, fills in its variables and patterns, and judges the words that its programs will get. The
plan that it returns holds exactly these words, and a worker starts the programs by the plan. The rules apply in this
order: the autonomy, the grammar, the variables, the programs, their arguments, their risk, the paths, and the approval.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from gnomon.core.commands.arguments import (
    entered_folders,
    fixed_variables,
    program_name,
    refused_argument,
    script_places,
)
from gnomon.core.commands.files import FileView
from gnomon.core.commands.paths import HOME_FOLDERS, SYSTEM_FOLDERS, PathRules
from gnomon.core.commands.plan import CommandPlan, PlannedCommand, PlannedPipeline
from gnomon.core.commands.programs import (
    DEFAULT_PROGRAMS,
    Risk,
    program_names,
    reads_folder,
    risk_of,
    starts_others,
)
from gnomon.core.commands.syntax import Pipeline, SimpleCommand, read_command
from gnomon.core.commands.variables import is_harmless, is_read_by_programs
from gnomon.core.commands.words import FilledCommand, FilledWord, WordFiller
from gnomon.errors import CommandUnreadable, escape_unprintable, truncate


class Autonomy(StrEnum):
    """How much commands may do without a person."""

    #: Nothing runs, and nothing is changed.
    READ_ONLY = "read_only"
    #: Commands of medium risk need a standing approval.
    SUPERVISED = "supervised"
    FULL = "full"


class SecurityProfile(StrEnum):
    """Which commands are under the policy."""

    #: Those that come from where nobody has a shell of the machine anyway.
    AUTO = "auto"
    #: None, apart from what is set explicitly.
    OPEN = "open"
    #: All.
    GUARDED = "guarded"


#: The value of `security.max_actions_per_hour` that sets no limit.
ANY_NUMBER = -1
#: How many guarded commands of a tenant may start within an hour unless that is set.
DEFAULT_ACTIONS_PER_HOUR = 20

# The texts behind `blocked by security policy: `. Programs may depend on them.
READ_ONLY_TEXT = "autonomy is read-only"
RATE_LIMIT_TEXT = "rate limit exceeded"
BUDGET_TEXT = "action budget exhausted"
_COMMAND_TEXT = "command not allowed"
_PATH_TEXT = "forbidden path argument"

_NOT_HARMLESS = "is no variable that a command may set: begin it with JOB_, or write it in lower case"
_RISKS = tuple(Risk)
#: The kinds of origins (`OriginKind`) whose authors have a shell of the machine anyway.
_ORIGINS_OF_THE_MACHINE = frozenset(("file", "import", "cli"))


class PolicyRule(StrEnum):
    """The rules that refuse a command, in the order in which they are applied."""

    AUTONOMY = "autonomy"
    GRAMMAR = "grammar"
    VARIABLE = "variable"
    COMMAND = "command"
    ARGUMENT = "argument"
    RISK = "risk"
    PATH = "path"
    APPROVAL = "approval"


class PolicySettings(Protocol):
    """The settings of which policies are made; None is what is not set."""

    @property
    def profile(self) -> SecurityProfile:
        """Which commands are under the policy."""
        ...

    @property
    def autonomy(self) -> Autonomy | None:
        """How much commands may do without a person."""
        ...

    @property
    def allowed_commands(self) -> tuple[str, ...] | None:
        """The programs that commands may start."""
        ...

    @property
    def forbidden_paths(self) -> tuple[str, ...] | None:
        """Folders and files that no word of a command may name."""
        ...

    @property
    def allowed_roots(self) -> tuple[str, ...]:
        """Folders besides the workspace that commands may name."""
        ...

    @property
    def workspace_only(self) -> bool | None:
        """Whether commands may name nothing else."""
        ...

    @property
    def max_actions_per_hour(self) -> int | None:
        """How many commands may start within an hour."""
        ...

    @property
    def approve_medium_risk(self) -> bool | None:
        """Whether commands of medium risk need an approval."""
        ...

    @property
    def block_high_risk(self) -> bool | None:
        """Whether commands of high risk are refused."""
        ...

    @property
    def path(self) -> tuple[str, ...]:
        """The folders in which programs are found."""
        ...


class CommandPolicy(Struct, frozen=True, kw_only=True):
    """The limits of a command. The defaults are those of guarded commands."""

    autonomy: Autonomy = Autonomy.SUPERVISED
    #: Names of programs, and absolute paths, each of which allows that file alone; None allows every name.
    allowed_commands: tuple[str, ...] | None = DEFAULT_PROGRAMS
    #: Whether somebody chose these programs, so that one of high risk among them is meant.
    commands_are_chosen: bool = False
    forbidden_paths: tuple[str, ...] = SYSTEM_FOLDERS + HOME_FOLDERS
    allowed_roots: tuple[str, ...] = ()
    workspace_only: bool = True
    approve_medium_risk: bool = True
    block_high_risk: bool = True
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    #: The home of the user as which commands run, if it is known and is not below `/home`.
    home: str = ""


class CommandVerdict(Struct, frozen=True, kw_only=True):
    """The judgement of a policy about a command."""

    #: The rule that refuses the command; None if it is allowed.
    rule: PolicyRule | None = None
    #: The text behind `blocked by security policy: `. Values of variables, which may be secret, are not part of it.
    reason: str = ""
    #: The position in the text of the refused character or word; None if it is not about a single one.
    position: int | None = None
    risk: Risk = Risk.LOW
    #: The words of each program as it gets them. They may hold secrets.
    words: tuple[tuple[str, ...], ...] = ()
    #: How to run the command; None if it is refused, or if a variable or a pattern cannot be known here.
    plan: CommandPlan | None = None

    @property
    def allowed(self) -> bool:
        """Whether the command may run."""
        return self.rule is None


def guarded_policy(settings: PolicySettings, *, home: str = "") -> CommandPolicy:
    """The policy of guarded commands, whatever the profile. `home` is the home of the user as which commands run."""
    return CommandPolicy(**{**_chosen(settings), **_always(settings, home)})


def policy_for(settings: PolicySettings, origin: str, *, home: str = "") -> CommandPolicy | None:
    """The policy of the commands of a definition with this origin; None if they are open: a shell runs them.

    `home` is the home of the user as which commands run, if it is known.
    """
    if is_guarded(settings.profile, origin):
        return guarded_policy(settings, home=home)
    chosen = _chosen(settings)
    if not chosen and settings.max_actions_per_hour in (None, ANY_NUMBER):
        return None
    return CommandPolicy(**{**_WITHOUT_DEFAULTS, **_implied(chosen), **chosen, **_always(settings, home)})


def _chosen(settings: PolicySettings) -> dict[str, Any]:
    """The limits that are set."""
    settled = {
        "autonomy": settings.autonomy,
        "allowed_commands": settings.allowed_commands,
        "forbidden_paths": settings.forbidden_paths,
        "workspace_only": settings.workspace_only,
        "approve_medium_risk": settings.approve_medium_risk,
        "block_high_risk": settings.block_high_risk,
    }
    return {name: value for name, value in settled.items() if value is not None}


def _always(settings: PolicySettings, home: str) -> dict[str, Any]:
    return {
        "commands_are_chosen": settings.allowed_commands is not None,
        "allowed_roots": settings.allowed_roots,
        "path": settings.path,
        "home": home,
    }


#: An open command has none of the defaults. Its programs are then not chosen, and its paths are free.
_WITHOUT_DEFAULTS: Mapping[str, Any] = {
    "autonomy": Autonomy.FULL,
    "allowed_commands": None,
    "forbidden_paths": (),
    "workspace_only": False,
    "approve_medium_risk": False,
    "block_high_risk": False,
}


def _implied(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The meaning of a chosen setting for another one that is not: supervision and approvals go together."""
    if chosen.get("approve_medium_risk"):
        return {"autonomy": Autonomy.SUPERVISED}
    return {"approve_medium_risk": chosen.get("autonomy") is Autonomy.SUPERVISED}


def is_guarded(profile: SecurityProfile, origin: str) -> bool:
    """Whether the commands of a definition with this origin are guarded."""
    if profile is not SecurityProfile.AUTO:
        return profile is SecurityProfile.GUARDED
    return origin.partition(":")[0] not in _ORIGINS_OF_THE_MACHINE


def check_command(
    policy: CommandPolicy,
    text: str,
    *,
    variables: Mapping[str, str | None],
    files: FileView,
    workspace: str,
    approved: bool,
) -> CommandVerdict:
    """The judgement about the text of a command, and the plan by which it runs if it is allowed.

    `variables` is the env of the step. None as a value is not known yet, such as that of a reference or a secret: words
    with it are checked as far as possible, and there is no plan.
    """
    return _CommandCheck(policy, text, variables, files, workspace).verdict(approved=approved)


class _Refusal(NamedTuple):
    rule: PolicyRule
    reason: str
    position: int | None


class _CheckedCommand(NamedTuple):
    """A simple command with its words, the file of its program, and the names under which the tables may know that."""

    written: SimpleCommand
    filled: FilledCommand
    words: list[str]
    file: str
    names: frozenset[str]
    risk: Risk


class _CommandCheck:
    """The check of one text."""

    def __init__(
        self, policy: CommandPolicy, text: str, variables: Mapping[str, str | None], files: FileView, workspace: str
    ) -> None:
        self._policy = policy
        self._text = text
        self._variables = variables
        self._files = files
        self._paths = PathRules(
            files,
            workspace,
            forbidden=policy.forbidden_paths,
            roots=policy.allowed_roots,
            workspace_only=policy.workspace_only,
            home=policy.home,
        )
        self._words: tuple[tuple[str, ...], ...] = ()
        self._risk = Risk.LOW

    def verdict(self, *, approved: bool) -> CommandVerdict:
        """The judgement: the first rule that refuses the text, or the plan."""
        if self._policy.autonomy is Autonomy.READ_ONLY:
            return CommandVerdict(rule=PolicyRule.AUTONOMY, reason=READ_ONLY_TEXT)
        found = self._judged(approved=approved)
        if isinstance(found, _Refusal):
            reason = escape_unprintable(found.reason)
            return CommandVerdict(
                rule=found.rule, reason=reason, position=found.position, risk=self._risk, words=self._words
            )
        return CommandVerdict(risk=self._risk, words=self._words, plan=found)

    def _judged(self, *, approved: bool) -> _Refusal | CommandPlan | None:
        try:
            pipelines = read_command(self._text)
            filler = WordFiller(self._text, self._variables, self._files, self._paths.may_list)
            commands = [filler.command(one) for pipeline in pipelines for one in pipeline.commands]
        except CommandUnreadable as error:
            return self._refused(PolicyRule.GRAMMAR, f"it {error.reason}", error.position)
        self._words = tuple(tuple(word.text for word in command.words) for command in commands)
        refusal = self._variable_refusal(commands)
        if refusal is not None:
            return refusal
        checked: list[_CheckedCommand] = []
        for command in commands:
            found = self._program(command)
            if isinstance(found, _Refusal):
                return found
            checked.append(found)
        self._risk = max((one.risk for one in checked), key=_RISKS.index)
        for rule in (self._argument_refusal, self._risk_refusal, self._path_refusal, self._approval_refusal):
            for one in checked:
                if (refusal := rule(one)) is not None and not (approved and refusal.rule is PolicyRule.APPROVAL):
                    return refusal
        return self._plan(pipelines, checked)

    def _refused(self, rule: PolicyRule, why: str, position: int | None) -> _Refusal:
        """A refusal that shows the command, the place and the cause."""
        place = "" if position is None else f"at character {position + 1}, "
        return _Refusal(rule, f"{_COMMAND_TEXT}: {truncate(self._text)} ({place}{why})", position)

    def _variable_refusal(self, commands: Sequence[FilledCommand]) -> _Refusal | None:
        for command in commands:
            for name, value in command.assignments:
                if not is_harmless(name):
                    return self._refused(PolicyRule.VARIABLE, f"{name} {_NOT_HARMLESS}", value.start)
        for name in self._variables:
            if not is_harmless(name):
                return self._refused(PolicyRule.VARIABLE, f"env.{name} {_NOT_HARMLESS}", None)
        return None

    def _program(self, command: FilledCommand) -> _CheckedCommand | _Refusal:
        """The command with its program, or why that may not run."""
        word = command.words[0]
        problem = self._name_problem(word)
        if problem is None:
            # Only an entry of the list may hold a slash: it is the path itself.
            file = word.text if "/" in word.text else self._files.program(word.text, self._policy.path)
            if file is None:
                problem = "is no program in the folders of security.path"
            else:
                resolved = self._files.resolve(file)
                names = program_names(word.text, resolved)
                problem = self._file_problem(file, resolved, names)
                if problem is None:
                    words = [one.text for one in command.words]
                    return _CheckedCommand(command.written, command, words, file, names, risk_of(names, words))
        return self._refused(PolicyRule.COMMAND, f"{truncate(word.shown)} {problem}", word.start)

    def _name_problem(self, word: FilledWord) -> str | None:
        allowed = self._policy.allowed_commands
        if not word.is_known or word.is_match:
            return "does not name a program before the command runs"
        if word.text in ("", ".", ".."):
            return "names no program"
        if word.text in (allowed or ()) or (allowed is None and "/" not in word.text):
            return None
        return "is not in security.allowed_commands"

    def _file_problem(self, file: str, resolved: str, names: frozenset[str]) -> str | None:
        if starts_others(names):
            return "starts other programs, which no setting allows"
        if self._paths.is_in_workspace(file, resolved):
            return "is a file in the workspace"
        if self._paths.is_in_root(file, resolved):
            return "is a file in security.allowed_roots, which commands may write"
        return None

    def _argument_refusal(self, command: _CheckedCommand) -> _Refusal | None:
        found = refused_argument(command.names, command.words)
        if found is None:
            return None
        word = command.filled.words[found.place]
        why = found.reason(truncate(word.shown))
        return self._refused(PolicyRule.ARGUMENT, why, word.start)

    def _risk_refusal(self, command: _CheckedCommand) -> _Refusal | None:
        if not self._policy.block_high_risk or command.risk is not Risk.HIGH:
            return None
        word = command.filled.words[0]
        # A program of high risk that somebody listed by its name is meant; one to which another name leads is not.
        if self._policy.commands_are_chosen and risk_of({program_name(word.text)}, ()) is Risk.HIGH:
            return None
        why = f"{truncate(word.shown)} is of high risk: list it in security.allowed_commands if it is meant"
        return self._refused(PolicyRule.RISK, why, word.start)

    def _path_refusal(self, command: _CheckedCommand) -> _Refusal | None:
        folders = ("", *sorted(entered_folders(command.names, command.words)))
        for word in self._path_words(command):
            candidate = self._refused_path(word.text, folders)
            if candidate is not None:
                shown = candidate if word.shown == word.text else word.shown
                return _Refusal(PolicyRule.PATH, f"{_PATH_TEXT}: {truncate(shown)}{self._paths.note}", word.start)
        if "git" in command.names:
            for folder in folders:
                if self._paths.refused_repository(folder) is not None:
                    text = f"{_PATH_TEXT}: .git, which leads out of the workspace"
                    return _Refusal(PolicyRule.PATH, text, command.filled.words[0].start)
        if reads_folder(command.names, command.words) and self._paths.refused(".") is not None:
            return _Refusal(PolicyRule.PATH, f"{_PATH_TEXT}: .{self._paths.note}", command.filled.words[0].start)
        return self._step_path_refusal()

    def _refused_path(self, word: str, folders: Sequence[str]) -> str | None:
        """The first path in a word that the policy refuses, seen from one of the folders."""
        for folder in folders:
            if (found := self._paths.refused(word, folder)) is not None:
                return found
        return None

    def _path_words(self, command: _CheckedCommand) -> Iterator[FilledWord]:
        filled = command.filled
        scripts = script_places(command.names, command.words)
        if not scripts:
            yield from filled.words[1:]
        else:
            yield from (word for place, word in enumerate(filled.words) if place and place not in scripts)
        yield from (value for _, value in filled.assignments)
        if filled.stdin is not None:
            yield filled.stdin

    def _step_path_refusal(self) -> _Refusal | None:
        """The refusal of a variable of the step that programs of the system may take for a path."""
        for name, value in self._variables.items():
            if value is not None and is_read_by_programs(name) and self._paths.refused(value) is not None:
                return _Refusal(PolicyRule.PATH, f"{_PATH_TEXT}: env.{name}", None)
        return None

    def _approval_refusal(self, command: _CheckedCommand) -> _Refusal | None:
        policy = self._policy
        if policy.autonomy is not Autonomy.SUPERVISED or not policy.approve_medium_risk:
            return None
        if command.risk is Risk.LOW:
            return None
        word = command.filled.words[0]
        ask = "gnomon approvals ask NAME asks an admin to approve it"
        why = f"{truncate(word.shown)} is of {command.risk} risk here: {ask}"
        return self._refused(PolicyRule.APPROVAL, why, word.start)

    def _plan(self, pipelines: Sequence[Pipeline], checked: Sequence[_CheckedCommand]) -> CommandPlan | None:
        if not all(command.filled.is_known for command in checked):
            return None
        following = iter(checked)
        return CommandPlan(
            pipelines=tuple(
                PlannedPipeline(
                    connector=pipeline.connector,
                    commands=tuple(self._planned(next(following)) for _ in pipeline.commands),
                )
                for pipeline in pipelines
            )
        )

    def _planned(self, command: _CheckedCommand) -> PlannedCommand:
        stdin = command.filled.stdin
        return PlannedCommand(
            program=command.file,
            words=tuple(command.words),
            variables=fixed_variables(command.names, self._paths.above)
            | {name: value.text for name, value in command.filled.assignments},
            stdin=None if stdin is None else self._files.resolve(stdin.text),
            stdout=command.written.stdout,
            stderr=command.written.stderr,
        )
