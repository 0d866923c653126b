"""`gnomon dead-letters`: what has failed for good."""

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.executions import attempt_took
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
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.responses import DeadLetterDetail, DeadLetterSummary
from gnomon.errors import UsageError


def list_letters(job: str | None, limit: int, target: Target, form: Format, *, unresolved: bool) -> None:
    """List dead letters."""

    async def work(gateway: Gateway) -> list[DeadLetterSummary]:
        return await list_all(
            gateway, requests.dead_letters(job=job, resolved=not unresolved, page=page_size(limit)), limit
        )

    found = with_gateway(target, work)
    columns = ["dead letter", "job", "state", "why", "attempts", "last attempt", "last error"]
    print_list(found, form, columns, _row, none="no dead letters")


def _row(letter: DeadLetterSummary) -> list[str]:
    return [
        letter.dead_letter_id,
        letter.job,
        _state(letter),
        letter.reason.replace("_", " "),
        str(letter.attempts),
        format_instant(letter.last_attempt_at),
        first_line(letter.last_error),
    ]


def show(dead_letter_id: str, target: Target, form: Format) -> None:
    """Show a dead letter with every attempt."""
    letter = send(target, requests.dead_letter(dead_letter_id))
    if form is not Format.TABLE:
        print_data(letter, form)
        return
    echo("\n".join(format_fields(_fields(letter))))
    if not letter.kept:
        return
    echo("")
    rows = [
        [
            str(one.attempt),
            one.worker,
            format_instant(one.started_at),
            attempt_took(one),
            one.result or "",
            first_line(one.error),
        ]
        for one in letter.attempt_history
    ]
    print_table(["attempt", "worker", "started", "took", "ended", "error"], rows)


def selected_letter(dead_letter_id: str | None, job: str | None, key: str | None, *, everything: bool) -> str | None:
    """The one that is to be replayed; None for all of them."""
    if dead_letter_id is None and not everything:
        raise UsageError("name a dead letter, or say --all")
    if dead_letter_id is not None and (everything or job is not None):
        raise UsageError("name a dead letter, or say --all, not both; --job goes with --all")
    if everything and key is not None:
        raise UsageError("--key is for the replay of one dead letter")
    return dead_letter_id


def replay(dead_letter_id: str, key: str | None, target: Target, form: Format) -> None:
    """Run what has failed again."""
    done = send(target, requests.replay(dead_letter_id, key=key))
    if form is Format.TABLE:
        echo(f"{done.execution_id} {done.became}")
    else:
        print_data(done, form)


def replay_all(job: str | None, target: Target, form: Format) -> bool:
    """Run everything again that nobody has dealt with; whether all of it could be."""
    with progress_spinner("replaying"):
        done = with_gateway(target, lambda gateway: list_all(gateway, requests.replay_all(job=job)))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done:
        rows = [[one.dead_letter_id, one.job, one.refused or one.became or "", one.execution_id or ""] for one in done]
        print_table(["dead letter", "job", "became", "execution"], rows)
    else:
        echo("there are none to replay")
    return all(one.refused is None for one in done)


def resolve(dead_letter_id: str, target: Target, form: Format) -> None:
    """Put a dead letter away."""

    async def work(gateway: Gateway) -> tuple[bool, DeadLetterDetail]:
        before = await gateway.send(requests.dead_letter(dead_letter_id))
        return before.resolved, await gateway.send(requests.resolve(dead_letter_id))

    before, done = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(done, form)
    else:
        echo(f"{dead_letter_id} was resolved before" if before else f"{dead_letter_id} is resolved")


def _state(letter: DeadLetterSummary) -> str:
    if letter.resolved:
        return "resolved"
    return "open" if letter.replayed_by is None else "replayed"


def _fields(letter: DeadLetterDetail) -> list[tuple[str, str]]:
    given = "" if letter.input is None else msgspec.json.encode(letter.input).decode()
    return [
        ("dead letter", letter.dead_letter_id),
        ("job", f"{letter.job}, step {letter.step}"),
        ("state", _state(letter)),
        ("why", letter.reason.replace("_", " ")),
        ("execution", letter.execution_id if letter.kept else f"{letter.execution_id}, which is no longer kept"),
        ("attempts", "" if letter.kept else str(letter.attempts)),
        ("last error", letter.last_error or ""),
        ("input", first_line(given, 200) or "the job's own"),
        ("created", format_instant(letter.created_at)),
        ("replayed by", letter.replayed_by or ""),
        ("resolved", f"{format_instant(letter.resolved_at)} by {letter.resolved_by}" if letter.resolved_at else ""),
    ]
