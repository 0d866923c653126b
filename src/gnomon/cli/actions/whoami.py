"""`gnomon whoami`: the caller, as the server or the database identifies it."""

from gnomon.cli.output import Format, format_fields, format_instant, print_data
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests


def show_caller(target: Target, form: Format) -> None:
    """Print the subject, tenant, roles and groups of the caller, and when its token expires."""
    found = send(target, requests.whoami())
    if form is not Format.TABLE:
        print_data(found, form)
        return
    fields = [
        ("subject", found.subject),
        ("tenant", found.tenant),
        ("roles", ", ".join(found.roles)),
        ("groups", ", ".join(found.groups)),
        ("expires", "" if found.expires_at is None else format_instant(found.expires_at)),
    ]
    for line in format_fields(fields):
        echo(line)
