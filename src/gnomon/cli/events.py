"""`gnomon events`: what happened outside, and what became of it."""

from collections import Counter

from gnomon.cli.given import json_given
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import facts, first_line, moment
from gnomon.core.happenings import Entry, EntryKind
from gnomon.office import Office
from gnomon.services.answering import event_detail
from gnomon.services.listening import Emitted


def emit(name: str, body: str | None, key: str | None, where: Where, form: Format) -> None:
    """Say that something happened."""
    given = json_given("--body", body)

    async def work(office: Office) -> Emitted:
        return await office.events.emit(name, given, actor=actor(), key=key)

    done = in_office(where, work)
    if form is not Format.TABLE:
        print_data(event_detail(done), form)
        return
    say(done.event.event_id)
    _print_entries(done.entries)


def list_events(name: str | None, limit: int, where: Where, form: Format) -> None:
    """List events, the newest first."""
    found = in_office(where, lambda office: office.events.page(name=name, limit=limit))
    if form is not Format.TABLE:
        print_data([event_detail(one) for one in found], form)
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
        print_data(event_detail(found), form)
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
