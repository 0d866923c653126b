"""The page about announcements: its files are accepted, and its first example tells a channel of a failure."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.adapters.event_sinks import ConsoleEvents
from gnomon.config.channels import channel_rules
from gnomon.config.settings import load
from gnomon.core.announcements.channels import TRAITS, ChannelKind, check_announcements
from gnomon.core.announcements.model import AnnounceMoment
from gnomon.core.announcements.text import TEXT_ROOTS
from gnomon.core.jobs.announce_fields import ANNOUNCE_FIELDS
from support.channel_server import channel_server
from support.gnomon_processes import up

PAGE = (Path(__file__).parents[2] / "docs" / "announcements.md").read_text()
FILES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ENVIRONMENT = {"SLACK_TOKEN": "xoxb-token", "HOOK_SECRET": "s3cret"}


@pytest.mark.req("Z-07")
async def test_five_lines_announce_a_failure(tmp_path: Path) -> None:
    settings, jobs = FILES[:2]
    assert len(jobs.splitlines()) == 5
    async with channel_server() as service:
        # The service of the example is not ours, and its moment is far away.
        (tmp_path / "gnomon.yaml").write_text(settings.replace("kind: slack,", f'kind: slack, url: "{service.url}",'))
        (tmp_path / "jobs.yaml").write_text(jobs.replace("every day at 02:00", '"* * * * * *"'))
        flags = ["--config", str(tmp_path / "gnomon.yaml"), "--jobs", str(tmp_path / "jobs.yaml")]
        with up(tmp_path / "gnomon.db", *flags, environment=ENVIRONMENT):
            async with asyncio.timeout(60):
                await service.until(1)

    assert service.requests[0].json["channel"] == "C024BE91L"
    assert service.texts[0].startswith("backup failed: exit status 127")


def test_every_file_of_the_page_is_accepted(tmp_path: Path) -> None:
    channels: dict[str, Any] = {}
    read: list[Any] = []
    for number, text in enumerate(FILES):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        if text.startswith("jobs:"):
            read += gnomon.read_jobs(file)
        else:
            channels |= yaml.safe_load(text)["channels"]
    settings = load(file={"channels": channels}, environment=ENVIRONMENT)

    assert {rule.channel for job in read for rule in job.workflow.announce} == {"ops", "oncall", "mail"}
    assert {one.kind for one in settings.channels.values()} == {"slack", "mattermost", "email", "webhook", "apprise"}
    known = channel_rules(settings.channels)
    for job in read:
        check_announcements([one for one in job.workflow.announce if one.channel != "oncall"], known, "default")


def test_the_tables_name_every_field_moment_reference_kind_and_event() -> None:
    for field in ANNOUNCE_FIELDS:
        assert f"| `{field}` |" in PAGE
    for moment in AnnounceMoment:
        assert f"| `{moment}` |" in PAGE
    for root, fields in TEXT_ROOTS.items():
        assert f"${{{root}" in PAGE
        for field in fields or ():
            assert f".{field}" in PAGE or root == "run"
    for kind in ChannelKind:
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind}` |")]
        limit = TRAITS[kind].limit
        assert limit is None or f"{limit.most}" in row.replace(",", "")
    lines = Path(ConsoleEvents.__init__.__globals__["__file__"]).read_text()
    for event in ("announced", "announcement_delayed", "announcement_given_up"):
        assert f"| `{event}` |" in PAGE
        assert f'"{event}": lambda' in lines
