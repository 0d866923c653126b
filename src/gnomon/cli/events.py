"""`gnomon events`: what happened outside, and what became of it."""

from collections import Counter
from typing import Any

import msgspec

from gnomon.app import Office
from gnomon.cli.given import json_given
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import facts, first_line, iso, moment
from gnomon.core.happenings import Entry, EntryKind
from gnomon.services.listening import Emitted


def emit(name: str, body: str | None, key: str | None, where: Where, form: Format) -> None:
    """Say that something happened."""
    given = json_given("--body", body)

    async def work(office: Office) -> Emitted:
        return await office.events.emit(name, given, actor=actor(), key=key)

    done = in_office(where, work)
    if form is not Format.TABLE:
        print_data(_data(done), form)
        return
    say(done.event.event_id)
    _print_entries(done.entries)


def list_events(name: str | None, limit: int, where: Where, form: Format) -> None:
    """List events, the newest first."""
    found = in_office(where, lambda office: office.events.page(name=name, limit=limit))
    if form is not Format.TABLE:
        print_data([_data(one) for one in found], form)
        return
    if not found:
        say("no events")
        return
    rows = [
        [
            one.event.event_id,
            one.event.name,
            moment(one.event.emitted_at),
            one.event.key or "",
            first_line(one.event.body.decode(), 40),
            _counted(one.entries),
        ]
        for one in found
    ]
    print_table(["event", "name", "emitted", "key", "body", "became"], rows)


def show(event_id: str, where: Where, form: Format) -> None:
    """Show an event and what became of it for every job that listens."""
    found = in_office(where, lambda office: office.events.get(event_id))
    if form is not Format.TABLE:
        print_data(_data(found), form)
        return
    event = found.event
    told = [
        ("event", event.event_id),
        ("name", event.name),
        ("emitted", f"{moment(event.emitted_at)} by {event.actor}"),
        ("key", event.key or ""),
        ("body", first_line(event.body.decode(), 200)),
    ]
    say("\n".join(facts(told)))
    say("")
    _print_entries(found.entries)


def _print_entries(entries: tuple[Entry, ...]) -> None:
    if not entries:
        say("no job listens to it")
        return
    rows = [[one.schedule_id, one.kind.value, one.reason.replace("_", " "), one.run_id or ""] for one in entries]
    print_table(["job", "became", "why", "execution"], rows)


def _counted(entries: tuple[Entry, ...]) -> str:
    counts = Counter(entry.kind for entry in entries)
    return ", ".join(f"{counts[kind]} {kind}" for kind in EntryKind if counts[kind])


def _data(emitted: Emitted) -> dict[str, Any]:
    event = emitted.event
    return {
        "event_id": event.event_id,
        "name": event.name,
        "key": event.key,
        "emitted_at": iso(event.emitted_at),
        "actor": event.actor,
        "body": msgspec.json.decode(event.body),
        "entries": [
            {
                "job": entry.schedule_id,
                "became": entry.kind.value,
                "reason": entry.reason,
                "execution_id": entry.run_id,
                "decided_at": iso(entry.decided_at),
            }
            for entry in emitted.entries
        ],
    }
