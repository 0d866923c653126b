"""An accepted command has the same words for us as for a shell: dash and bash run it, and stand-ins record theirs."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gnomon.core.commands.plan import CommandPlan, Connector, PlannedCommand
from gnomon.core.commands.policy import Autonomy, CommandPolicy, check_command
from support.folder_files import FolderFiles

SHELLS = [pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason="no such shell here"))
          for shell in ("dash", "bash")]  # fmt: skip
#: Writes its words, two variables and its input into a file of its own; `f` fails, all others succeed.
STAND_IN = """#!/bin/sh
record=$(mktemp "$RECORDS/XXXXXXXX")
{
  printf '%s\\0' "${0##*/}" "$@" "x=$x" "JOB_A=$JOB_A"
  read -r line && printf '%s\\0' "in=$line"
} > "$record" 2>/dev/null
[ "${0##*/}" != f ]
"""
PROGRAMS = ("a", "b", "f", "ab")
VARIABLES = {"x": "one", "y": "d/e", "JOB_A": "a"}
#: Odd values, which a test puts only into double quotes, where a shell neither splits nor expands them.
ODD = {"odd_1": "two  words", "odd_2": "*", "odd_3": "$x `a` \"'\\", "odd_4": "", "odd_5": "-e;f"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stand-ins in `bin` and some files in `ws`."""
    folder = tmp_path_factory.mktemp("shell")
    for name in ("bin", "ws/d", "ws/.h", "records"):
        (folder / name).mkdir(parents=True)
    for name in ("a", "b", "ab", "d/e", "d/f.x", ".hidden", "x=1", "-n", "a b", "~", "#", "2"):
        (folder / "ws" / name).write_text(f"content of {name}\n")
    for name in PROGRAMS:
        (folder / "bin" / name).write_text(STAND_IN)
        (folder / "bin" / name).chmod(0o755)
    return folder


def planned(folder: Path, text: str, variables: dict[str, str]) -> CommandPlan | None:
    """The plan of a text by a policy that lets everything run that the grammar covers."""
    policy = CommandPolicy(
        autonomy=Autonomy.FULL,
        allowed_commands=None,
        forbidden_paths=(),
        workspace_only=False,
        block_high_risk=False,
        path=(str(folder / "bin"),),
    )
    workspace = folder / "ws"
    return check_command(
        policy, text, variables=variables, files=FolderFiles(workspace), workspace=str(workspace), approved=True
    ).plan


