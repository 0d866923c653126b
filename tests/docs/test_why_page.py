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
from gnomon.services.operations.presenters.why import why_response
from gnomon.testing.clock import VirtualClock
from support.why_scenario import WhyScenario

ROOT = Path(__file__).parents[2]
SESSION = re.compile(r"^```text\n\$ gnomon (why .*)\n((?:.*\n)*?)```$", re.MULTILINE)
SESSIONS = [
    pytest.param(*session, id=f"{page}: {session[0]}")
    for page in ("docs/why.md", "README.md")
    for session in SESSION.findall((ROOT / page).read_text())
]
#: Nobody wants to read the whole of them.
RUN = re.compile(r"run_(\w{4})\w+(\w{4})")


async def an_afternoon(timeline: WhyScenario) -> None:
    await timeline.job("*/10 * * * *", retry={"max_attempts": 3, "initial_delay": "30s", "jitter": 0})
    await timeline.run_until("12:10")
    await timeline.run_to_end("12:21:30")
    await timeline.run_until("12:30")
    await timeline.run_to_end("12:30:04", Result.FAILED, error="disk full")
    await timeline.run_until("12:30:34")
    await timeline.run_to_end("12:30:40")
    await timeline.outage_until("12:35")
    await timeline.jobs.pause("report", actor="bob")
    await timeline.outage_until("13:05")
    await timeline.jobs.resume("report", actor="eve")
    await timeline.outage_until("14:25")
    await timeline.run_until("14:30")
    await timeline.run_until_idle()
    await timeline.run_until("14:30:20")


@pytest.mark.parametrize(("command", "printed"), SESSIONS)
async def test_a_session_prints_what_is_printed(command: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock(NOON)
    timeline = WhyScenario(MemoryStore(clock.now), clock)
    await an_afternoon(timeline)
    said = shlex.split(command)
    answer = await (timeline.why(said[3]) if said[2] == "--at" else timeline.why(last=int(said[3])))

    show(why_response(answer), Format.TABLE)

    assert RUN.sub(r"run_\1…\2", capsys.readouterr().out) == printed


def test_there_are_sessions() -> None:
    assert len(SESSIONS) == 6
