"""Accepted commands, run for real: programs get the words that were checked, and reach no forbidden file.

Canary files lie in every forbidden folder in which the user of the tests may write. Stand-ins on `security.path` note
their words, and try to open every path that could be in one. In the sandbox they also try every canary by its path.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.config.sections import SecuritySettings, ShellSettings
from gnomon.core.commands.paths import SYSTEM_FOLDERS
from gnomon.core.commands.plan import CommandPlan
from gnomon.core.commands.policy import Autonomy, check_command, policy_for
from gnomon.core.model import Result
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.kernel_support import probe_kernel
from gnomon.runners.real_files import RealFiles
from gnomon.runners.registry import Functions
from runners.runner_harness import assignment, open_runner

ORIGIN = "api"
PYTHON = Path("/usr/bin/python3")
needs_python = pytest.mark.skipif(not PYTHON.exists(), reason="the system has no Python of its own")
needs_kernel = pytest.mark.skipif(bool(probe_kernel().missing), reason=f"the kernel lacks {probe_kernel().missing}")
#: A program must read these in order to start, so a canary in one shows nothing.
READABLE = frozenset("/usr /bin /sbin /lib /lib32 /lib64 /libx32 /proc /sys /boot".split())
#: Notes its words, the canaries that its words name, all others that a part of a word leads to, and those that it can
#: open by their paths.
STAND_IN = f"""#!{PYTHON} -IS
import json, os, sys
def opened(path):
    try:
        with open(path, "rb") as file:
            return b"the canary" in file.read(100)
    except (OSError, ValueError):
        return False
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
starts = {{(word, at) for word in words for at in range(len(word))}}
named = [word[at:] for word, at in starts if (not at or word[at - 1] in "=@:,;<>") and opened(word[at:])]
inside = [word[at:] for word, at in starts if opened(word[at:])]
listed = [path for path in open("CANARIES").read().splitlines() if opened(path)]
with open("NOTES", "a") as notes:
    notes.write(json.dumps([words, named, inside, listed]) + "\\n")
