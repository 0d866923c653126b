"""`gnomon policy shadow` and `promote`: a policy file that is judged beside the one in force."""

from pathlib import Path

from gnomon.app.policy import read_policy_text
from gnomon.cli.output import Format, format_instant, print_data, print_table
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests
from gnomon.core.responses.policy_shadow import PolicyShadowDetail, ShadowChange


def start(file: Path, target: Target, form: Format) -> None:
    """Judge by a file from now on, and print its number."""
    body = read_policy_text(file, guarded=True)
    made = send(target, requests.start_policy_shadow(body), make=True)
    if form is not Format.TABLE:
        print_data(made, form)
        return
    echo(f"shadow {made.number} runs; gnomon policy shadow show prints the differences")


def show(limit: int, target: Target, form: Format) -> None:
    """Print the shadow and its differences."""
    found = send(target, requests.policy_shadow(limit=limit))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    if found.differences:
        print_table(["job", "tasks", "in force", "shadow", "last"], [_row(one) for one in found.differences])
    echo(_summary(found))


def stop(target: Target, form: Format) -> None:
    """End the shadow, and print what it has counted."""
    ended = send(target, requests.stop_policy_shadow())
    if form is not Format.TABLE:
        print_data(ended, form)
        return
    echo(_summary(ended))


def promote(expected: int | None, target: Target, form: Format) -> None:
    """Put the file of the shadow in force, and print the version that it became."""
    made = send(target, requests.promote_policy_shadow(expected=expected))
    if form is not Format.TABLE:
        print_data(made, form)
        return
    echo(f"version {made.version} is in force; the shadow has ended")


def _row(one: ShadowChange) -> list[str]:
    job = one.job if one.tenant == "default" else f"{one.tenant}/{one.job}"
    before = one.before if one.before_rule is None else f"{one.before} by {one.before_rule}"
    return [job, str(one.count), before, f"{one.after} by {one.after_rule}", format_instant(one.last_at)]


def _summary(one: PolicyShadowDetail) -> str:
    since = format_instant(one.started_at)
    state = f"runs since {since}" if one.ended_at is None else f"ran from {since} to {format_instant(one.ended_at)}"
    counts = [f"{one.same} as in force", f"{one.different} otherwise"]
    counts += [f"{one.left_out} of them not listed"] if one.left_out else []
    counts += [f"{one.not_judged} not judged"] if one.not_judged else []
    return f"shadow {one.number} {state}: {', '.join(counts)}"
