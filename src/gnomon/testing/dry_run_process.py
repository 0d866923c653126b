"""The dry run of a request, in a process of its own, so that its computation delays no tick.

`python -m gnomon.testing.dry_run_process` reads the request as JSON from standard input and prints the report.
"""

import asyncio
import resource
import sys
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.instants import instant_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import DAY_MS, Catchup, Overlap
from gnomon.core.responses.plans import SimulatedCollision, SimulatedDecision, SimulatedJob, SimulationResult
from gnomon.testing.dry_run import JobLoad, LoadReport, ScheduleDryRun

#: The processor time and the memory that a dry run may use.
_CPU_SECONDS, _MEMORY_BYTES = 20, 2 * 1024**3


class DryRunRequest(Struct, frozen=True, kw_only=True):
    """Definitions, and the defaults of the scheduler that reads them."""

    jobs: list[dict[str, Any]]
    from_at: int
    days: int
    timezone: str
    lasts_ms: int
    overlap: Overlap
    catchup: Catchup
    jitter_ms: int
    lookahead_ms: int
    catchup_cap: int


def main() -> None:
    """Run one dry run."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=DryRunRequest)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(simulated(request))))


async def simulated(request: DryRunRequest) -> SimulationResult:
    """The result of the dry run."""
    defaults = Defaults(
        overlap=request.overlap,
        catchup=request.catchup,
        jitter_ms=request.jitter_ms,
        lookahead_ms=request.lookahead_ms,
        catchup_cap=request.catchup_cap,
    )
    jobs = [read_job(fields, defaults, now=request.from_at) for fields in request.jobs]
    until = request.from_at + request.days * DAY_MS
    dry_run = ScheduleDryRun(jobs, start_at=request.from_at, zone=request.timezone)
    loads = await dry_run.run(until, durations={}, usual_ms=request.lasts_ms)
    return _result(request, until, loads, [job.name for job in jobs if not job.enabled])


def _result(request: DryRunRequest, until: int, loads: LoadReport, disabled: list[str]) -> SimulationResult:
    return SimulationResult(
        from_at=instant_of(request.from_at),
        until_at=instant_of(until),
        timezone=loads.zone,
        runs=sum(job.runs for job in loads.jobs.values()),
        not_enabled=disabled,
        jobs=[_job(job) for job in loads.jobs.values()],
        colliding_minutes=loads.colliding_minutes,
        collisions=[SimulatedCollision(at=instant_of(one.at), jobs=list(one.jobs)) for one in loads.collisions],
    )


def _job(job: JobLoad) -> SimulatedJob:
    return SimulatedJob(
        job=job.name,
        ticks=job.planned,
        runs=job.runs,
        decisions=[
            SimulatedDecision(kind=kind.value, reason=reason.value, count=count)
            for (kind, reason), count in sorted(job.ticks.items())
        ],
        runs_beside_another=job.beside,
        runs_replaced=job.replaced,
        most_waiting=job.most_waiting,
    )


if __name__ == "__main__":
    main()
