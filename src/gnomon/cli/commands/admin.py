"""`gnomon token`, `audit`, `config` and `profiles`: access, audit trail, settings and remote servers."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output, Since, Until
from gnomon.cli.output import Format

token = typer.Typer(
    cls=CommandGroup, name="token", help="Create, inspect, list and revoke API tokens.", no_args_is_help=True
)
audit = typer.Typer(cls=CommandGroup, name="audit", help="List and verify the audit trail.", no_args_is_help=True)
config = typer.Typer(
    cls=CommandGroup, name="config", help="Show the effective settings, and where each was set.", no_args_is_help=True
)
profiles = typer.Typer(
    cls=CommandGroup, name="profiles", help="Name remote servers for --profile.", no_args_is_help=True
)

RoleName = Literal["viewer", "operator", "admin"]


@token.command("create")
def create_token(
    *,
    role: Annotated[RoleName, typer.Option(help="Role that the token grants.")],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Subject of the token (default: the current user).")
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Tenant that the token is valid for.")
    ] = "default",
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Group of people (may be repeated).")
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="SPAN", help="Lifetime, such as 12h or 30d.")] = "30d",
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print a new token, signed with the key beside the database. Keep it secret: it is a credential."""
    from gnomon.cli.actions.tokens import TokenOptions, create
    from gnomon.cli.target import Target

    create(TokenOptions(role, subject, tenant, expires, tuple(group or ())), Target(database, config), output)


@token.command("inspect")
def inspect_token(
    shown: Annotated[str | None, typer.Argument(metavar="TOKEN", help="Token; - reads it from standard input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="File that contains the token.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the claims of a token and check it; exit with 1 if the server would refuse it."""
    from gnomon.cli.actions.tokens import inspect
    from gnomon.cli.target import Target

    if not inspect(shown, file, Target(database, config), output):
        raise typer.Exit(1)


@token.command("list")
def list_tokens(
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Tenant (local database only).")
    ] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of tokens.")] = 50,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the tokens that were issued or revoked and have not expired, newest first."""
    from gnomon.cli.actions.tokens import list_tokens as run
    from gnomon.cli.target import Target

    run(limit, tenant, Target(database, config), output)


@token.command("revoke")
def revoke_token(
    token_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of the token: its claim jti, or as token inspect shows it.")
    ] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="File that contains the token.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Revoke every token that was issued until now.")] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only in this tenant (local database only).")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Revoke a token, or all of them. Every server refuses them within two seconds."""
    from gnomon.cli.actions.tokens import RevokeOptions, revoke
    from gnomon.cli.target import Target

    if [token_id is not None, file is not None, everything].count(True) != 1:
        raise typer.BadParameter("name a token by its id or with --file, or use --all: one of them")
    revoke(RevokeOptions(token_id, file, everything, tenant), Target(database, config), output)


@audit.command("list")
def list_audit(
    *,
    actor: Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only entries by this actor.")] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="WORD", help="Only this action, such as update or pause.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="WORD", help="Only changes to this kind of object, such as job or execution."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Only changes to the object with this name.")
    ] = None,
    since: Since = None,
    until: Until = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Tenant (local database only).")
    ] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of entries.")] = 50,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List audit entries, newest first."""
    from gnomon.cli.actions.audit import list_entries
    from gnomon.cli.target import Target

    filters = {"actor": actor, "action": action, "kind": kind, "name": name, "since": since, "until": until}
    list_entries(filters, limit, tenant, Target(database, config), output)


@audit.command("verify")
def verify_audit(
    *,
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="HASH", help="Fail unless the chain still contains this hash.")
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option("--head", metavar="FILE", help="Check against the hash in this file, then store the new one."),
    ] = None,
    accept_chain: Annotated[
        bool,
        typer.Option("--accept", help="First sign the chain as it is: after restoring a backup or replacing the key."),
    ] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Verify the hash chain of the audit trail; exit with 1 if an entry was changed, removed, added or moved."""
    from gnomon.cli.actions.audit import accept, verify
    from gnomon.cli.target import Target

    if expect is not None and head is not None:
        raise typer.BadParameter("--expect and --head both name a hash: use one of them")
    if accept_chain:
        accept(Target(database, config))
    if not verify(expect, head, Target(database, config), output):
        raise typer.Exit(1)


@config.command("show")
def show_config(
    section: Annotated[str | None, typer.Argument(metavar="SECTION", help="Only this section, such as auth.")] = None,
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print every setting with its value and origin: default, file, environment or flag."""
    from gnomon.cli.actions.config import show
    from gnomon.cli.target import Target

    show(section, Target(database, config), output)


@profiles.command("list")
def list_profiles(*, output: Output = Format.TABLE) -> None:
    """List profiles."""
    from gnomon.cli.actions.profiles import list_profiles as run

    run(output)


@profiles.command("add")
def add_profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")],
    *,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="URL of the server.")],
    token_file: Annotated[str, typer.Option("--token-file", metavar="FILE", help="File that contains the token.")] = "",
    token_env: Annotated[
        str, typer.Option("--token-env", metavar="NAME", help="Environment variable that contains the token.")
    ] = "",
    ca_file: Annotated[str, typer.Option("--ca-file", metavar="FILE", help="CA certificates to trust, in PEM.")] = "",
    cert_file: Annotated[str, typer.Option("--cert-file", metavar="FILE", help="Client certificate, in PEM.")] = "",
    key_file: Annotated[
        str, typer.Option("--key-file", metavar="FILE", help="Private key of the client certificate, in PEM.")
    ] = "",
) -> None:
    """Create or replace a profile. The profile stores where the token is, not the token."""
    from gnomon.app.remote_server import Profile
    from gnomon.cli.actions.profiles import add

    files = {"token_file": token_file, "token_env": token_env, "ca_file": ca_file}
    add(name, Profile(server=server, cert_file=cert_file, key_file=key_file, **files))


@profiles.command("remove")
def remove_profile(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a profile.")]) -> None:
    """Delete a profile."""
    from gnomon.cli.actions.profiles import remove

    remove(name)
