"""`gnomon approvals`: what waits for the consent of people, and their votes."""

import json
from collections.abc import Callable
from typing import NamedTuple

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, first_line, format_fields, format_instant, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.client.transport import ApiRequest
from gnomon.core.responses.approvals import ApprovalDetail, ApprovalSummary, ApprovalVote
from gnomon.errors import ApprovalChanged, UsageError

_EVERY_STATUS = "all"
_SHORTEST_DIGEST = 8
_APPROVED, _OF_COMMANDS = "approved", "command"


class ListOptions(NamedTuple):
    """The arguments of `gnomon approvals list`."""

    status: str
    kind: str | None
    job: str | None
    limit: int


def list_approvals(options: ListOptions, target: Target, form: Format) -> None:
    """Print approvals."""
    status = None if options.status == _EVERY_STATUS else options.status

    async def work(gateway: Gateway) -> list[ApprovalSummary]:
        wanted = requests.approvals(status=status, kind=options.kind, job=options.job, page=page_size(options.limit))
        return await list_all(gateway, wanted, options.limit)

    found = with_gateway(target, work)
    columns = ["approval", "job", "step", "rule", "status", "votes", "asked", "expires", "reason"]
    none = "nothing waits for an approval" if status == "waiting" else "no approvals"
    print_list(found, form, columns, _row, none)


def _row(one: ApprovalSummary) -> list[str]:
    return [
        one.approval_id,
        one.job,
        _step(one),
        one.rule or one.kind,
        one.status,
        _votes(one),
        format_instant(one.asked_at),
        format_instant(one.expires_at),
        first_line(one.reason),
    ]


def _step(one: ApprovalSummary) -> str:
    if one.item is not None:
        return f"{one.step}[{one.item}]"
    return f"{one.step} ({one.items} items)" if one.items else one.step or ""


def _votes(one: ApprovalSummary) -> str:
    approving = sum(vote.vote == "approve" for vote in one.votes)
    return f"{approving} of {one.needs.quorum}"


def show(approval: str, target: Target, form: Format) -> None:
    """Print an approval."""
    found = send(target, requests.approval(approval))
    if form is Format.TABLE:
        echo("\n".join(format_fields(_fields(found))))
    else:
        print_data(found, form)


def _fields(one: ApprovalDetail) -> list[tuple[str, str]]:
    limits = "" if one.constraints is None else ", ".join(f"{name} {value}" for name, value in one.constraints.items())
    fields = [
        ("approval", one.approval_id),
        ("status", f"{one.status}, overridden" if one.overridden else one.status),
        ("job", one.job),
        ("execution", one.execution_id or ""),
        ("step", _step(one)),
        ("input", "" if one.input is None else json.dumps(one.input, sort_keys=True)),
        ("commands", "; ".join(f"{step}: {command}" for step, command in (one.commands or {}).items())),
        ("constraints", limits),
        ("rule", "" if one.rule is None else f"{one.rule} of policy {one.version}"),
        ("reason", one.reason),
        ("needs", one.needs.text),
        ("votes", "; ".join(map(_vote_text, one.votes))),
        ("asked", format_instant(one.asked_at)),
        ("expires", format_instant(one.expires_at)),
        ("decided", "" if one.decided_at is None else f"{format_instant(one.decided_at)} by {one.decided_by}"),
        ("note", one.note or ""),
        ("digest", one.digest),
    ]
    return [(name, printable(value)) for name, value in fields if value]


def _vote_text(vote: ApprovalVote) -> str:
    return f"{vote.vote} by {vote.voter}" + (f" ({vote.reason})" if vote.reason else "")


def approve(approval: str, digest: str, reason: str | None, target: Target, form: Format) -> None:
    """Vote for a task."""
    _vote(approval, digest, lambda name, seen: requests.approve(name, digest=seen, reason=reason), target, form)


def reject(approval: str, digest: str, reason: str | None, target: Target, form: Format) -> None:
    """Vote against a task."""
    _vote(approval, digest, lambda name, seen: requests.reject(name, digest=seen, reason=reason), target, form)


def override(approval: str, digest: str, reason: str, target: Target, form: Format) -> None:
    """Let a task run without its approval."""
    _vote(
        approval, digest, lambda name, seen: requests.override_approval(name, digest=seen, reason=reason), target, form
    )


def ask(job: str, reason: str | None, target: Target, form: Format) -> None:
    """Ask for an approval of the commands of a job."""
    found = send(target, requests.ask_for_approval(job, reason=reason))
    if form is not Format.TABLE:
        print_data(found, form)
    elif found.status == _APPROVED:
        echo(printable(f"{found.job} may run its commands as they are now: approval {found.approval_id}"))
    else:
        how = f"gnomon approvals approve {found.approval_id} --digest {found.digest[:_SHORTEST_DIGEST]}"
        echo(printable(f"{found.job} waits for {found.needs.text}: {how}"))


def revoke(approval: str, target: Target, form: Format) -> None:
    """Revoke an approval of commands."""
    after = send(target, requests.revoke_approval(approval))
    if form is not Format.TABLE:
        print_data(after, form)
    else:
        echo(printable(f"{after.job} may not run its commands any more"))


def _vote(
    approval: str,
    digest: str,
    request: Callable[[str, str], ApiRequest[ApprovalDetail]],
    target: Target,
    form: Format,
) -> None:
    if len(digest) < _SHORTEST_DIGEST:
        raise UsageError(f"--digest: give at least the first {_SHORTEST_DIGEST} digits")

    async def work(gateway: Gateway) -> ApprovalDetail:
        found = await gateway.send(requests.approval(approval))
        if not found.digest.startswith(digest.lower()):
            raise ApprovalChanged(found.approval_id)
        return await gateway.send(request(found.approval_id, found.digest))

    after = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(after, form)
        return
    echo(printable(_outcome(after)))


def _outcome(after: ApprovalDetail) -> str:
    last = after.votes[-1]
    if after.overridden:
        return f"{after.job} goes on: overridden by {last.voter}"
    if after.status == "waiting":
        return f"{after.approval_id} has {_votes(after)} votes"
    of_commands = after.kind == _OF_COMMANDS
    if after.status == "rejected":
        ended = "its commands do not run" if of_commands else "its task has ended"
        return f"{after.job} is rejected by {last.voter}: {ended}"
    if of_commands:
        return f"{after.job} may run its commands as they are now, until they change: approved by {last.voter}"
    return f"{after.job} goes on: approved by {' and '.join(one.voter for one in after.votes)}"
