"""`gnomon security`: the policy of commands, and its judgement about one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from gnomon.app.runner import workspace_folder
from gnomon.app.sandbox import sandbox_findings
from gnomon.cli.output import Format, print_data, print_table, printable
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests
from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.actions import actions_per_hour
from gnomon.core.commands.files import TextFiles
from gnomon.core.commands.policy import (
    CommandPolicy,
    CommandVerdict,
    check_command,
    policy_for,
)
from gnomon.core.commands.programs import Risk, programs_of_risk
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.jobs.steps import ENV_NAME
from gnomon.core.responses.system import SecurityStatus
from gnomon.errors import FieldError, NoDatabase

#: The origins that a policy distinguishes. Agents have none of their own in `OriginKind`: their jobs are not stored.
_ORIGINS = (*(kind.value for kind in OriginKind), "model")
_OPEN, _GUARDED = "open", "guarded"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The arguments of `gnomon security check`."""

    command: str
    origin: str
    env: Sequence[str]
    approved: bool


class CommandJudgement(Struct, frozen=True, kw_only=True):
    """The judgement about a command as it is printed."""

    verdict: str
    #: `open` for a command that a shell runs without a check.
    commands: str
    rule: str | None = None
    reason: str | None = None
    #: Counted from 1.
    character: int | None = None
    risk: Risk | None = None
    words: tuple[tuple[str, ...], ...] = ()


class ShownPolicy(Struct, frozen=True, kw_only=True):
    """The policy for some origins as it is printed."""

    origins: list[str]
    commands: str
    policy: CommandPolicy | None
    max_actions_per_hour: int | None


def check(options: CheckOptions, target: Target, form: Format) -> bool:
    """Print the judgement about a command, and return whether it may run."""
    settings = target.settings()
    origin = _known_origin(options.origin)
    variables = dict(map(_variable, options.env))
    policy = policy_for(settings.security, origin, home=str(Path.home()))
    if policy is None:
        judgement = CommandJudgement(verdict="allowed", commands=_OPEN)
    else:
        folder = workspace_folder(settings)
        verdict = check_command(
            policy,
            options.command,
            variables=variables,
            files=TextFiles(folder),
            workspace=folder,
            approved=options.approved,
        )
        judgement = _judgement(verdict)
    if form is Format.TABLE:
        _print_judgement(judgement)
    else:
        print_data(judgement, form)
    return judgement.verdict == "allowed"


def show(origin: str | None, target: Target, form: Format) -> None:
    """Print the policy for the jobs of each origin, and the risks of programs."""
    settings = target.settings()
    origins = _ORIGINS if origin is None else (_known_origin(origin),)
    found = _shown_policies(settings.security, origins)
    risks = {risk.value: programs_of_risk(risk) for risk in (Risk.MEDIUM, Risk.HIGH)}
    sandbox = {one.about: one.message for one in sandbox_findings(settings)}
    budget = _budget(target)
    if form is not Format.TABLE:
        shown = {"policies": found, "risks": risks, "path": list(settings.security.path), "machine": sandbox}
        print_data({**shown, "budget": budget}, form)
        return
    for one in found:
        _print_policy(one)
    echo("this machine")
    for name, message in sandbox.items():
        echo(f"  {name}: {printable(message)}")
    echo(f"\n{_budget_text(budget)}\n")
    echo("programs by risk")
    for risk, programs in risks.items():
        echo(f"  {risk}: {', '.join(programs)}")


def _budget(target: Target) -> SecurityStatus | None:
    """The budget of the tenant; None if there is no database yet."""
    try:
        return send(target, requests.security())
    except NoDatabase:
        return None


def _budget_text(budget: SecurityStatus | None) -> str:
    if budget is None:
        return "budget: there is no database yet, so nothing is spent"
    if budget.actions_per_hour is None:
        return f"budget: {budget.actions_spent} guarded commands within the last hour, and no limit"
    return (
        f"budget: {budget.actions_left} of {budget.actions_per_hour} guarded commands may still start within the hour"
    )


def _known_origin(origin: str) -> str:
    if origin.partition(":")[0] not in _ORIGINS:
        raise FieldError("origin", origin, f"is none of {', '.join(_ORIGINS)}")
    return origin


def _variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not ENV_NAME.fullmatch(name):
        raise FieldError("env", name, "must be NAME=VALUE, or the NAME of a variable that is known later")
    return name, value if equals else None


def _judgement(verdict: CommandVerdict) -> CommandJudgement:
    return CommandJudgement(
        verdict="allowed" if verdict.allowed else "refused",
        commands=_GUARDED,
        rule=verdict.rule,
        reason=verdict.reason or None,
        character=None if verdict.position is None else verdict.position + 1,
        risk=verdict.risk,
        words=verdict.words,
    )


def _print_judgement(judgement: CommandJudgement) -> None:
    rows = [["verdict", judgement.verdict]]
    if judgement.commands == _OPEN:
        rows.append(["commands", "open: a shell runs them without a check"])
    rows += [["rule", judgement.rule]] if judgement.rule else []
    rows += [["reason", judgement.reason]] if judgement.reason else []
    rows += [["character", str(judgement.character)]] if judgement.character is not None else []
    rows += [["risk", judgement.risk]] if judgement.risk else []
    rows += [["words", shlex.join(words)] for words in judgement.words]
    for name, text in rows:
        echo(f"{name:<11}{printable(text)}")


def _shown_policies(security: SecuritySettings, origins: Sequence[str]) -> list[ShownPolicy]:
    """The policies that differ, each with its origins."""
    home = str(Path.home())
    groups: dict[tuple[CommandPolicy | None, int | None], list[str]] = {}
    for origin in origins:
        policy = policy_for(security, origin, home=home)
        groups.setdefault((policy, actions_per_hour(security, origin)), []).append(origin)
    return [
        ShownPolicy(
            origins=kinds,
            commands=_OPEN if policy is None else _GUARDED,
            policy=policy,
            max_actions_per_hour=limit,
        )
        for (policy, limit), kinds in groups.items()
    ]


def _print_policy(shown: ShownPolicy) -> None:
    echo(f"jobs of {', '.join(shown.origins)}")
    if shown.policy is None:
        echo("  open: a shell runs their commands without a check\n")
        return
    facts: Mapping[str, object] = asdict(shown.policy) | {"max_actions_per_hour": shown.max_actions_per_hour}
    rows = [[name, _text(value)] for name, value in facts.items() if name not in ("commands_are_chosen", "home")]
    print_table(["  guarded", ""], [[f"  {name}", text] for name, text in rows])
    echo("")


def _text(value: object) -> str:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return str(value).lower()
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
