"""Options that several commands share, and the completion of job names."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.output import Format, choose_format


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """The names of jobs that start with `incomplete`; none if they cannot be read."""
    from gnomon.cli.target import Target, page_size, with_gateway
    from gnomon.client import requests

    target = Target(context.params.get("database"), context.params.get("config"))
    try:
        found = with_gateway(target, lambda gateway: gateway.send(requests.jobs(page=page_size()))).items
    except Exception:  # noqa: BLE001 - completion must not print errors into the line that is being typed
        return []
    return [one.job for one in found if one.job.startswith(incomplete)]


Output = Annotated[
    Format, typer.Option("-o", "--output", callback=choose_format, is_eager=True, help="Output format, also of errors.")
]
From = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help="Start at this ISO 8601 instant (default: now).")
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="PATH|URL", help="The database: a SQLite file or a URL (default: ./gnomon.db)."),
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="Port of the HTTP API (default: 8062).")]
Bus = Annotated[
    str | None, typer.Option("--nats", metavar="URL", help="NATS server to receive tasks from, instead of a database.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65_535, help="Port for metrics and health probes (default: off)."),
]
Quiet = Annotated[
    bool, typer.Option("--log-json", "--quiet", help="Write every event as a line of JSON instead of readable lines.")
]
WatchedJobs = Annotated[
    list[Path] | None,
    typer.Option("--jobs", metavar="FILE", help="Jobs file to apply now and on every change; repeatable."),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Python module that registers functions; repeatable."),
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Tasks to run at the same time (default: 500).")]
JobsFiles = Annotated[
    list[Path],
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        help="Jobs file, folder, or - for standard input; repeatable, the files count as one.",
    ),
]
PruneTag = Annotated[
    str | None,
    typer.Option("--prune-tag", metavar="TAG", help="Like --prune, but only for jobs with this tag."),
]
OfJob = Annotated[
    str | None, typer.Option("--job", metavar="NAME", help="Only entries of this job.", autocompletion=job_names)
]
OfTag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only entries from this time on: an instant, a day, yesterday, mon 02:00, or 90m for 90 minutes ago.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only entries before this time, or up to the end of this day."),
]
MaxEntries = Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of entries.")]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Idempotency key: a repeated request with the same key starts no run."),
]
