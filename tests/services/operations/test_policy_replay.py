"""A replay judges every task of the history by a new file: it guesses nothing, and writes nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.policy.replay import ReplayTally
from gnomon.errors import FileError
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.policy import PolicyService
from support.policy_harness import PolicyHarness, command, function

EVERYTHING = "rules: [{id: rest, match: {tenants: ['*']}, decision: allow}]"


def service(harness: PolicyHarness) -> PolicyService:
    store = harness.store
    return PolicyService(
        store.policies,
        store.rulings,
        store.executions,
        store.jobs,
        store.schedules,
        harness.clock,
        shadows=store.policy_shadows,
        budget_windows=store.budget_windows,
        parse=parse_policy,
        compute=ComputeQueue(),
    )


async def replayed(harness: PolicyHarness, body: str, **given: Any) -> ReplayTally:  # noqa: ANN401 - as replay takes them
    part = await service(harness).replay(body, since=given.pop("since", 0), limit=given.pop("limit", 1000), **given)
    return part.tally


def changes(tally: ReplayTally) -> list[tuple[str, str, str, int]]:
    return sorted(
        (one.job, f"{one.before.decision} {one.before.rule}".strip(), f"{after.decision} {after.rule}", one.tasks)
        for one in tally.changes.values()
        for after in [one.after]
    )


@pytest.mark.req("R-02")
async def test_tasks_that_would_be_decided_otherwise_are_counted_by_job_and_rule() -> None:
    harness = PolicyHarness()
    await harness.apply(EVERYTHING)
    await harness.tried(function(), b'{"amount": 5}')
    await harness.tried(function(), b'{"amount": 50}')
    await harness.tried(replace(command("true"), origin="cli"))

    tally = await replayed(
        harness,
        "default_decision: allow\nrules:\n"
        "- {id: big, when: input.amount > 9, match: {kinds: [function]}, decision: throttle}\n"
        "- {id: shells, match: {kinds: [command]}, decision: deny}\n",
    )

    assert (tally.tasks, tally.unchanged, tally.changed, tally.not_asked) == (3, 1, 2, 0)
    assert changes(tally) == [("job2", "allow rest", "throttle big", 1), ("job3", "allow rest", "deny shells", 1)]
    assert dict(tally.rules) == {"default": 1, "big": 1, "shells": 1}
    assert not tally.unknown


@pytest.mark.req("R-02")
async def test_the_state_of_budgets_changes_no_decision_of_a_replay() -> None:
    harness = PolicyHarness()
    body = "default_decision: allow\nbudgets: [{id: mails, limit: 5, per: 1d, meter: mails, reserve: 5}]\n"
    await harness.apply(body)
    await harness.tried(function())
    await harness.tried(function())
    assert "mails" in {one.rule for rows in harness.tables.rulings.values() for one in rows}

    tally = await replayed(harness, body)

    assert (tally.tasks, tally.unchanged, tally.changed) == (2, 2, 0)


async def test_a_replay_by_the_policy_that_ruled_changes_nothing() -> None:
    harness = PolicyHarness()
    body = (
        "rules:\n- {id: never, match: {kinds: [command]}, decision: deny}\n"
        "- {id: later, when: input.wait == true, decision: throttle}\n"
        "- {id: boxed, match: {tenants: ['*']}, decision: allow_with_constraints, constraints: {max_attempts: 1}}\n"
    )
    await harness.apply(body)
    for one, given in ((command("true"), None), (function(), b'{"wait": true}'), (function(), b'{"wait": false}')):
        await harness.tried(one, given)
    state = harness.tables
    before = (len(state.audit), dict(state.tasks), dict(state.rulings), len(state.policy_versions))

    tally = await replayed(harness, body)

    assert (tally.tasks, tally.unchanged, tally.changed) == (3, 3, 0)
    assert (len(state.audit), dict(state.tasks), dict(state.rulings), len(state.policy_versions)) == before


async def test_other_constraints_are_a_change_and_another_rule_alone_is_none() -> None:
    harness = PolicyHarness()
    boxed = (
        "rules: [{id: %s, match: {tenants: ['*']}, decision: allow_with_constraints, constraints: {max_attempts: %s}}]"
    )
    await harness.apply(boxed % ("old", 2))
    await harness.tried(function())

    renamed, tightened = await replayed(harness, boxed % ("new", 2)), await replayed(harness, boxed % ("new", 1))

    assert (renamed.unchanged, renamed.changed) == (1, 0)
    assert (tightened.unchanged, tightened.changed) == (0, 1)


async def test_tasks_of_the_time_before_the_first_policy_count_as_allowed() -> None:
    harness = PolicyHarness()
    await harness.tried(function())

    assert changes(await replayed(harness, "default_decision: deny")) == [("job1", "allow", "deny default", 1)]
    assert (await replayed(harness, "default_decision: allow")).unchanged == 1


async def test_a_command_that_was_refused_for_its_own_sake_stays_refused() -> None:
    harness = PolicyHarness()
    await harness.apply(EVERYTHING)
    task, _ = await harness.tried(command("rm -rf /"))

    tally = await replayed(harness, EVERYTHING)

    assert task.state == "DENIED"
    assert (tally.tasks, tally.unchanged, tally.changed) == (1, 1, 0)


async def test_a_task_that_nobody_was_asked_about_is_not_judged() -> None:
    harness = PolicyHarness()
    await harness.tried(function(condition="input.go == true"), b'{"go": false}')

    tally = await replayed(harness, "default_decision: deny")

    assert (tally.tasks, tally.not_asked) == (0, 1)


@pytest.mark.req("R-02")
async def test_an_input_that_is_no_longer_known_is_not_guessed() -> None:
    harness = PolicyHarness()
    await harness.tried(function(input={"day": "${input.day}"}), b'{"day": "monday"}')
    by_input = "default_decision: allow\nrules: [{id: monday, when: input.day == 'monday', decision: deny}]"

    known = await replayed(harness, by_input)
    payloads = harness.tables.payloads
    del payloads[next(key for key in payloads if key[0].startswith("task_"))]
    unknown = await replayed(harness, by_input)
    anyway = await replayed(harness, "default_decision: deny")

    assert changes(known) == [("job1", "allow", "deny monday", 1)]
    assert dict(unknown.unknown) == {("default", "job1", "input"): 1}
    assert (unknown.tasks, unknown.changed, unknown.unchanged) == (1, 0, 0)
    assert anyway.changed == 1


async def test_a_definition_that_is_no_longer_stored_is_not_guessed() -> None:
    harness = PolicyHarness()
    await harness.tried(function())
    harness.tables.workflows.clear()

    tally = await replayed(harness, "default_decision: deny")

    assert dict(tally.unknown) == {("default", "job1", "definition"): 1}


@pytest.mark.parametrize(
    ("waited_ms", "expected"), [(MINUTE, "unchanged"), (2 * HOUR, "unknown"), (13 * HOUR, "changed")]
)
async def test_a_window_that_opened_while_a_task_waited_is_not_guessed(waited_ms: int, expected: str) -> None:
    harness = PolicyHarness()
    run = await harness.launched(function())
    task = harness.tables.tasks[next(iter(harness.tables.tasks))]
    # Asked about at some time between 12:00 and its dispatch; the window opens at 13:00.
    since = NOON if expected != "changed" else NOON + 12 * HOUR
    harness.tables.tasks[task.task_id] = replace(task, created_at=since)
    harness.clock.advance(waited_ms)
    await harness.run_until_idle()
    taken = harness.tables.tasks[task.task_id]
    harness.tables.tasks[task.task_id] = replace(taken, available_at=since - 1)
    window = "{cron: '0 13 * * *', lasts: 20h}"
    closed = f"default_decision: allow\nrules: [{{id: shut, match: {{window: {window}}}, decision: deny}}]"

    tally = await replayed(harness, closed)

    assert run.run_id == task.run_id
    found = {"unchanged": tally.unchanged, "changed": tally.changed, "unknown": tally.unknown.total()}
    assert found == {**dict.fromkeys(found, 0), expected: 1}


async def test_a_replay_comes_in_parts_and_counts_only_tasks_since_then() -> None:
    harness = PolicyHarness()
    for number in range(5):
        if number == 2:
            harness.clock.advance(HOUR)
        await harness.tried(function())
    asked, after = service(harness), ""
    tallies = []
    while True:
        part = await asked.replay("default_decision: deny", since=NOON + HOUR, after=after, limit=2)
        tallies.append(part.tally)
        if part.after is None:
            break
        after = part.after

    assert len(tallies) == 3
    assert sum(one.changed for one in tallies) == 3


async def test_a_broken_file_is_refused_before_anything_is_read() -> None:
    with pytest.raises(FileError):
        await replayed(PolicyHarness(), "rules: [{id: a}]")