def run_by_shell(folder: Path, shell: str, text: str, variables: dict[str, str]) -> Counter[tuple[str, ...]]:
    """The records of the programs that a shell starts for a text."""
    for old in (folder / "records").iterdir():
        old.unlink()
    path = f"{folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {"PATH": path, "LC_ALL": "C", "RECORDS": str(folder / "records"), **variables}
    done = subprocess.run(
        [shell, "-c", text],
        cwd=folder / "ws",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"yntax error" not in done.stderr, (text, done.stderr)
    return Counter(tuple(path.read_bytes().decode().split("\0")[:-1]) for path in (folder / "records").iterdir())


def run_by_plan(plan: CommandPlan, variables: dict[str, str]) -> Counter[tuple[str, ...]]:
    """The records that the programs of a plan would write."""
    return Counter(record(command, variables) for command in executed(plan))


def executed(plan: CommandPlan) -> Iterator[PlannedCommand]:
    """The programs of a plan that run, if `f` fails and all others succeed."""
    succeeded = True
    for pipeline in plan.pipelines:
        wanted = {Connector.ALWAYS: True, Connector.AND: succeeded, Connector.OR: not succeeded}[pipeline.connector]
        if wanted:
            yield from pipeline.commands
            succeeded = pipeline.commands[-1].words[0] != "f"


def record(command: PlannedCommand, variables: dict[str, str]) -> tuple[str, ...]:
    own = variables | command.variables
    read = [f"in={Path(command.stdin).read_text().splitlines()[0]}"] if command.stdin else []
    return (*command.words, f"x={own.get('x', '')}", f"JOB_A={own.get('JOB_A', '')}", *read)


def has_the_same_words(folder: Path, shell: str, text: str, variables: dict[str, str]) -> bool:
    """Whether the text is accepted; then a shell reads the same words."""
    plan = planned(folder, text, variables)
    inputs = [one.stdin for pipe in plan.pipelines for one in pipe.commands if one.stdin] if plan else []
    if plan is None or not all(Path(file).is_file() for file in inputs):
        # Most texts are refused, which is no failure and costs nothing.
        return False

    assert run_by_shell(folder, shell, text, variables) == run_by_plan(plan, variables), text
    return True


#: Pieces of words, most of which the grammar covers.
PIECES = st.sampled_from(
    [
        *"abdefx12.-/:=,+%@^!~#_] ",
        "'a b'", "'$x'", "'*'", "'\\'", "''", "'\"'", "'|&;<>(){}'", "'a\nb'",
        '"a  b"', '"$x"', '"*"', '"\\$x"', '"\\\\"', '"\\a"', '""', "\"'\"", '"|&;<>(){}"', '"a\nb"', '"$ "', '"a$"',
        "\\ ", "\\'", '\\"', "\\$", "\\*", "\\\\", "\\|", "\\;", "\\~", "\\#", "\\a",
        "$x", "$y", "$JOB_A", "$", "*", "?", "[ab]", "[!a]", "[a-c]", "d/*", "*.x", "é", "日本",
    ]
)  # fmt: skip
WORDS = st.lists(PIECES, min_size=1, max_size=5).map("".join)
REDIRECTIONS = st.sampled_from(
    ["<a", "< d/e", "<$y", ">/dev/null", "2>/dev/null", "2>&1", "> /dev/null 2>&1", "<'a b'"]
)
ASSIGNMENTS = st.builds("{}={}".format, st.sampled_from(["x", "JOB_A", "z"]), st.one_of(WORDS, st.just("")))


DOTTED = re.compile(r"\.\S*[*?\[]")


def spaced(parts: list[str]) -> str:
    return " ".join(parts)


SIMPLE = st.builds(
    lambda before, program, words: spaced([*before, program, *words]),
    st.lists(st.one_of(ASSIGNMENTS, REDIRECTIONS), max_size=2),
    st.sampled_from([*PROGRAMS, "'a'", "\\a", '"a"b', "$JOB_A"]),
    st.lists(st.one_of(WORDS, WORDS, WORDS, REDIRECTIONS), max_size=4),
)
OPERATORS = st.sampled_from([" | ", "|", "; ", ";", " && ", "&&", " || ", "||", "\n", " &&\n", " |\n\n", " \\\n"])
COMMANDS = st.builds(
    lambda first, rest: first + "".join(operator + command for operator, command in rest),
    SIMPLE,
    st.lists(st.tuples(OPERATORS, SIMPLE), max_size=3),
)
#: Anything at all, from the characters that mean something to a shell.
NOISE = st.text(alphabet="ab xf.-/=12*?[]!'\"\\$;|&<>\n~#{}()`^,:%+@", min_size=1, max_size=14).map("a ".__add__)


@pytest.mark.req("Z-04", "Z-05")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("texts", [pytest.param(COMMANDS, id="commands"), pytest.param(NOISE, id="noise")])
def test_an_accepted_command_has_the_words_that_a_shell_reads(
    texts: SearchStrategy[str], shell: str, folder: Path
) -> None:
    accepted = 0

    @settings(max_examples=3 * settings().max_examples)
    @given(texts)
    def check(text: str) -> None:
        nonlocal accepted
        # dash lets a pattern that begins with a dot match `.` and `..`; no pattern of ours does.
        if shell != "dash" or not DOTTED.search(text):
            accepted += has_the_same_words(folder, shell, text, VARIABLES)

    check()
    assert accepted >= 10


@pytest.mark.parametrize("shell", SHELLS)
@given(st.lists(st.sampled_from([*ODD, "x", "y"]), min_size=1, max_size=4), st.booleans())
def test_a_variable_is_a_part_of_one_word_whatever_its_value_is(
    shell: str,
    folder: Path,
    names: list[str],
    apart: bool,  # noqa: FBT001 - from Hypothesis
) -> None:
    variables = VARIABLES | ODD
    text = "a " + ("" if not apart else " ").join(f'"${name}"' for name in names)

    assert has_the_same_words(folder, shell, text, variables)
    # Without quotes a shell would split it, and we do not.
    bare = planned(folder, text.replace('"', ""), variables)
    assert bare is not None
    assert bare == planned(folder, text, variables)
