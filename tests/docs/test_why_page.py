"""The page about why, and the first one, show what is printed, for one afternoon of one job."""

import re
import shlex
from pathlib import Path

import pytest

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.cli.actions.why import show
from gnomon.cli.output import Format
from gnomon.core.model import Result
from gnomon.services.operations.presenters import why_answer
from gnomon.testing.clock import VirtualClock
from support.story import Story

ROOT = Path(__file__).parents[2]
SESSION = re.compile(r"^```text\n\$ gnomon (why .*)\n((?:.*\n)*?)```$", re.MULTILINE)
SESSIONS = [
    pytest.param(*session, id=f"{page}: {session[0]}")
    for page in ("docs/why.md", "README.md")
    for session in SESSION.findall((ROOT / page).read_text())
]
#: Nobody wants to read the whole of them.
RUN = re.compile(r"run_(\w{4})\w+(\w{4})")


async def an_afternoon(story: Story) -> None:
    await story.job("*/10 * * * *", retry={"max_attempts": 3, "initial_delay": "30s", "jitter": 0})
    await story.until("12:10")
    await story.done("12:21:30")
    await story.until("12:30")
    await story.done("12:30:04", Result.FAILED, error="disk full")
    await story.until("12:30:34")
    await story.done("12:30:40")
    await story.dark("12:35")
    await story.jobs.pause("report", actor="bob")
    await story.dark("13:05")
    await story.jobs.resume("report", actor="eve")
    await story.dark("14:25")
    await story.until("14:30")
    await story.go()
    await story.until("14:30:20")


@pytest.mark.parametrize(("command", "printed"), SESSIONS)
async def test_a_session_prints_what_is_printed(command: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock(NOON)
    story = Story(MemoryStore(clock.now), clock)
    await an_afternoon(story)
    said = shlex.split(command)
    answer = await (story.why(said[3]) if said[2] == "--at" else story.why(last=int(said[3])))

    show(why_answer(answer), Format.TABLE)

    assert RUN.sub(r"run_\1…\2", capsys.readouterr().out) == printed


def test_there_are_sessions() -> None:
    assert len(SESSIONS) == 6
