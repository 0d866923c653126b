"""Commands on a repository that an attacker prepared: nothing that it holds is started, whatever git is asked to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.core.commands.plan import PlannedCommand
from gnomon.core.commands.policy import Autonomy, CommandPolicy, PolicyRule, check_command
from support.folder_files import FolderFiles

GIT = shutil.which("git") or "git"
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
HOOKS = "pre-commit post-commit post-checkout pre-push commit-msg reference-transaction post-index-change".split()
RECEIVING_HOOKS = "pre-receive update post-receive post-update proc-receive reference-transaction".split()
SETTINGS = (
    "core.fsmonitor core.pager core.sshCommand core.editor core.askPass core.gitProxy gpg.program sequence.editor"
    " core.alternateRefsCommand interactive.diffFilter alias.log alias.evil".split()
)
#: Texts that start programs of the repository if a plain shell runs them; those of the second list are refused.
ALLOWED = [
    "git status",
    "git log --oneline",
    "git show",
    "git add notes",
    "git commit -am change",
    "git commit --amend",
    "git checkout -b other",
    "git rebase -i HEAD~1",
    "git stash",
    "git gc",
    "git grep some",
    "git blame notes",
    "git tag -s v1 -m x",
    "git branch --edit-description",
    "git fetch ssh://127.0.0.1:1/x",
    "git fetch git://127.0.0.1:1/x",
    "git push ./mirror HEAD:refs/heads/new",
    "git push mirror HEAD:refs/heads/new",
    "git push . HEAD:refs/heads/new",
    "git fetch ./mirror",
    "git pull ./mirror main",
    "git clone ./mirror copy",
    "git ls-remote ./mirror",
    "git -C embedded status",
    "git -C embedded diff --no-index /dev/null HEAD",
]
REFUSED = [
    "git evil",
    "git -c core.pager=./tool log",
    "git rebase -s x/../tool other",
    "git cherry-pick --strategy=x/../tool other",
    "git mv embedded sub/.git",
    "git grep -O./tool some",
    "git fetch --upload-pack=./tool .",
    "git clone -u ./tool . copy",
    "git --git-dir=embedded status",
    "git fetch 'ext::./tool'",
    "git rebase -x ./tool HEAD~1",
    "git submodule foreach ./tool",
    "git bisect run ./tool",
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository in which all that can name or be a program is the tool of the attacker."""
    folder = tmp_path / "ws"
    folder.mkdir()

    def git(*words: str) -> None:
        subprocess.run([GIT, *words], cwd=folder, check=True, capture_output=True, env=environment(tmp_path))

    tool = folder / "tool"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/started\n')
    tool.chmod(0o755)
    for name in ("git-merge-x", "embedded/objects", "embedded/refs", "sub"):
        (folder / name).mkdir(parents=True)
        (folder / name / "keep").write_text("")
    (folder / "embedded/HEAD").write_text("ref: refs/heads/main\n")
    (folder / "embedded/config").write_text(f"[core]\nbare=false\nworktree=..\n[diff]\nexternal={tool}\n")
    git("init", "-q", "-b", "main")
    for name in ("user.name", "user.email"):
        git("config", name, "x@example.org")
    for text in ("one", "two"):
        (folder / "notes").write_text(f"some {text}\n")
        git("add", "-A")
        git("commit", "-qm", text)
    git("branch", "other", "HEAD~1")
    (folder / "notes").write_text("some change\n")
    for name in SETTINGS:
        git("config", name, f"!{tool}" if name.startswith("alias") else str(tool))
    for name in HOOKS:
        shutil.copy(tool, folder / ".git/hooks" / name)
    add_mirror(folder, tool)
    return folder


