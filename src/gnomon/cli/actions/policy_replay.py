"""`gnomon policy replay`: judges the tasks of the history by a policy file."""

from collections.abc import Iterable
from pathlib import Path

from gnomon.app.gateway import Gateway
from gnomon.app.policy import read_policy_text
from gnomon.cli.inputs import parse_bounds
from gnomon.cli.output import Format, print_data, print_table, printable
from gnomon.cli.target import Target, echo, with_gateway
from gnomon.client import requests
from gnomon.client.replays import ReplayTotal
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.responses.policy_replay import PolicyReplayed, ReplayChange, ReplayDecision, ReplayUnknown
from gnomon.errors import FieldError

#: The exit code if the replay has something that `--fail-on` names.
EXIT_FOUND = 3
_WORDS = ("changed", "denied", "not_known")
_FACTS = {
    "definition": "the definition of its run is no longer stored",
    "input": "its input was not stored, or cannot be decrypted",
    "actor": "an older program stored the run without its caller",
    "time": "a window opened or closed while the task waited",
}


def parse_fail_on(values: Iterable[str]) -> frozenset[str]:
    """The words of `--fail-on`; FieldError for an unknown one."""
    found = frozenset(word.strip() for text in values for word in text.split(","))
    for word in found:
        if word not in _WORDS:
            raise FieldError("--fail-on", word, f"must be one or more of {', '.join(_WORDS)}")
    return found


def replay(file: Path, since: str, target: Target, form: Format, *, limit: int) -> frozenset[str]:
    """Print what the file would change about the history; return the words of `--fail-on` that apply."""
    body = read_policy_text(file, guarded=False)
    start = parse_bounds({"since": since})["since"] or since

    async def work(gateway: Gateway) -> PolicyReplayed:
        total, after = ReplayTotal(), None
        while True:
            part = await gateway.send(requests.replay_policy(body, since=start, after=after))
            total.add(part)
            if part.after is None:
                return total.result()
            after = part.after

    found = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
    else:
        _print(found, limit)
    return _words(found)


def _words(found: PolicyReplayed) -> frozenset[str]:
    denied = any(one.after.decision == PolicyDecision.DENY != one.before.decision for one in found.changes)
    counts = {"changed": found.changed, "denied": denied, "not_known": found.not_known}
    return frozenset(word for word, count in counts.items() if count)


def _print(found: PolicyReplayed, limit: int) -> None:
    if found.changes[:limit]:
        print_table(["job", "tasks", "before", "after", "first"], [_change_row(one) for one in found.changes[:limit]])
    more = sum(one.tasks for one in found.changes[limit:]) + found.left_out
    if more:
        echo(f"and {_tasks(more)} in other changes")
    if found.unknown:
        print_table(["job", "tasks", "not known, because"], [_unknown_row(one) for one in found.unknown[:limit]])
    for one in found.rules:
        echo(printable(f"{one.rule}: {_tasks(one.tasks)}"))
    parts = [f"{found.changed} decided otherwise", f"{found.unchanged} as before"]
    parts += [f"{found.not_known} not known"] if found.not_known else []
    echo(f"{_tasks(found.tasks)}: {', '.join(parts)}")


def _change_row(one: ReplayChange) -> list[str]:
    return [_job(one), str(one.tasks), _decided(one.before), _decided(one.after), f"{one.execution_id} {one.step}"]


def _unknown_row(one: ReplayUnknown) -> list[str]:
    return [_job(one), str(one.tasks), _FACTS.get(one.fact, one.fact)]


def _job(one: ReplayChange | ReplayUnknown) -> str:
    return one.job if one.tenant == "default" else f"{one.tenant}/{one.job}"


def _decided(one: ReplayDecision) -> str:
    limits = (
        "" if not one.constraints else f" ({', '.join(f'{key} {value}' for key, value in one.constraints.items())})"
    )
    return f"{one.decision} by {one.rule}{limits}" if one.rule else f"{one.decision}, no policy"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
