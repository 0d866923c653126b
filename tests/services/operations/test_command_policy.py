"""The policy of commands in the service that applies jobs, whichever interface it serves."""

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.policy import Autonomy
from gnomon.core.commands.rules import CommandRules
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.origins import with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.runs.workflow import SHELL, Step, Workflow
from gnomon.errors import ChangesRefused, FieldError
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.job_changes import JobChange
from gnomon.services.operations.jobs import JobService
from gnomon.testing.clock import CountedIds, VirtualClock

FILE = "file:/etc/gnomon/jobs.yaml"


class Setup:
    """A job service with a policy, which can be set anew on the same store."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore(self.clock.now)
        self.ids = CountedIds()
        self.service = self.jobs()

    def jobs(self, **security: object) -> JobService:
        store, clock = self.store, self.clock
        rules = CommandRules(SecuritySettings(**security), workspace="/srv/workspace")  # type: ignore[arg-type]
        policy = CommandPolicyService(rules, store.approvals, store.tasks, store.jobs, store.schedules, clock, self.ids)
        self.service = JobService(store.jobs, store.schedules, store.history, clock, self.ids, command_policy=policy)
        return self.service

    def job(self, command: str, origin: str) -> list[Job]:
        definition = {"name": "nightly", "schedule": "0 4 * * *", "command": command}
        return with_origin([read_job(definition, Defaults(), now=NOON)], origin)

    async def applied(self, command: str, origin: str) -> JobChange:
        [done] = await self.service.apply(self.job(command, origin), actor="ada")
        return done.change


@pytest.fixture
def setup() -> Setup:
    return Setup()


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", [FILE, "import:app", "cli"])
async def test_jobs_of_the_machine_may_have_any_command(setup: Setup, origin: str) -> None:
    assert await setup.applied("rm -rf x", origin) is JobChange.CREATED


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", ["api", "cron", "mcp", ""])
async def test_others_are_checked_when_they_are_added(setup: Setup, origin: str) -> None:
    with pytest.raises(FieldError, match="command not allowed: rm -rf x"):
        await setup.applied("rm -rf x", origin)

    assert await setup.service.page() == []


@pytest.mark.req("Z-13", "Z-14")
@pytest.mark.parametrize("workspaces", [("/srv/workspace", "/link/workspace"), ()])
def test_a_command_in_a_folder_outside_of_the_workspace_of_all_workers_is_refused(workspaces: tuple[str, ...]) -> None:
    rules = CommandRules(SecuritySettings(), workspaces=workspaces)

    def definition(folder: str) -> Workflow:
        undo = Step(name="undo", function=SHELL, command="ls", input={"workdir": folder})
        made = [Step(name=name, function=SHELL, command="ls") for name in ("one", "two")]
        return Workflow(workflow_id="x", version=1, steps=(made[0], replace(made[1], compensate=undo)))

    for inside in ("reports", "/srv/workspace", "/link/workspace/a/../b", "${input.folder}", "/srv/${input.folder}"):
        rules.refuse_outside(definition(inside))
    for outside in ("/etc", "/srv/workspaces", "/srv/workspace/../other", "//etc"):
        if not workspaces:
            rules.refuse_outside(definition(outside))
            continue
        with pytest.raises(FieldError, match=r"outside of the workspace \(shell") as refused:
            rules.refuse_outside(definition(outside))
        assert refused.value.field == "dag[1].compensate.workdir"


@pytest.mark.req("Z-04")
async def test_an_explicit_setting_applies_to_jobs_of_files_too(setup: Setup) -> None:
    setup.jobs(allowed_commands=("echo",))

    with pytest.raises(FieldError, match="command not allowed: ls"):
        await setup.applied("ls", FILE)


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("through", ["nightly", "between"])
async def test_nobody_gives_open_commands_a_schedule_by_a_step_that_runs_them(setup: Setup, through: str) -> None:
    await setup.applied("rm -rf x", FILE)
    steps = [{"step": "first", "function": "f"}, {"step": "then", "workflow": "nightly"}]
    between = {"name": "between", "schedule": "0 4 * * *", "dag": steps}
    await setup.service.apply(with_origin([read_job(between, Defaults(), now=NOON)], FILE), actor="ada")
    outer = {
        **between,
        "name": "outer",
        "dag": [{"step": "first", "function": "f"}, {"step": "then", "workflow": through}],
    }

    for origin in ("api", "cron", "mcp"):
        with pytest.raises(FieldError, match=rf"dag\[1\].workflow: '{through}' runs commands of"):
            await setup.service.apply(with_origin([read_job(outer, Defaults(), now=NOON)], origin), actor="bob")
    [done] = await setup.service.apply(with_origin([read_job(outer, Defaults(), now=NOON)], "cli"), actor="ada")

    assert done.change is JobChange.CREATED


async def test_a_job_that_repeats_what_is_stored_is_not_checked_again(setup: Setup) -> None:
    await setup.applied("ls", FILE)
    setup.jobs(allowed_commands=("echo",))

    assert await setup.applied("ls", FILE) is JobChange.UNCHANGED


@pytest.mark.req("Z-04")
async def test_read_only_takes_files_that_repeat_what_is_stored_and_no_others(setup: Setup) -> None:
    definition = {"name": "plain", "function": "f"}
    plain = with_origin([read_job(definition, Defaults(), now=NOON)], FILE)
    await setup.service.apply(plain, actor="ada")
    setup.jobs(autonomy=Autonomy.READ_ONLY)

    [same] = await setup.service.apply(plain, actor="ada")
    changed = with_origin([read_job({**definition, "function": "g"}, Defaults(), now=NOON)], FILE)
    with pytest.raises(ChangesRefused):
        await setup.service.apply(changed, actor="ada")

    assert same.change is JobChange.UNCHANGED
    [shown] = await setup.service.page()
    assert shown.workflow is not None
    assert shown.workflow.steps[0].function == "f"