def add_mirror(folder: Path, tool: Path) -> None:
    """Add a bare repository whose programs git starts without the variables of the command that fetches or pushes."""
    subprocess.run([GIT, "clone", "-q", "--bare", ".git", "mirror"], cwd=folder, check=True, capture_output=True)
    (folder / "mirror/objects/info/alternates").write_text(f"{folder}/.git/objects\n")
    with (folder / "mirror/config").open("a") as config:
        config.write(f"[core]\n\talternateRefsCommand = {tool}\n[uploadpack]\n\tpackObjectsHook = {tool}\n")
    for name in RECEIVING_HOOKS:
        shutil.copy(tool, folder / "mirror/hooks" / name)
        shutil.copy(tool, folder / ".git/hooks" / name)


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def policy() -> CommandPolicy:
    return CommandPolicy(autonomy=Autonomy.FULL, path=tuple(os.environ["PATH"].split(os.pathsep)))


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("text", ALLOWED)
def test_git_starts_nothing_that_the_repository_names(text: str, repository: Path) -> None:
    verdict = check_command(
        policy(), text, variables={}, files=FolderFiles(repository), workspace=str(repository), approved=False
    )

    assert verdict.plan is not None, verdict.reason
    [command] = verdict.plan.pipelines[0].commands
    subprocess.run(
        command.words,
        executable=command.program,
        cwd=repository,
        env=environment(repository.parent) | command.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert not (repository.parent / "started").exists(), (repository.parent / "started").read_text()


@pytest.mark.req("Z-04")
def test_npm_which_starts_git_gives_it_the_same_variables(repository: Path) -> None:
    (repository.parent / "npm").write_text("#!/bin/false\n")
    (repository.parent / "npm").chmod(0o755)
    rules = replace(policy(), path=(str(repository.parent), *policy().path))
    fixed = {}
    for text in ("git status", "npm install --ignore-scripts"):
        verdict = check_command(
            rules, text, variables={}, files=FolderFiles(repository), workspace=str(repository), approved=False
        )
        assert verdict.plan is not None, verdict.reason
        fixed[text.split()[0]] = verdict.plan.pipelines[0].commands[0].variables

    inherited = {name: value for name, value in fixed["git"].items() if name != "GIT_CEILING_DIRECTORIES"}
    assert inherited.items() <= fixed["npm"].items()
    assert "file" not in inherited["GIT_ALLOW_PROTOCOL"]


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("text", REFUSED)
def test_git_is_not_asked_to_start_a_program(text: str, repository: Path) -> None:
    verdict = check_command(
        policy(), text, variables={}, files=FolderFiles(repository), workspace=str(repository), approved=False
    )

    assert not verdict.allowed


@pytest.fixture
def inside(repository: Path) -> Path:
    """A workspace in a folder of the repository, which is then around it."""
    folder = repository / "sub"
    (folder / "notes").write_text("inside\n")
    return folder


def ran(command: PlannedCommand, folder: Path) -> str:
    """The output of the program."""
    return subprocess.run(
        command.words,
        executable=command.program,
        cwd=folder,
        env=environment(folder) | command.variables,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    ).stdout


@pytest.mark.req("Z-05", "Z-13")
@pytest.mark.parametrize("text", ["git log", "git show HEAD:notes", "git -C deep log", "git ls-files"])
def test_git_finds_no_repository_around_the_workspace(text: str, inside: Path) -> None:
    (inside / "deep").mkdir()
    verdict = check_command(
        policy(), text, variables={}, files=FolderFiles(inside), workspace=str(inside), approved=False
    )

    assert verdict.plan is not None, verdict.reason
    [command] = verdict.plan.pipelines[0].commands
    assert ran(command, inside) == ""
    assert ran(replace(command, variables={}), inside) != ""


@pytest.mark.req("Z-05", "Z-13")
@pytest.mark.parametrize("part", ["", "/config", "/objects", "/refs"])
@pytest.mark.parametrize(("text", "folder"), [("git log", "."), ("git log", "deep"), ("ls; git -C deep log", ".")])
def test_git_reads_no_repository_to_which_a_link_leads(text: str, folder: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "ws/deep").mkdir(parents=True)
    (tmp_path / "ws/.git").mkdir()
    allowed = check_command(
        policy(),
        text,
        variables={},
        files=FolderFiles(tmp_path / "ws" / folder),
        workspace=f"{tmp_path}/ws",
        approved=False,
    )
    (tmp_path / "ws/.git").rmdir()
    (tmp_path / f"ws/.git{part}").parent.mkdir(exist_ok=True)
    (tmp_path / f"ws/.git{part}").symlink_to(tmp_path / "elsewhere")
    verdict = check_command(
        policy(),
        text,
        variables={},
        files=FolderFiles(tmp_path / "ws" / folder),
        workspace=f"{tmp_path}/ws",
        approved=False,
    )

    assert allowed.allowed
    assert (verdict.rule, verdict.reason) == (
        PolicyRule.PATH,
        "forbidden path argument: .git, which leads out of the workspace",
    )


def test_the_repository_is_an_attack(repository: Path) -> None:
    """Without the policy the tool does run, so that the tests above can fail."""
    subprocess.run(
        [GIT, "status"], cwd=repository, env=environment(repository.parent), capture_output=True, check=False
    )

    assert (repository.parent / "started").exists()
