"""`gnomon workflows`: deploy and show workflows defined in JSON."""

import sys
from pathlib import Path

from gnomon.app.gateway import Gateway
from gnomon.cli.actions.graph_drawing import draw_definition
from gnomon.cli.inputs import json_file
from gnomon.cli.output import Format, format_fields, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.responses.schedules import WorkflowSummary
from gnomon.errors import FieldError


def deploy(file: Path, target: Target, form: Format) -> None:
    """Store a definition as a new version and register its triggers."""
    definition = json_file("--file", str(file))
    if not isinstance(definition, dict):
        raise FieldError("--file", str(file), "contains no JSON object")
    done = send(target, requests.deploy(definition), make=True)
    for warning in done.warnings:
        sys.stderr.write(printable(f"warning: {done.workflow_id}: {warning}") + "\n")
    if form is not Format.TABLE:
        print_data(done, form)
        return
    echo(f"{done.workflow_id} version {done.version}" + ("" if done.new else " (unchanged)"))
    for name in done.schedules:
        echo(f"schedule {name}")
    for name in done.removed:
        echo(f"schedule {name} is deleted; its history stays")


def list_workflows(target: Target, form: Format) -> None:
    """Print the newest version of every workflow."""

    async def work(gateway: Gateway) -> list[WorkflowSummary]:
        return await list_all(gateway, requests.workflows(page=page_size()))

    found = with_gateway(target, work)
    none = "no workflows: gnomon workflows deploy -f FILE stores one, and every job has one"
    print_list(found, form, ["workflow", "version", "steps", "tags"], _row, none)


def _row(one: WorkflowSummary) -> list[str]:
    return [one.workflow_id, str(one.version), str(len(one.steps)), ", ".join(one.tags)]


def show(workflow_id: str, version: int | None, target: Target, form: Format) -> None:
    """Print a version of a workflow and draw its steps."""
    found = send(target, requests.workflow(workflow_id, version=version))
    if form is not Format.TABLE:
        print_data(found, form)
        return
    fields = [
        ("workflow", found["workflow_id"]),
        ("version", str(found["version"])),
        ("about", found.get("description", "")),
        ("tags", ", ".join(found.get("tags", []))),
    ]
    echo("\n".join(format_fields(fields)))
    echo("")
    draw_definition(found["steps"])
