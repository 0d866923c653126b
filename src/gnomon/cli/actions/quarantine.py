"""`gnomon quarantine`: outputs that are held back."""

import json

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, first_line, format_fields, format_instant, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.responses.quarantine import HeldOutputDetail, HeldOutputSummary

_EVERY_STATUS = "all"


def list_outputs(status: str, limit: int, target: Target, form: Format) -> None:
    """Print outputs that are held back."""
    wanted = None if status == _EVERY_STATUS else status

    async def work(gateway: Gateway) -> list[HeldOutputSummary]:
        return await list_all(gateway, requests.held_outputs(status=wanted, page=page_size(limit)), limit)

    found = with_gateway(target, work)
    columns = ["task", "job", "step", "rule", "status", "bytes", "since", "reason"]
    print_list(found, form, columns, _row, "no output is held back" if status == "held" else "no outputs")


def _row(one: HeldOutputSummary) -> list[str]:
    return [
        one.task_id,
        one.job,
        one.step,
        one.rule,
        one.status,
        str(one.size),
        format_instant(one.held_at),
        first_line(one.reason),
    ]


def show(task: str, target: Target, form: Format) -> None:
    """Print an output that is held back."""
    found = send(target, requests.held_output(task))
    if form is Format.TABLE:
        echo("\n".join(format_fields(_fields(found))))
    else:
        print_data(found, form)


def _fields(one: HeldOutputDetail) -> list[tuple[str, str]]:
    decided = "" if one.decided_at is None else f"{format_instant(one.decided_at)} by {one.decided_by}"
    fields = [
        ("task", one.task_id),
        ("status", one.status),
        ("job", one.job),
        ("execution", one.execution_id),
        ("step", one.step),
        ("rule", f"{one.rule} of policy {one.version}" if one.version else one.rule),
        ("reason", one.reason),
        ("found", "; ".join(f"{at.scanner}: {at.pattern} at byte {at.offset}" for at in one.findings)),
        ("held", format_instant(one.held_at) + (", after it was stored" if one.phase == "late" else "")),
        ("read by", ", ".join(one.readers)),
        ("decided", decided),
        ("why", one.decided_why),
        ("digest", one.content_digest),
        ("content", "" if one.status != "held" else json.dumps(one.content, sort_keys=True)),
    ]
    return [(name, printable(value)) for name, value in fields if value]


def release(task: str, reason: str, target: Target, form: Format) -> None:
    """Release an output."""
    after = send(target, requests.release_held_output(task, reason=reason))
    if form is not Format.TABLE:
        print_data(after, form)
        return
    goes = "goes on" if after.continued else "stays as it ended"
    echo(printable(f"the output of {after.task_id} is released; execution {after.execution_id} {goes}"))


def discard(task: str, reason: str | None, target: Target, form: Format) -> None:
    """Delete an output."""
    after = send(target, requests.discard_held_output(task, reason=reason))
    if form is not Format.TABLE:
        print_data(after, form)
        return
    echo(printable(f"the output of {after.task_id} is discarded"))
