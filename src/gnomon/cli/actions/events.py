"""`gnomon events`: emit events, and show the runs that they started."""

from collections import Counter

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.inputs import json_option
from gnomon.cli.output import Format, first_line, format_fields, format_instant, print_data, print_list, print_table
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.responses.events import EventDetail, EventEntry
from gnomon.core.runs.external_events import EventEffectKind


def emit(name: str, body: str | None, key: str | None, target: Target, form: Format) -> None:
    """Emit an event and print its effects."""
    done = send(target, requests.emit(name, json_option("--body", body), key=key))
    if form is not Format.TABLE:
        print_data(done, form)
        return
    echo(done.event_id)
    _print_entries(done.entries)


def list_events(name: str | None, limit: int, target: Target, form: Format) -> None:
    """Print events, newest first."""

    async def work(gateway: Gateway) -> list[EventDetail]:
        return await list_all(gateway, requests.events(name=name, page=page_size(limit)), limit)

    found = with_gateway(target, work)
    print_list(found, form, ["event", "name", "emitted", "key", "body", "became"], _row, none="no events")


def _row(one: EventDetail) -> list[str]:
    return [
        one.event_id,
        one.name,
        format_instant(one.emitted_at),
        one.key or "",
        _body(one, 40),
        _counted(one.entries),
    ]


def show(event_id: str, target: Target, form: Format) -> None:
    """Print an event and its effect on every job that listens to it."""
    found = send(target, requests.event(event_id))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    fields = [
        ("event", found.event_id),
        ("name", found.name),
        ("emitted", f"{format_instant(found.emitted_at)} by {found.actor}"),
        ("key", found.key or ""),
        ("body", _body(found, 200)),
    ]
    echo("\n".join(format_fields(fields)))
    echo("")
    _print_entries(found.entries)


def _body(event: EventDetail, width: int) -> str:
    return first_line(msgspec.json.encode(event.body).decode(), width)


def _print_entries(entries: list[EventEntry]) -> None:
    if not entries:
        echo("no job listens to it")
        return
    rows = [[one.job, one.became, one.reason.replace("_", " "), one.execution_id or ""] for one in entries]
    print_table(["job", "became", "why", "execution"], rows)


def _counted(entries: list[EventEntry]) -> str:
    counts = Counter(entry.became for entry in entries)
    return ", ".join(f"{counts[kind]} {kind}" for kind in EventEffectKind if counts[kind])