"""
QUOTES = ("'", '"')
VARIABLES = {"JOB_UP": "..", "JOB_TEXT": "two  words", "JOB_FILE": "inner/file", "JOB_ROOT": "/"}


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Sequence[Path]]:
    """Files in the forbidden folders, and one beside the workspace."""
    folders = [Path(folder) for folder in SYSTEM_FOLDERS if folder not in READABLE]
    files = [folder / f"gnomon-canary-{os.getpid()}" for folder in (*folders, Path("/dev/shm"), Path("/var/tmp"))]  # noqa: S108
    files.append(tmp_path / "canary")
    written = []
    for file in files:
        with suppress(OSError):
            file.write_text("the canary")
            written.append(file)
    yield written
    for file in written:
        file.unlink(missing_ok=True)


@pytest.fixture
def workspace(tmp_path: Path, canaries: Sequence[Path]) -> Path:
    folder = tmp_path / "workspace"
    (folder / "inner").mkdir(parents=True)
    for name in ("inner/file", "a file", "-f", "x=y"):
        (folder / name).write_text("inside")
    for number, canary in enumerate(canaries):
        (folder / f"way{number}").symlink_to(canary.parent)
        (folder / "inner" / f"file{number}").symlink_to(canary)
    (folder / "up").symlink_to("..")
    (folder / "CANARIES").write_text("\n".join(map(str, canaries)))
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def texts(canaries: Sequence[Path]) -> st.SearchStrategy[str]:
    """Simple commands, many of whose words would lead to a canary by one spelling or another."""
    number = st.integers(0, len(canaries) - 1)
    path = number.map(lambda at: str(canaries[at]))
    name = number.map(lambda at: canaries[at].name)
    spelled = st.one_of(
        path,
        path.map(lambda text: "/" + text),
        path.map(lambda text: text.replace("/", "//")),
        path.map(lambda text: text.replace("/", "/./", 1)),
        path.map(lambda text: f"/proc/self/root{text}"),
        path.map(lambda text: "".join(f"\\{sign}" for sign in text)),
        path.map(lambda text: f"{text[:3]}''{text[3:]}"),
        path.map(lambda text: f"{text[:2]}?{text[3:]}"),
        path.map(lambda text: f"{text[:-1]}*"),
        path.map(lambda text: f"${{JOB_ROOT}}{text[1:]}"),
        path.map(lambda text: f"$JOB_ROOT{text[1:]}"),
        path.map(lambda text: "/".join([".."] * 9) + text),
        path.map(lambda text: "inner/$JOB_UP/" + "$JOB_UP/" * 9 + text),
        st.builds("way{}/{}".format, number, name),
        st.builds("w[a]y{}/{}".format, number, name),
        st.builds("way*/{}".format, name),
        st.builds("inner/file{}".format, number),
        st.just("inner/*"),
        st.just("up/canary"),
        st.just("../canary"),
        st.just(".?/canary"),
        st.just("inner/../../canary"),
    )
    harmless = st.sampled_from(
        [
            "inner/file",
            "$JOB_FILE",
            "'a file'",
            "a*",
            "$JOB_TEXT",
            "x=y",
            "-f",
            "i*r",
            "''",
            "text",
            "\\~",
            "inner/[f]il?",
        ]
    )
    before = st.sampled_from(
        [
            "",
            "",
            "",
            "-f",
            "--file=",
            "x=",
            "@",
            "a:",
            "a,",
            "file://",
            "FILE:",
            "file:",
            "x://",
            "x://h/",
            "-xf",
            "'",
            '"',
        ]
    )
    word = st.builds(lambda begin, text: f"{begin}{text}{begin if begin in QUOTES else ''}", before, spelled)
    usual = st.builds("{}{}".format, st.sampled_from(["", "-f", "--file=", "@", "https://host/"]), harmless)

    @st.composite
    def command(draw: st.DrawFn) -> str:
        def part(rare: st.SearchStrategy[str], often: st.SearchStrategy[str]) -> str:
            return draw(rare if draw(st.integers(0, 7)) == 7 else often)

        words = [part(word, usual) for _ in range(draw(st.integers(1, 4)))]
        stdin = part(spelled.map("<{}".format), st.sampled_from(["", "", "<inner/file"]))
        variable = part(spelled.map("JOB_A={}".format), st.sampled_from(["", "", "JOB_A=text"]))
        program = draw(st.sampled_from(["one", "two", "'one'"]))
        return " ".join(filter(None, [variable, program, *words, stdin]))

    return command()


def plan_of(text: str, security: SecuritySettings, workspace: Path) -> CommandPlan | None:
    policy = policy_for(security, ORIGIN)
    assert policy is not None
    return check_command(
        policy,
        text,
        variables=VARIABLES,
        files=RealFiles(str(workspace)),
        workspace=str(workspace),
        approved=False,
    ).plan


def accepted_texts(security: SecuritySettings, workspace: Path, canaries: Sequence[Path]) -> list[str]:
    found: dict[str, None] = {}

    @settings(max_examples=10 * settings().max_examples)
    @given(texts(canaries))
    def collect(text: str) -> None:
        if plan_of(text, security, workspace) is not None:
            found[text] = None

    collect()
    return list(found)


@pytest.mark.req("Z-04", "Z-05", "Z-13")
@needs_python
@pytest.mark.parametrize("sandbox", [pytest.param("auto", marks=needs_kernel), "off"])
async def test_an_accepted_command_gets_its_words_and_opens_no_forbidden_file(
    workspace: Path, programs: Path, canaries: Sequence[Path], sandbox: Literal["auto", "off"]
) -> None:
    security = SecuritySettings(
        allowed_commands=("one", "two"),
        path=(str(programs), "/usr/bin", "/bin"),
        autonomy=Autonomy.FULL,
        max_actions_per_hour=-1,
    )
    accepted = accepted_texts(security, workspace, canaries)
    assert len(accepted) >= 20
    text = "\n".join(accepted)
    plan = plan_of(text, security, workspace)
    assert plan is not None
    checked = [list(command.words) for pipeline in plan.pipelines for command in pipeline.commands]

    async with open_runner(
        Functions(), shell=ShellSettings(workspace=str(workspace), sandbox=sandbox), security=security
    ) as harness:
        given_input = {"env": VARIABLES}
        assigned = assignment(SHELL, given_input, command=text, input=given_input, origin=ORIGIN)
        harness.runner.start([assigned])
        outcome = await harness.outcome(assigned)

    assert outcome.result is Result.SUCCEEDED, outcome
    notes: list[Any] = [json.loads(line) for line in (workspace / "NOTES").read_text().splitlines()]
    assert [words for words, *_ in notes] == checked
    assert [named for _, named, *_ in notes if named] == []
    reached = [(inside, listed) for _, _, inside, listed in notes if inside or listed]
    # Without the sandbox the stand-ins do reach the canaries, by paths that no word names.
    assert bool(reached) is (sandbox == "off")


def test_there_are_canaries_and_the_words_would_lead_to_them(workspace: Path, canaries: Sequence[Path]) -> None:
    assert len(canaries) >= 2
    assert (workspace / "way0" / canaries[0].name).read_text() == "the canary"
    assert (workspace / "up/canary").read_text() == "the canary"
