"""What a shell offers while a command is being typed."""

import typer


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The jobs that begin like this; none if they cannot be had at once."""
    from gnomon.cli.offices import Where, at_door, page_of
    from gnomon.client import requests

    where = Where(context.params.get("database"), context.params.get("config"))
    try:
        found = at_door(where, lambda door: door.ask(requests.jobs(page=page_of()))).items
    except Exception:  # noqa: BLE001 - whoever is typing a word is not to be told what is wrong elsewhere
        return []
    return [one.job for one in found if one.job.startswith(incomplete)]
