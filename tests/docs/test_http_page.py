"""The page about HTTP calls: its jobs are valid, and its first one does what the page says, against a real server."""

import re
from pathlib import Path

import msgspec
import yaml

import gnomon
from gnomon.adapters.http_client import HttpClient
from gnomon.config.sections import SecretsSettings
from gnomon.core.jobs.http_fields import HTTP_FIELDS
from gnomon.core.model import Result
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.runs.workflow import HTTP
from gnomon.runners.registry import Functions
from runners.runner_harness import open_runner
from support.scripted_server import json_reply, scripted_server

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]


def test_the_jobs_of_the_page_are_valid() -> None:
    jobs = [gnomon.read_jobs(example["jobs"], now=0) for example in EXAMPLES]

    assert [job.name for several in jobs for job in several] == ["reconcile", "refund"]


def test_the_page_has_every_field() -> None:
    described = set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE))

    assert described == set(HTTP_FIELDS)


async def test_the_first_job_of_the_page_runs_as_described() -> None:
    [definition] = EXAMPLES[0]["jobs"]
    secrets, environ = SecretsSettings(allow=("API_TOKEN",)), {"API_TOKEN": "hunter22"}
    client = HttpClient(AllowedHosts(["127.0.0.1"], field="security.allowed_hosts"))
    async with (
        scripted_server() as server,
        open_runner(Functions(), http=client, secrets=secrets, environ=environ) as harness,
    ):
        server.replies = [json_reply({"error": "no such ledger"}, 422), json_reply({"ok": True}, 202)]
        filled = definition["http"] | {"url": server.url("/ledgers/main/reconcile")}
        filled.pop("timeout")
        refused, accepted = [await harness.run(HTTP, filled, input=filled) for _ in range(2)]

    assert server.requests[0].headers["Authorization"] == "Bearer hunter22"
    assert refused.result is Result.GAVE_UP
    assert re.fullmatch(r'answered 422 Unprocessable \w+: \{"error": "no such ledger"\}', refused.error or "")
    assert msgspec.json.decode(accepted.output or b"")["json"] == {"ok": True}
