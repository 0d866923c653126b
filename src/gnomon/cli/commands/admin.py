"""What operators type about tokens, the audit trail and settings. The work is in modules of their own."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnomon.cli.options import Config, Database, Output, Since, Until
from gnomon.cli.output import Format

token = typer.Typer(name="token", help="Who may come in through the API.", no_args_is_help=True)
audit = typer.Typer(name="audit", help="Who changed what.", no_args_is_help=True)
config = typer.Typer(name="config", help="Every constant that can be changed.", no_args_is_help=True)
profiles = typer.Typer(name="profiles", help="Servers elsewhere, under names of your own.", no_args_is_help=True)

RoleName = Literal["viewer", "operator", "admin"]


@token.command("create")
def create_token(
    *,
    role: Annotated[RoleName, typer.Option(help="What its bearer may do.")],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Who its bearer is; you if not given.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose jobs it is about.")] = "default",
    expires: Annotated[str, typer.Option("--expires", metavar="SPAN", help="How long it counts.")] = "30d",
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print a new token, signed with the key beside the database. Whoever has it is let in."""
    from gnomon.cli.actions.tokens import TokenOptions, create
    from gnomon.cli.target import Target

    create(TokenOptions(role, subject, tenant, expires), Target(database, config), output)


@token.command("inspect")
def inspect_token(
    shown: Annotated[str | None, typer.Argument(metavar="TOKEN", help="A token; - reads it from the input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="A file that holds it.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a token says, without its signature, and whether it would be refused."""
    from gnomon.cli.actions.tokens import inspect
    from gnomon.cli.target import Target

    if not inspect(shown, file, Target(database, config), output):
        raise typer.Exit(1)


@audit.command("list")
def list_audit(
    *,
    actor: Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what they did.")] = None,
    action: Annotated[str | None, typer.Option("--action", metavar="WORD", help="Such as update or pause.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="WORD", help="Such as job or execution.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of what was changed.")] = None,
    since: Since = None,
    until: Until = None,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Whose, of the store.")] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many to show at most.")] = 50,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List what was changed and by whom, the newest first."""
    from gnomon.cli.actions.audit import list_entries
    from gnomon.cli.target import Target

    asked = {"actor": actor, "action": action, "kind": kind, "name": name, "since": since, "until": until}
    list_entries(asked, limit, tenant, Target(database, config), output)


@audit.command("verify")
def verify_audit(
    *,
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="HASH", help="A head that was printed before must be there.")
    ] = None,
    head: Annotated[
        Path | None, typer.Option("--head", metavar="FILE", help="Keep the head here from one time to the next.")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Prove that nobody has changed, removed, added or moved an entry; exits with 1 if somebody has."""
    from gnomon.cli.actions.audit import verify
    from gnomon.cli.target import Target

    if expect is not None and head is not None:
        raise typer.BadParameter("--expect and --head say the same thing: give one of them")
    if not verify(expect, head, Target(database, config), output):
        raise typer.Exit(1)


@config.command("show")
def show_config(
    section: Annotated[str | None, typer.Argument(metavar="SECTION", help="Only this one, such as auth.")] = None,
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print every setting, its value, and where that was said: by default, in the file, the environment or a flag."""
    from gnomon.cli.actions.config import show
    from gnomon.cli.target import Target

    show(section, Target(database, config), output)


@profiles.command("list")
def list_profiles(*, output: Output = Format.TABLE) -> None:
    """List the servers that have a name here."""
    from gnomon.cli.actions.profiles import list_profiles as run

    run(output)


@profiles.command("add")
def add_profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it.")],
    *,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="Where it is.")],
    token_file: Annotated[str, typer.Option("--token-file", metavar="FILE", help="A file that holds the token.")] = "",
    token_env: Annotated[str, typer.Option("--token-env", metavar="NAME", help="A variable that holds it.")] = "",
    ca_file: Annotated[str, typer.Option("--ca-file", metavar="FILE", help="Whose certificates to believe.")] = "",
    cert_file: Annotated[str, typer.Option("--cert-file", metavar="FILE", help="A certificate of your own.")] = "",
    key_file: Annotated[str, typer.Option("--key-file", metavar="FILE", help="Its key.")] = "",
) -> None:
    """Give a server a name, or make a name mean another server. Tokens themselves are not kept."""
    from gnomon.cli.actions.profiles import add
    from gnomon.cli.remote import Profile

    said = {"token_file": token_file, "token_env": token_env, "ca_file": ca_file}
    add(name, Profile(server=server, cert_file=cert_file, key_file=key_file, **said))


@profiles.command("remove")
def remove_profile(name: Annotated[str, typer.Argument(metavar="NAME", help="A profile.")]) -> None:
    """Forget a name."""
    from gnomon.cli.actions.profiles import remove

    remove(name)
