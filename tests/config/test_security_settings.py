"""The settings of the command policy: their names here and in a seed, and entries that are refused."""

from typing import Any

import pytest

from gnomon.config.sections import SecuritySettings
from gnomon.config.settings import load
from gnomon.core.commands.policy import ANY_NUMBER, Autonomy
from gnomon.errors import FieldError

SEEDS = {
    "level": "full",
    "workspace_only": False,
    "allowed_commands": ["git", "ls"],
    "forbidden_paths": ["/etc", "~/.ssh"],
    "allowed_roots": ["/srv/data"],
    "max_actions_per_hour": 7,
    "require_approval_for_medium_risk": False,
    "block_high_risk_commands": False,
}
OURS = SecuritySettings(
    autonomy=Autonomy.FULL,
    workspace_only=False,
    allowed_commands=("git", "ls"),
    forbidden_paths=("/etc", "~/.ssh"),
    allowed_roots=("/srv/data",),
    max_actions_per_hour=7,
    approve_medium_risk=False,
    block_high_risk=False,
)


@pytest.mark.req("Z-04", "Z-12")
def test_the_names_of_the_seed_count_in_a_file() -> None:
    assert load(file={"autonomy": SEEDS}).security == OURS


def test_the_names_of_the_seed_count_in_the_environment() -> None:
    said = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in SEEDS.items()}

    assert (
        load(environment={f"GNOMON_AUTONOMY__{name.upper()}": value for name, value in said.items()}).security == OURS
    )


def test_the_seeds_spelling_of_read_only_counts() -> None:
    assert load(file={"autonomy": {"level": "readonly"}}).security.autonomy is Autonomy.READ_ONLY


@pytest.mark.parametrize(("said", "means"), [("none", ANY_NUMBER), (0, 0), (20, 20)])
def test_none_is_no_limit_and_0_lets_nothing_run(said: object, means: int) -> None:
    assert load(file={"security": {"max_actions_per_hour": said}}).security.max_actions_per_hour == means


def test_an_empty_list_of_programs_is_not_the_default_list() -> None:
    assert load(environment={"GNOMON_SECURITY__ALLOWED_COMMANDS": ""}).security.allowed_commands == ()
    assert load().security.allowed_commands is None


@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"allowed_commands": ["*"]}, "security.allowed_commands", "patterns are not possible"),
        ({"allowed_commands": [""]}, "security.allowed_commands", "must be the name of a program"),
        ({"allowed_commands": ["git log"]}, "security.allowed_commands", "must be the name of a program"),
        ({"allowed_commands": ["bin/run"]}, "security.allowed_commands", "must be an absolute path"),
        ({"allowed_commands": ["/opt/../bin/ls"]}, "security.allowed_commands", "/bin/ls"),
        ({"allowed_commands": ["ls", "env"]}, "security.allowed_commands", "starts other programs"),
        ({"allowed_commands": ["/bin/bash"]}, "security.allowed_commands", "starts other programs"),
        ({"allowed_commands": ["bash5.2"]}, "security.allowed_commands", "starts other programs"),
        ({"forbidden_paths": ["etc"]}, "security.forbidden_paths", "absolute path, or begin with ~/"),
        ({"forbidden_paths": ["~/"]}, "security.forbidden_paths", "absolute path, or begin with ~/"),
        ({"allowed_roots": ["~/x"]}, "security.allowed_roots", "must be an absolute path"),
        ({"allowed_roots": ["/a"], "forbidden_paths": ["/a/"]}, "security.allowed_roots", "also in"),
        ({"path": ["."]}, "security.path", "must be an absolute path"),
        ({"max_actions_per_hour": -2}, "security.max_actions_per_hour", "0 or more, or none"),
        ({"autonomy": "supervized"}, "security.autonomy", "Invalid enum value"),
        ({"profile": "closed"}, "security.profile", "Invalid enum value"),
    ],
)
def test_an_entry_that_could_never_mean_what_it_says_is_refused(said: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(FieldError, match=field) as refused:
        load(file={"security": said})

    assert refused.value.field == field
    assert reason in refused.value.reason
