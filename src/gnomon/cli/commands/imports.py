"""`gnomon import`: jobs files from the configuration of other schedulers."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup

imports = typer.Typer(
    cls=CommandGroup,
    name="import",
    help="Convert the configuration of other schedulers to jobs files.",
    no_args_is_help=True,
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="File or folder; - reads standard input.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT", help="Write the jobs file here (default: standard output)."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything could not be converted.")]
SourceZone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="IANA time zone of the source (default: the local zone)."),
]


@imports.command("crontab")
def import_crontab(
    files: Files,
    *,
    output: Out = None,
    system: Annotated[
        bool, typer.Option("--system", help="Read the sixth column as a user, as in /etc/crontab and /etc/cron.d.")
    ] = False,
    tz: SourceZone = None,
    force: Force = False,
    strict: Strict = False,
) -> None:
    """Convert crontabs of users (crontab -l) or of the system."""
    from gnomon.cli.actions.imports import crontabs, write_import

    write_import(crontabs(files, timezone=tz, system=system), output, force=force, strict=strict)


@imports.command("systemd")
def import_systemd(
    files: Files, *, output: Out = None, tz: SourceZone = None, force: Force = False, strict: Strict = False
) -> None:
    """Convert systemd timers and their services, from unit files or folders."""
    from gnomon.cli.actions.imports import timers, write_import

    write_import(timers(files, timezone=tz), output, force=force, strict=strict)


@imports.command("cronjob")
def import_cronjob(files: Files, *, output: Out = None, force: Force = False, strict: Strict = False) -> None:
    """Convert Kubernetes CronJob manifests."""
    from gnomon.cli.actions.imports import cronjobs, write_import

    write_import(cronjobs(files), output, force=force, strict=strict)
