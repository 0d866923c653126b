"""`gnomon dead-letters`: list, replay and resolve tasks that failed for good."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.executions import accepted_text, attempt_took, became_text
from gnomon.cli.ids import dead_letter_of
from gnomon.cli.output import (
    Format,
    first_line,
    format_fields,
    format_instant,
    print_data,
    print_list,
    print_table,
    progress_spinner,
)
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway, zone_of_job
from gnomon.client import requests
from gnomon.core.explain.phrases import pluralized
from gnomon.core.responses.dead_letters import DeadLetterDetail, DeadLetterGroup, DeadLetterSummary, Replay
from gnomon.errors import UsageError


class LetterOptions(NamedTuple):
    """The filters of dead letters."""

    job: str | None = None
    step: str | None = None
    reason: str | None = None
    error: str | None = None


def list_letters(options: LetterOptions, limit: int, target: Target, form: Format, *, unresolved: bool) -> None:
    """Print dead letters."""

    async def work(gateway: Gateway) -> tuple[list[DeadLetterSummary], str | None]:
        wanted = requests.dead_letters(**options._asdict(), resolved=not unresolved, page=page_size(limit))
        return await list_all(gateway, wanted, limit), await zone_of_job(gateway, options.job)

    found, zone = with_gateway(target, work)
    columns = ["dead letter", "job", "state", "why", "attempts", "last attempt", "last error"]
    print_list(found, form, columns, lambda letter: _row(letter, zone), none="no dead letters")


def _row(letter: DeadLetterSummary, zone: str | None) -> list[str]:
    return [
        letter.dead_letter_id,
        letter.job,
        _state(letter),
        letter.reason.replace("_", " "),
        str(letter.attempts),
        format_instant(letter.last_attempt_at, zone),
        first_line(letter.last_error),
    ]


def show(dead_letter_id: str, target: Target, form: Format) -> None:
    """Print a dead letter and its attempts."""

    async def work(gateway: Gateway) -> tuple[DeadLetterDetail, str | None]:
        found = await gateway.send(requests.dead_letter(await dead_letter_of(gateway, dead_letter_id)))
        return found, await zone_of_job(gateway, found.job) if form is Format.TABLE else None

    letter, zone = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(letter, form)
        return
    echo("\n".join(format_fields(_fields(letter, zone))))
    if not letter.kept:
        return
    echo("")
    rows = [
        [
            str(one.attempt),
            one.worker,
            format_instant(one.started_at, zone),
            attempt_took(one),
            one.result or "",
            first_line(one.error),
        ]
        for one in letter.attempt_history
    ]
    print_table(["attempt", "worker", "started", "took", "ended", "error"], rows)


def list_groups(options: LetterOptions, target: Target, form: Format) -> None:
    """Print the groups of unresolved dead letters."""

    async def work(gateway: Gateway) -> tuple[list[DeadLetterGroup], str | None]:
        parts = await list_all(gateway, requests.dead_letter_groups(**options._asdict()))
        return _whole_groups(parts), await zone_of_job(gateway, options.job)

    found, zone = with_gateway(target, work)
    columns = ["job", "step", "count", "oldest", "newest", "error"]
    print_list(found, form, columns, lambda group: _group_row(group, zone), none="no dead letters")


def _whole_groups(parts: Sequence[DeadLetterGroup]) -> list[DeadLetterGroup]:
    """The groups, of which each page may have had a part."""
    found: dict[tuple[str, str, str], DeadLetterGroup] = {}
    for part in parts:
        key = part.job, part.step, part.error_line
        known = found.get(key)
        if known is not None:
            oldest, newest = min(known.oldest_at, part.oldest_at), max(known.newest_at, part.newest_at)
            part = replace(known, count=known.count + part.count, oldest_at=oldest, newest_at=newest)  # noqa: PLW2901
        found[key] = part
    return list(found.values())


def _group_row(group: DeadLetterGroup, zone: str | None) -> list[str]:
    oldest, newest = format_instant(group.oldest_at, zone), format_instant(group.newest_at, zone)
    return [group.job, group.step, str(group.count), oldest, newest, first_line(group.error_line)]


def selected_letter(dead_letter_id: str | None, options: LetterOptions, *, everything: bool) -> str | None:
    """The ID of the dead letter; None for all that match. UsageError if the arguments contradict each other."""
    if dead_letter_id is None and not everything:
        raise UsageError("name a dead letter, or use --all")
    if dead_letter_id is not None and (everything or any(options)):
        raise UsageError("name a dead letter or use --all, not both; --job and other filters go with --all")
    return dead_letter_id


def replay(dead_letter_id: str, key: str | None, target: Target, form: Format) -> None:
    """Replay one dead letter."""

    async def work(gateway: Gateway) -> None:
        done = await gateway.send(requests.replay(await dead_letter_of(gateway, dead_letter_id), key=key))
        echo(await accepted_text(gateway, done)) if form is Format.TABLE else print_data(done, form)

    with_gateway(target, work)


def replay_all(options: LetterOptions, key: str | None, target: Target, form: Format) -> bool:
    """Replay all unresolved dead letters that match; return whether none was refused."""
    request = requests.replay_all(key=key, **options._asdict())
    with progress_spinner("replaying"):
        done = with_gateway(target, lambda gateway: list_all(gateway, request))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done:
        rows = [[one.dead_letter_id, one.job, _became(one), one.execution_id or ""] for one in done]
        print_table(["dead letter", "job", "became", "execution"], rows)
    else:
        echo("no dead letters to replay")
    return all(one.refused is None for one in done)


def _became(one: Replay) -> str:
    return one.refused or became_text(one.became or "")


def resolve_all(options: LetterOptions, target: Target, form: Format) -> None:
    """Mark all unresolved dead letters that match as resolved."""
    request = requests.resolve_all(**options._asdict())
    with progress_spinner("resolving"):
        done = with_gateway(target, lambda gateway: list_all(gateway, request))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done:
        print_table(["dead letter", "job"], [[one.dead_letter_id, one.job] for one in done])
        echo(f"{pluralized(len(done), 'dead letter')} resolved")
    else:
        echo("no dead letters to resolve")


def resolve(dead_letter_id: str, target: Target, form: Format) -> None:
    """Mark a dead letter as resolved."""

    async def work(gateway: Gateway) -> tuple[bool, DeadLetterDetail]:
        name = await dead_letter_of(gateway, dead_letter_id)
        before = await gateway.send(requests.dead_letter(name))
        return before.resolved, await gateway.send(requests.resolve(name))

    before, done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
    else:
        echo(f"{done.dead_letter_id} was resolved before" if before else f"{done.dead_letter_id} is resolved")


def _state(letter: DeadLetterSummary) -> str:
    if letter.resolved:
        return "resolved"
    return "open" if letter.replayed_by is None else "replayed"


def _fields(letter: DeadLetterDetail, zone: str | None) -> list[tuple[str, str]]:
    given = "" if letter.input is None else msgspec.json.encode(letter.input).decode()
    return [
        ("dead letter", letter.dead_letter_id),
        ("job", f"{letter.job}, step {letter.step}"),
        ("state", _state(letter)),
        ("why", letter.reason.replace("_", " ")),
        ("execution", letter.execution_id if letter.kept else f"{letter.execution_id} (deleted)"),
        ("attempts", "" if letter.kept else str(letter.attempts)),
        ("last error", letter.last_error or ""),
        ("input", first_line(given, 200) or "the job's own"),
        ("created", format_instant(letter.created_at, zone)),
        ("replayed by", letter.replayed_by or ""),
        (
            "resolved",
            f"{format_instant(letter.resolved_at, zone)} by {letter.resolved_by}" if letter.resolved_at else "",
        ),
    ]
