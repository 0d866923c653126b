"""Everything that can be asked for, as requests. `Client` and `AsyncClient` differ only in how they send them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gnomon.client.asking import Ask, path
from gnomon.core import answers
from gnomon.core.answers import Page
from gnomon.core.why_answers import WhyAnswer


def _keyed(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def health() -> Ask[answers.HealthReport]:
    """How the scheduler is."""
    return Ask(method="GET", path="/v1/health", answer=answers.HealthReport)


def register(job: Mapping[str, Any]) -> Ask[answers.JobApplied]:
    """Register a job."""
    return Ask(method="POST", path=path("jobs"), answer=answers.JobApplied, body=job)


def update(name: str, job: Mapping[str, Any], etag: str | None) -> Ask[answers.JobApplied]:
    """Change a job."""
    headers = {} if etag is None else {"If-Match": f'"{etag}"'}
    return Ask(method="PUT", path=path("jobs", name), answer=answers.JobApplied, body=job, headers=headers)


def jobs(tag: str | None, limit: int) -> Ask[Page[answers.JobSummary]]:
    """The first page of all jobs."""
    return Ask(method="GET", path=path("jobs"), answer=Page[answers.JobSummary], query={"tag": tag, "limit": limit})


def job(name: str) -> Ask[answers.JobDetail]:
    """A job."""
    return Ask(method="GET", path=path("jobs", name), answer=answers.JobDetail)


def delete(name: str) -> Ask[None]:
    """Delete a job."""
    return Ask(method="DELETE", path=path("jobs", name), answer=None)


def trigger(name: str, given: Mapping[str, Any] | None, key: str | None, *, force: bool) -> Ask[answers.Started]:
    """Start an execution."""
    body: dict[str, Any] = {"force": True} if force else {}
    if given is not None:
        body["input"] = given
    return Ask(
        method="POST", path=path("jobs", name, "trigger"), answer=answers.Started, body=body, headers=_keyed(key)
    )


def pause(name: str) -> Ask[answers.JobDetail]:
    """Pause a job."""
    return Ask(method="POST", path=path("jobs", name, "pause"), answer=answers.JobDetail)


def resume(name: str) -> Ask[answers.JobDetail]:
    """Let a job go on."""
    return Ask(method="POST", path=path("jobs", name, "resume"), answer=answers.JobDetail)


def planned(hours: int, limit: int) -> Ask[Page[answers.PlannedFire]]:
    """The planned times to come."""
    query = {"hours": hours, "limit": limit}
    return Ask(method="GET", path=path("schedule"), answer=Page[answers.PlannedFire], query=query)


def ticks(
    name: str, kind: str | None, since: datetime | None, until: datetime | None, limit: int
) -> Ask[Page[answers.LedgerTick]]:
    """The first page of a job's ledger."""
    query = {"job": name, "kind": kind, "since": since, "until": until, "limit": limit}
    return Ask(method="GET", path=path("ticks"), answer=Page[answers.LedgerTick], query=query)


def why(name: str, at: str | None, last: int | None) -> Ask[WhyAnswer]:
    """Why a job did what it did."""
    return Ask(method="GET", path=path("jobs", name, "why"), answer=WhyAnswer, query={"at": at, "last": last})


def executions(asked: Mapping[str, object]) -> Ask[Page[answers.Execution]]:
    """The first page of executions."""
    return Ask(method="GET", path=path("executions"), answer=Page[answers.Execution], query=asked)


def execution(execution_id: str) -> Ask[answers.ExecutionDetail]:
    """An execution."""
    return Ask(method="GET", path=path("executions", execution_id), answer=answers.ExecutionDetail)


def cancel(execution_id: str) -> Ask[answers.Ended]:
    """End an execution."""
    return Ask(method="POST", path=path("executions", execution_id, "cancel"), answer=answers.Ended)


def logs(execution_id: str) -> Ask[Page[answers.LogEntry]]:
    """What an execution has said."""
    return Ask(method="GET", path=path("executions", execution_id, "logs"), answer=Page[answers.LogEntry])


def submit(
    function: str, given: Mapping[str, Any] | None, key: str | None, terms: Mapping[str, Any]
) -> Ask[answers.Started]:
    """Run a function once."""
    body = {"function": function, **terms, **({} if given is None else {"input": given})}
    return Ask(method="POST", path=path("tasks"), answer=answers.Started, body=body, headers=_keyed(key))


def dead_letters(name: str | None, limit: int, *, resolved: bool) -> Ask[Page[answers.DeadLetterSummary]]:
    """The first page of dead letters."""
    query = {"job": name, "resolved": resolved, "limit": limit}
    return Ask(method="GET", path=path("dead-letters"), answer=Page[answers.DeadLetterSummary], query=query)


def dead_letter(dead_letter_id: str) -> Ask[answers.DeadLetterDetail]:
    """A dead letter."""
    return Ask(method="GET", path=path("dead-letters", dead_letter_id), answer=answers.DeadLetterDetail)


def replay(dead_letter_id: str, key: str | None) -> Ask[answers.Started]:
    """Run again what has failed."""
    where = path("dead-letters", dead_letter_id, "replay")
    return Ask(method="POST", path=where, answer=answers.Started, headers=_keyed(key))


def replay_all(name: str | None) -> Ask[Page[answers.Replay]]:
    """Run everything again that has failed."""
    where = path("dead-letters", "replay-all")
    return Ask(method="POST", path=where, answer=Page[answers.Replay], query={"job": name})


def resolve(dead_letter_id: str) -> Ask[answers.DeadLetterDetail]:
    """Put a dead letter away."""
    where = path("dead-letters", dead_letter_id)
    return Ask(method="PATCH", path=where, answer=answers.DeadLetterDetail, body={"resolved": True})


def emit(name: str, body: object, key: str | None) -> Ask[answers.EventDetail]:
    """Say that something happened."""
    said = {"name": name, "body": body}
    return Ask(method="POST", path=path("events"), answer=answers.EventDetail, body=said, headers=_keyed(key))


def deploy(definition: Mapping[str, Any]) -> Ask[answers.WorkflowDeployed]:
    """Keep a workflow."""
    return Ask(method="POST", path=path("workflows"), answer=answers.WorkflowDeployed, body=definition)


def workers() -> Ask[Page[answers.WorkerDetail]]:
    """Who is alive."""
    return Ask(method="GET", path=path("workers"), answer=Page[answers.WorkerDetail])


def after(page: Page[Any], ask: Ask[Any]) -> Ask[Any] | None:
    """The request for the next page; None after the last."""
    return None if page.next is None else Ask(method="GET", path=page.next, answer=ask.answer)
