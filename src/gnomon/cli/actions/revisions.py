"""`gnomon jobs revisions`: the definitions that a job had, and what changed."""

from gnomon.cli.output import Format, format_instant, print_list
from gnomon.cli.target import Target, send
from gnomon.client import requests
from gnomon.core.jobs.origins import origin_text
from gnomon.core.responses.revisions import JobRevision


def list_revisions(name: str, count: int, target: Target, form: Format) -> None:
    """Print the newest revisions of a job."""
    found = send(target, requests.revisions(name, page=count)).items
    print_list(found, form, ["revision", "since", "by", "origin", "changed"], _row, "it has no revisions")


def _row(one: JobRevision) -> list[str]:
    changed = "" if one.changes is None else ", ".join(change.field for change in one.changes)
    first = one.changes is None and one.revision == 1
    return [
        str(one.revision),
        format_instant(one.from_at),
        one.actor,
        origin_text(one.origin),
        "new" if first else changed,
    ]
