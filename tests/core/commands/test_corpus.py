"""Hundreds of commands and their verdicts, on the files of a real workspace."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from core.commands import corpus
from core.commands.corpus import Case
from gnomon.core.commands.files import TextFiles, is_inside
from gnomon.core.commands.paths import HOME_FOLDERS, SYSTEM_FOLDERS
from gnomon.core.commands.policy import Autonomy, CommandPolicy, CommandVerdict, PolicyRule, check_command
from gnomon.core.commands.syntax import MOST_PROGRAMS
from support.folder_files import FolderFiles

VARIABLES: Mapping[str, str | None] = {
    "FILE": "notes.txt",
    "TEXT": "two words",
    "outside": "../x",
    "later": None,
    "empty": "",
}
LISTED = tuple(
    "git npm ls cat echo rm curl wget dd cp ln mv tee touch sort uniq split shuf sed awk gawk tar zip rsync scp ssh"
    " python3 perl node ruby php pip yarn make rg fd du date patch env xargs bash busybox vim less ld.so"
    " openssl gpg gzip unzip cpio diff tree file install ldd"
    " python3-dbg python3.11d ipython3 deno bun R bash-static dash.real xargs.real vim.tiny sudoedit sshpass"
    " systemd-nspawn posh xonsh gxargs gfind bfs gsort"
    " ld-linux-x86-64.so.2 alias-of-env alias-of-rm alias-of-python missing".split()
)
PROGRAMS = {
    word
    for case in (*corpus.DEFAULT, *corpus.LISTED, *corpus.ANYWHERE)
    for word in re.findall(r"[a-zA-Z][\w.-]*", case.text[:200])
} - {"missing"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the workspace `ws`, programs in `bin`, and other things beside the workspace."""
    home = tmp_path_factory.mktemp("home")
    for folder in ("ws/data", "ws/.hidden", "bin", "outside"):
        (home / folder).mkdir(parents=True)
    for file in ("ws/notes.txt", "ws/data/a.csv", "ws/data/b.csv", "outside/x", "beside", "ws/-flag"):
        (home / file).write_text("some text\n")
    for link, target in {"link": "../outside", "data/out": "../../outside", "inner": "data"}.items():
        (home / "ws" / link).symlink_to(target)
    (home / "home-link").symlink_to("/root")
    (home / "etc-link").symlink_to("/etc")
    for program in (*sorted(PROGRAMS), *LISTED, "../ws/ls", "../ws/tool"):
        if program != "missing" and not program.startswith("alias-of"):
            (home / "bin" / program).write_text("#!/bin/false\n")
            (home / "bin" / program).chmod(0o755)
    for target in ("env", "rm", "python3"):
        (home / "bin" / f"alias-of-{target.rstrip('3')}").unlink(missing_ok=True)
        (home / "bin" / f"alias-of-{target.rstrip('3')}").symlink_to(target)
    return home


@pytest.fixture(scope="module")
def default(home: Path) -> CommandPolicy:
    return CommandPolicy(path=(str(home / "bin"),))


@pytest.fixture(scope="module")
def listed(default: CommandPolicy) -> CommandPolicy:
    return replace(default, allowed_commands=LISTED, commands_are_chosen=True, autonomy=Autonomy.FULL)


@pytest.fixture(scope="module")
def anywhere(default: CommandPolicy, home: Path) -> CommandPolicy:
    elsewhere = tuple(folder for folder in SYSTEM_FOLDERS if not is_inside(str(home), folder))
    return replace(default, workspace_only=False, forbidden_paths=elsewhere + HOME_FOLDERS, autonomy=Autonomy.FULL)


def judged(policy: CommandPolicy, text: str, home: Path) -> CommandVerdict:
    """The verdict of a worker, which has the files."""
    folder = home / "ws"
    files = FolderFiles(folder)
    return check_command(policy, text, variables=VARIABLES, files=files, workspace=str(folder), approved=False)


