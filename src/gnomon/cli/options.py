"""What a shell offers while a command is being typed."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.output import Format


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The jobs that begin like this; none if they cannot be had at once."""
    from gnomon.cli.target import Target, page_size, with_gateway
    from gnomon.client import requests

    target = Target(context.params.get("database"), context.params.get("config"))
    try:
        found = with_gateway(target, lambda gateway: gateway.send(requests.jobs(page=page_size()))).items
    except Exception:  # noqa: BLE001 - whoever is typing a word is not to be told what is wrong elsewhere
        return []
    return [one.job for one in found if one.job.startswith(incomplete)]


Output = Annotated[Format, typer.Option("-o", "--output", help="How to print.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help="Look from this ISO instant instead of now.")
]
Database = Annotated[
    str | None, typer.Option("--database", metavar="PATH|URL", help="Where everything is kept; ./gnomon.db.")
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A configuration file.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="Where the API listens; 8062.")]
Bus = Annotated[str | None, typer.Option("--nats", metavar="URL", help="Get tasks over NATS, and need no database.")]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=0, max=65_535, help="Show metrics and probes here; nowhere.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Log as JSON instead of lines for a person.")]
WatchedJobs = Annotated[
    list[Path] | None, typer.Option("--jobs", metavar="FILE", help="A jobs file, watched; may be repeated.")
]
Imports = Annotated[
    list[str] | None, typer.Option("--import", metavar="MODULE", help="Functions to register; may be repeated.")
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="How many tasks run at once.")]
JobsFile = Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="A jobs file.")]
JobsFiles = Annotated[
    list[Path], typer.Option("-f", "--file", metavar="FILE", help="A jobs file; may be repeated: they count as one.")
]
PruneTag = Annotated[
    str | None, typer.Option("--prune-tag", metavar="TAG", help="The same, but only of jobs that have this tag.")
]
OfJob = Annotated[
    str | None, typer.Option("--job", metavar="NAME", help="Only those of this job.", autocompletion=job_names)
]
OfTag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only those of jobs with this tag.")]
Since = Annotated[str | None, typer.Option("--since", metavar="INSTANT", help="From this ISO instant on.")]
Until = Annotated[str | None, typer.Option("--until", metavar="INSTANT", help="Before this ISO instant.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Asking again with the same key starts no second run.")
]
