"""What can be typed to take over what other schedulers have. The work is in a module of its own."""

from pathlib import Path
from typing import Annotated

import typer

imports = typer.Typer(name="import", help="Jobs files from what other schedulers have.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Files or folders; - reads standard input.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT", help="Write the jobs file here, and not to the terminal."),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything could not be carried over.")]
Zone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="The zone of the machine it comes from; that of this one if not given."),
]


@imports.command("crontab")
def import_crontab(
    files: Files,
    *,
    output: Out = None,
    system: Annotated[
        bool, typer.Option("--system", help="As in /etc/crontab and /etc/cron.d: the sixth column is a user.")
    ] = False,
    tz: Zone = None,
    force: Force = False,
    strict: Strict = False,
) -> None:
    """Crontabs of users (crontab -l), or of the system."""
    from gnomon.cli.actions.imports import crontabs, write_import

    write_import(crontabs(files, timezone=tz, system=system), output, force=force, strict=strict)


@imports.command("systemd")
def import_systemd(
    files: Files, *, output: Out = None, tz: Zone = None, force: Force = False, strict: Strict = False
) -> None:
    """Timers and their services, as unit files or folders of them."""
    from gnomon.cli.actions.imports import timers, write_import

    write_import(timers(files, timezone=tz), output, force=force, strict=strict)


@imports.command("cronjob")
def import_cronjob(files: Files, *, output: Out = None, force: Force = False, strict: Strict = False) -> None:
    """CronJobs of Kubernetes, as manifests."""
    from gnomon.cli.actions.imports import cronjobs, write_import

    write_import(cronjobs(files), output, force=force, strict=strict)
