"""`gnomon policy`: which tasks may run, who approves them, and within which limits."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output, job_names
from gnomon.cli.output import Format
from gnomon.errors import UsageError

policy = typer.Typer(
    cls=CommandGroup, name="policy", help="Check, compare and apply the policy of tasks.", no_args_is_help=True
)
PolicyFile = Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="Policy file.")]
ExpectedVersion = Annotated[
    int | None,
    typer.Option("--expected", min=0, metavar="VERSION", help="Only if this version is in force; 0 for none."),
]


@policy.command("check")
def check_policy(
    *,
    file: PolicyFile,
    output: Output = Format.TABLE,
) -> None:
    """Check a policy file without a database; exit with 2 at the first mistake."""
    from gnomon.cli.actions.policy import check

    check(file, output)


@policy.command("test")
def judge_policy_cases(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="File with test cases.")],
    *,
    file: PolicyFile,
    output: Output = Format.TABLE,
) -> None:
    """Judge test cases by a policy file, without a database; exit with 1 if a ruling is not the expected one."""
    from gnomon.cli.actions.policy import run_cases

    if not run_cases(file, cases, output):
        raise typer.Exit(1)


@policy.command("diff")
def diff_policy(
    *,
    file: PolicyFile,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a policy file would change, rule by rule."""
    from gnomon.cli.actions.policy import diff
    from gnomon.cli.target import Target

    diff(file, Target(database, config), output)


@policy.command("replay")
def replay_policy(
    *,
    file: PolicyFile,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only tasks created from this time on: an instant, a day, yesterday, or 30d for 30 days ago.",
        ),
    ] = "30d",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="WORDS",
            help="Exit with 3 if there are tasks of these kinds, separated by commas: changed, denied, not_known.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="N", help="Maximum number of changes shown.")] = 50,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Judge every task of the history by a policy file: show what it would change, without changing anything."""
    from gnomon.cli.actions.policy_replay import EXIT_FOUND, parse_fail_on, replay
    from gnomon.cli.target import Target

    fatal = parse_fail_on(fail_on or [])
    if replay(file, since, Target(database, config), output, limit=limit) & fatal:
        raise typer.Exit(EXIT_FOUND)


@policy.command("explain")
def explain_policy(
    name: Annotated[str, typer.Argument(metavar="JOB", help="Job.", autocompletion=job_names)],
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Policy file instead of the policy in force.")
    ] = None,
    given: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Input of the run, instead of that of the job.")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what the policy would decide about the steps of a job, if it started now."""
    from gnomon.cli.actions.policy import explain
    from gnomon.cli.target import Target

    explain(name, file, given, Target(database, config), output)


@policy.command("apply")
def apply_policy(
    *,
    file: PolicyFile,
    expected: ExpectedVersion = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Put a policy file in force as the next version."""
    from gnomon.cli.actions.policy import apply
    from gnomon.cli.target import Target

    apply(file, expected, Target(database, config), output)


@policy.command("list")
def list_policy(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of versions.")] = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the versions of the policy, newest first."""
    from gnomon.cli.actions.policy import list_versions
    from gnomon.cli.target import Target

    list_versions(limit, Target(database, config), output)


@policy.command("budgets")
def list_budgets(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of budgets.")] = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show how much is left of the budgets of the policy, the used ones first."""
    from gnomon.cli.actions.policy import list_budgets as work
    from gnomon.cli.target import Target

    work(limit, Target(database, config), output)


@policy.command("show")
def show_policy(
    version: Annotated[
        int | None, typer.Argument(min=1, metavar="VERSION", help="Another version than the one in force.")
    ] = None,
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the policy file in force, or another version of it."""
    from gnomon.cli.actions.policy import show
    from gnomon.cli.target import Target

    show(version, Target(database, config), output)


@policy.command("serve")
def serve_policy(
    *,
    file: PolicyFile,
    grpc: Annotated[
        str, typer.Option("--grpc", metavar="HOST:PORT", help="Address of gRPC; 127.0.0.1:50051 if none is given.")
    ] = "",
    http: Annotated[str, typer.Option("--http", metavar="HOST:PORT", help="Address of JSON over HTTP.")] = "",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate with its chain, in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the certificate.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File with the token that callers must send.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without TLS on addresses that other machines can reach.")
    ] = False,
) -> None:
    """Rule on the tasks of other schedulers by a policy file, as their policy kernel."""
    from gnomon.app.policy_server import PolicyServerOptions
    from gnomon.cli.actions.policy_server import serve

    serve(
        PolicyServerOptions(
            file=file,
            grpc=grpc,
            http=http,
            tls_cert=tls_cert,
            tls_key=tls_key,
            token_file=token_file,
            insecure=insecure,
        )
    )


shadow = typer.Typer(cls=CommandGroup, name="shadow", invoke_without_command=True)
policy.add_typer(shadow)


@shadow.callback()
def judge_by_shadow(
    context: typer.Context,
    *,
    file: Annotated[Path | None, typer.Option("-f", "--file", metavar="FILE", help="Policy file.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Judge by a policy file beside the one in force: it decides nothing, and its differences are counted."""
    from gnomon.cli.actions.policy_shadow import start
    from gnomon.cli.target import Target

    if context.invoked_subcommand is not None:
        if file is not None:
            raise UsageError("-f starts a shadow, and goes without another command")
        return
    if file is None:
        raise UsageError("say which file: gnomon policy shadow -f FILE, or one of show, stop")
    start(file, Target(database, config), output)


@shadow.command("show")
def show_shadow(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of differences.")] = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show how the decisions of the shadow differ from those in force."""
    from gnomon.cli.actions.policy_shadow import show
    from gnomon.cli.target import Target

    show(limit, Target(database, config), output)


@shadow.command("stop")
def stop_shadow(
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """End the shadow; what it has counted stays until another one starts."""
    from gnomon.cli.actions.policy_shadow import stop
    from gnomon.cli.target import Target

    stop(Target(database, config), output)


@policy.command("promote")
def promote_shadow(
    *,
    expected: ExpectedVersion = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """End the shadow, and put its file in force as the next version."""
    from gnomon.cli.actions.policy_shadow import promote
    from gnomon.cli.target import Target

    promote(expected, Target(database, config), output)
