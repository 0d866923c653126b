"""`gnomon workflows`: graphs of steps that other programs write."""

from pathlib import Path

from gnomon.cli.drawing import draw_definition
from gnomon.cli.given import json_file
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import facts
from gnomon.core.job_data import workflow_as_data
from gnomon.core.workflow import Workflow
from gnomon.errors import FieldError
from gnomon.office import Office
from gnomon.services.answering import workflow_deployed, workflow_summary
from gnomon.services.workflows import Deployed

_PAGE = 1000


def deploy(file: Path, where: Where, form: Format) -> None:
    """Keep a definition as a new version, and let its triggers stand."""
    definition = json_file("--file", str(file))
    if not isinstance(definition, dict):
        raise FieldError("--file", str(file), "holds no JSON object")

    async def work(office: Office) -> Deployed:
        return await office.workflows.deploy(definition, actor=actor())

    done = in_office(where, work, make=True)
    if form is not Format.TABLE:
        print_data(workflow_deployed(done), form)
        return
    say(f"{done.workflow_id} version {done.version}" + ("" if done.new else " (unchanged)"))
    for name in done.schedules:
        say(f"schedule {name}")
    for name in done.removed:
        say(f"schedule {name} is deleted; its history stays")


def list_workflows(where: Where, form: Format) -> None:
    """List every workflow in its newest version."""

    async def work(office: Office) -> list[Workflow]:
        found: list[Workflow] = []
        while page := await office.workflows.page(after=found[-1].workflow_id if found else "", limit=_PAGE):
            found += page
        return found

    found = in_office(where, work)
    if form is not Format.TABLE:
        print_data([workflow_summary(one) for one in found], form)
    elif not found:
        say("no workflows: gnomon workflows deploy -f FILE keeps one, and every job has one")
    else:
        rows = [[one.workflow_id, str(one.version), str(len(one.steps)), ", ".join(one.tags)] for one in found]
        print_table(["workflow", "version", "steps", "tags"], rows)


def show(workflow_id: str, version: int | None, where: Where, form: Format) -> None:
    """Show a version of a workflow."""
    workflow = in_office(where, lambda office: office.workflows.get(workflow_id, version))
    if form is not Format.TABLE:
        print_data(workflow_as_data(workflow), form)
        return
    told = [
        ("workflow", workflow.workflow_id),
        ("version", str(workflow.version)),
        ("about", workflow.description),
        ("tags", ", ".join(workflow.tags)),
    ]
    say("\n".join(facts(told)))
    say("")
    draw_definition(workflow)
