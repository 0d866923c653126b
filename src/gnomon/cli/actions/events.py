"""`gnomon events`: what happened outside, and what became of it."""

from collections import Counter

import msgspec

from gnomon.app.gateway import Door
from gnomon.cli.inputs import json_given
from gnomon.cli.output import Format, facts, first_line, moment, print_data, print_list, print_table
from gnomon.cli.target import Where, answer_to, at_door, page_of, say, some_of
from gnomon.client import requests
from gnomon.core.responses import EventDetail, EventEntry
from gnomon.core.runs.external_events import EntryKind


def emit(name: str, body: str | None, key: str | None, where: Where, form: Format) -> None:
    """Say that something happened."""
    done = answer_to(where, requests.emit(name, json_given("--body", body), key=key))
    if form is not Format.TABLE:
        print_data(done, form)
        return
    say(done.event_id)
    _print_entries(done.entries)


def list_events(name: str | None, limit: int, where: Where, form: Format) -> None:
    """List events, the newest first."""

    async def work(door: Door) -> list[EventDetail]:
        return await some_of(door, requests.events(name=name, page=page_of(limit)), limit)

    found = at_door(where, work)
    print_list(found, form, ["event", "name", "emitted", "key", "body", "became"], _row, none="no events")


def _row(one: EventDetail) -> list[str]:
    return [one.event_id, one.name, moment(one.emitted_at), one.key or "", _body(one, 40), _counted(one.entries)]


def show(event_id: str, where: Where, form: Format) -> None:
    """Show an event and what became of it for every job that listens."""
    found = answer_to(where, requests.event(event_id))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    told = [
        ("event", found.event_id),
        ("name", found.name),
        ("emitted", f"{moment(found.emitted_at)} by {found.actor}"),
        ("key", found.key or ""),
        ("body", _body(found, 200)),
    ]
    say("\n".join(facts(told)))
    say("")
    _print_entries(found.entries)


def _body(event: EventDetail, width: int) -> str:
    return first_line(msgspec.json.encode(event.body).decode(), width)


def _print_entries(entries: list[EventEntry]) -> None:
    if not entries:
        say("no job listens to it")
        return
    rows = [[one.job, one.became, one.reason.replace("_", " "), one.execution_id or ""] for one in entries]
    print_table(["job", "became", "why", "execution"], rows)


def _counted(entries: list[EventEntry]) -> str:
    counts = Counter(entry.became for entry in entries)
    return ", ".join(f"{counts[kind]} {kind}" for kind in EntryKind if counts[kind])
