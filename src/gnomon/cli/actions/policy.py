"""`gnomon policy`, and `gnomon executions decisions`: the policy of tasks, and its decisions."""

import sys
from pathlib import Path
from typing import Any

from gnomon.app.gateway import Gateway
from gnomon.app.policy import parse_policy_text, read_policy_text, run_policy_cases
from gnomon.cli.ids import execution_of
from gnomon.cli.inputs import json_option
from gnomon.cli.output import Format, format_instant, print_data, print_list, print_table, printable
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.policy.cases import CaseResult
from gnomon.core.policy.ruling import BY_COMMANDS
from gnomon.core.responses.policy import (
    BudgetDetail,
    PolicyRuleChange,
    PolicyRuling,
    PolicyVersionDetail,
    StepRuling,
    TaskDecisions,
)

_DIGEST_SHOWN = 12


def check(file: Path, form: Format) -> None:
    """Print that a policy file has no mistake, and how many rules it has."""
    found = parse_policy_text(read_policy_text(file, guarded=False), name=str(file))
    if form is not Format.TABLE:
        print_data({"file": str(file), "rules": len(found.rules), "default_decision": found.default_decision}, form)
        return
    echo(f"{printable(str(file))}: {_counted(len(found.rules))}, default decision {found.default_decision}")


def run_cases(file: Path, cases: Path, form: Format) -> bool:
    """Print the rulings about test cases that are not the expected ones; return whether there are none."""
    found = run_policy_cases(file, cases)
    failed = [one for one in found if not one.passed]
    if form is not Format.TABLE:
        print_data([_case_data(one) for one in found], form)
        return not failed
    for one in failed:
        because = f" ({one.ruling.reason})" if one.ruling.reason else ""
        echo(printable(f"failed: {one.case.name}: expected {_expected(one)}, got {_got(one)}{because}"))
    passed = len(found) - len(failed)
    echo(f"{passed} of {len(found)} cases passed")
    return not failed


def _expected(one: CaseResult) -> str:
    return one.case.decision if one.case.rule is None else f"{one.case.decision} by {one.case.rule}"


def _got(one: CaseResult) -> str:
    return one.ruling.decision if one.case.rule is None else f"{one.ruling.decision} by {one.ruling.rule}"


def _case_data(one: CaseResult) -> dict[str, Any]:
    ruling = one.ruling
    return {
        "case": one.case.name,
        "passed": one.passed,
        "expected": {"decision": one.case.decision, "rule": one.case.rule},
        "decision": ruling.decision,
        "rule": ruling.rule,
        "reason": ruling.reason,
    }


def diff(file: Path, target: Target, form: Format) -> None:
    """Print what a policy file would change."""
    found = send(target, requests.diff_policy(read_policy_text(file, guarded=False)))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    against = "there is no policy yet" if found.version is None else f"version {found.version} is in force"
    if not found.changes:
        echo(f"{against}: the file changes nothing")
        return
    echo(f"{against}:")
    print_table(["rule", "change", "decision", "fields"], [_change_row(one) for one in found.changes])


def _change_row(one: PolicyRuleChange) -> list[str]:
    decisions = dict.fromkeys(word for word in (one.before, one.after) if word is not None)
    return [one.rule, one.change, " -> ".join(decisions), ", ".join(one.fields)]


def explain(name: str, file: Path | None, given: str | None, target: Target, form: Format) -> None:
    """Print the decisions about the steps of a job."""
    body = None if file is None else read_policy_text(file, guarded=False)
    found = send(target, requests.explain_policy(name, input=json_option("--input", given), body=body))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    if found.version is None:
        echo("no policy: every task is allowed")
        return
    print_table(["step", "decision", "rule", "reason"], [_step_row(one) for one in found.steps])


def _step_row(one: StepRuling) -> list[str]:
    if one.decision is None:
        return [one.step, "known in a run", " or ".join(one.rules), "it depends on the input of the step"]
    limits = "" if one.constraints is None else ", ".join(f"{name} {value}" for name, value in one.constraints.items())
    return [one.step, one.decision, one.rule or "", "; ".join(part for part in (one.reason, limits) if part)]


def apply(file: Path, expected: int | None, target: Target, form: Format) -> None:
    """Put a policy file in force, and print the version that it became."""
    body = read_policy_text(file, guarded=True)
    made = send(target, requests.apply_policy(body, expected=expected), make=True)
    if form is not Format.TABLE:
        print_data(made, form)
        return
    rules = f"{_counted(made.rules)}, default decision {made.default_decision}"
    echo(f"version {made.version} is in force: {rules}")


def list_versions(limit: int, target: Target, form: Format) -> None:
    """Print the versions of the policy, newest first."""

    async def work(gateway: Gateway) -> list[PolicyVersionDetail]:
        return await list_all(gateway, requests.policy_versions(page=page_size(limit)), limit)

    found = with_gateway(target, work)
    none = "no policy: every task is allowed; gnomon policy apply -f FILE puts one in force"
    print_list(found, form, ["version", "applied", "by", "sha256", ""], _version_row, none)


def list_budgets(limit: int, target: Target, form: Format) -> None:
    """Print how much is left of each budget."""

    async def work(gateway: Gateway) -> list[BudgetDetail]:
        return await list_all(gateway, requests.budgets(page=page_size(limit)), limit)

    columns = ["budget", "for", "left", "spent", "reserved", "limit", "ends"]
    print_list(with_gateway(target, work), form, columns, _budget_row, none="no budgets")


def _budget_row(one: BudgetDetail) -> list[str]:
    counts = (str(count) for count in (one.left, one.spent, one.reserved))
    limit = f"{one.limit} {one.meter} per {one.per}"
    return [one.budget, one.scope or "", *counts, limit, format_instant(one.ends_at)]


def _version_row(one: PolicyVersionDetail) -> list[str]:
    state = "in force" if one.in_force else ""
    return [str(one.version), format_instant(one.applied_at), one.author, one.digest[:_DIGEST_SHOWN], state]


def show(version: int | None, target: Target, form: Format) -> None:
    """Print the file of a version: nothing else as text, because it may be piped into a file."""
    found = send(target, requests.policy(version))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    sys.stdout.write(found.body if found.body.endswith("\n") else f"{found.body}\n")


def decisions(given: str | None, job: str | None, target: Target, form: Format) -> None:
    """Print the decisions of the policy about the tasks of an execution, task by task."""

    async def work(gateway: Gateway) -> list[TaskDecisions]:
        return await list_all(
            gateway, requests.decisions(await execution_of(gateway, given, job=job), page=page_size())
        )

    found = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    rows = [_decision_row(task, one) for task in found for one in task.decisions]
    columns = ["step", "decision", "rule", "policy", "at", "times", "reason"]
    print_list(rows, form, columns, list, none="no policy has decided about this execution")


def _decision_row(task: TaskDecisions, one: PolicyRuling) -> list[str]:
    step = task.step if task.item is None else f"{task.step}[{task.item}]"
    policy = one.ruled_by if one.ruled_by == BY_COMMANDS or not one.version else str(one.version)
    limits = "" if one.constraints is None else ", ".join(f"{name} {value}" for name, value in one.constraints.items())
    reason = "; ".join(part for part in (one.reason, limits) if part)
    return [step, one.decision, one.rule, policy, format_instant(one.at), str(one.count), reason]


def _counted(rules: int) -> str:
    return "1 rule" if rules == 1 else f"{rules} rules"