def names(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=f"{number} {case.why}") for number, case in enumerate(cases, 1)]


def test_the_corpus_is_large_and_names_each_command_once() -> None:
    texts = [case.text for cases in (corpus.DEFAULT, corpus.LISTED, corpus.ANYWHERE) for case in cases]

    assert len(texts) >= 300
    for cases in (corpus.DEFAULT, corpus.LISTED, corpus.ANYWHERE):
        assert len({case.text for case in cases}) == len(cases)


@pytest.mark.req("Z-04", "Z-05")
@pytest.mark.parametrize("case", names(corpus.DEFAULT))
def test_the_default_policy(case: Case, default: CommandPolicy, home: Path) -> None:
    verdict = judged(default, case.text, home)

    assert (verdict.rule, verdict.reason if verdict.rule is not case.rule else "") == (case.rule, "")


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("case", names(corpus.LISTED))
def test_a_policy_with_more_programs(case: Case, listed: CommandPolicy, home: Path) -> None:
    verdict = judged(listed, case.text, home)

    assert (verdict.rule, verdict.reason if verdict.rule is not case.rule else "") == (case.rule, "")


@pytest.mark.req("Z-05")
@pytest.mark.parametrize("case", names(corpus.ANYWHERE))
def test_a_policy_that_lets_commands_leave_the_workspace(case: Case, anywhere: CommandPolicy, home: Path) -> None:
    verdict = judged(anywhere, case.text, home)

    assert (verdict.rule, verdict.reason if verdict.rule is not case.rule else "") == (case.rule, "")


@pytest.mark.req("Z-05")
@pytest.mark.parametrize("case", names(corpus.DEFAULT))
def test_a_server_which_has_not_the_files_refuses_nothing_that_a_worker_allows(
    case: Case, default: CommandPolicy, home: Path
) -> None:
    folder = str(home / "ws")
    seen = check_command(
        default, case.text, variables=VARIABLES, files=TextFiles(folder), workspace=folder, approved=False
    )

    if case.rule is None:
        assert (seen.rule, seen.reason) == (None, "")
    elif seen.rule is not case.rule:
        # Only a link, a pattern, or a program that is not there escapes a server.
        assert seen.rule in (None, PolicyRule.APPROVAL)
        assert re.search("link|out|inner|[*?]", case.text)


@pytest.mark.req("Z-04", "Z-05")
@pytest.mark.parametrize(
    ("number", "text"), [(number, text) for number, texts in corpus.WEAKNESSES.items() for text in texts]
)
def test_a_weakness_of_the_reference_is_closed(number: str, text: str, default: CommandPolicy, home: Path) -> None:
    verdict = judged(default, text, home)

    if number == "A9":
        # No pattern matches `..`: the program gets the text of the pattern, and no path out of the workspace.
        assert verdict.words == (tuple(text.split()),)
    else:
        assert not verdict.allowed


@pytest.mark.req("Z-05")
@pytest.mark.parametrize("text", corpus.WEAKNESSES["A24"])
def test_a_weakness_without_workspace_only_is_closed(text: str, anywhere: CommandPolicy, home: Path) -> None:
    assert judged(anywhere, text, home).rule is PolicyRule.PATH


@pytest.mark.parametrize("case", [case for case in corpus.DEFAULT if case.rule is PolicyRule.GRAMMAR])
def test_a_refusal_by_the_grammar_names_the_place(case: Case, default: CommandPolicy, home: Path) -> None:
    verdict = judged(default, case.text, home)

    assert verdict.position is not None
    assert 0 <= verdict.position <= len(case.text)
    assert f"at character {verdict.position + 1}, it " in verdict.reason
    assert verdict.plan is None


def test_as_many_programs_as_the_limit_says_are_allowed(default: CommandPolicy, home: Path) -> None:
    assert judged(default, "ls;" * MOST_PROGRAMS, home).allowed
    assert not judged(default, "ls;" * (MOST_PROGRAMS + 1), home).allowed
