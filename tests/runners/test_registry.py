"""The registry: functions by name, and the jobs written beside them."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from gnomon.core.cron import Cron, Dst
from gnomon.core.jobs.job import JOB_FIELDS, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import COMMAND_FIELDS
from gnomon.core.model import Overlap
from gnomon.core.runs.workflow import Delivery, Isolation
from gnomon.core.triggers import At, Every, OnDemand
from gnomon.errors import FieldError, UsageError
from gnomon.runners.registry import Functions, JobOptions, Retry


@pytest.fixture
def functions() -> Functions:
    return Functions()


def test_a_function_is_called_by_its_own_name_with_dashes(functions: Functions) -> None:
    @functions.function
    def warm_cache() -> None: ...

    assert list(functions) == ["warm-cache"]


def test_a_name_may_be_any_printable_text(functions: Functions) -> None:
    @functions.function("hanzo/llm-gateway/health-probe")
    def probe() -> None: ...

    assert "hanzo/llm-gateway/health-probe" in functions


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines"])
def test_other_names_are_refused(functions: Functions, name: str) -> None:
    with pytest.raises(FieldError, match="printable"):
        functions.add(print, name)


def test_a_decorated_function_stays_as_it_was(functions: Functions) -> None:
    def double(number: int) -> int:
        return 2 * number

    assert functions.function()(double) is double
    assert functions.job("every minute")(double) is double


def test_another_function_under_the_same_name_is_refused(functions: Functions) -> None:
    def one() -> None: ...
    def other() -> None: ...

    functions.add(one, "probe")

    with pytest.raises(UsageError, match=r"'probe' is already the name of .*one"):
        functions.add(other, "probe")


def test_the_same_function_loaded_again_takes_its_old_place(functions: Functions) -> None:
    for _ in range(2):

        @functions.job("every minute")
        def probe() -> None: ...

    known = functions.get("probe")
    assert known is not None
    assert known.body is probe
    assert len(functions.jobs) == 1


def test_a_function_without_a_name_must_be_given_one(functions: Functions) -> None:
    with pytest.raises(FieldError, match="name"):
        functions.function()(lambda: None)


def test_an_object_that_is_not_callable_is_refused(functions: Functions) -> None:
    with pytest.raises(FieldError, match="cannot be called"):
        functions.add("probe")  # type: ignore[arg-type] # that is the point


def test_a_generator_is_refused(functions: Functions) -> None:
    def numbers(first: int = 1) -> Iterator[int]:
        yield first

    async def later() -> AsyncIterator[int]:
        yield 1

    class Numbers:
        def __call__(self) -> Iterator[int]:
            yield 1

    for body in (numbers, partial(numbers, 2), later, Numbers()):
        with pytest.raises(UsageError, match=r"function: 'numbers' is a generator"):
            functions.add(body, "numbers")


def test_callable_objects_with_coroutine_methods_are_coroutine_functions(functions: Functions) -> None:
    class Probe:
        async def __call__(self) -> None: ...

    async def probe() -> None: ...

    assert functions.add(probe, "a").is_coroutine
    assert functions.add(Probe(), "b").is_coroutine
    assert not functions.add(print, "c").is_coroutine


def test_a_job_is_kept_in_the_words_of_a_jobs_file(functions: Functions) -> None:
    @functions.job(
        schedule="every weekday at 7am",
        timezone="America/Los_Angeles",
        retry=Retry(max_attempts=5, initial_delay=timedelta(milliseconds=250)),
        timeout=timedelta(minutes=2),
        jitter=1.5,
        tags=("cache", "morning"),
        start_at=datetime(2026, 3, 2, tzinfo=UTC),
        dst=Dst(gap="skip"),
        input={"top_k": 10},
        isolation="process",
    )
    def warm_cache(top_k: int) -> None: ...

    assert functions.jobs == [
        {
            "name": "warm-cache",
            "function": "warm-cache",
            "schedule": "every weekday at 7am",
            "timezone": "America/Los_Angeles",
            "retry": {
                "max_attempts": 5,
                "initial_delay": "250ms",
                "multiplier": 2,
                "max_delay": "300s",
                "jitter": 0.1,
            },
            "timeout": "120s",
            "jitter": 1.5,
            "tags": ["cache", "morning"],
            "start_at": "2026-03-02T00:00:00+00:00",
            "dst": {"gap": "skip", "fold": "first"},
            "input": {"top_k": 10},
            "isolation": "process",
        }
    ]


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        (Cron("0 9 * * *", "Europe/Berlin"), {"schedule": "0 9 * * *", "timezone": "Europe/Berlin"}),
        (Cron("0 9 * * *"), {"schedule": "0 9 * * *", "timezone": "UTC"}),
        (
            Cron("0 9 * * *", dialect="posix", dst=Dst(gap="skip")),
            {
                "schedule": "0 9 * * *",
                "timezone": "UTC",
                "dialect": "posix",
                "dst": {"gap": "skip", "fold": "first"},
            },
        ),
        (Every(timedelta(minutes=5)), {"every": "300s", "start_at": "1970-01-01T00:00:00+00:00"}),
        (
            Every(timedelta(minutes=5), datetime(2026, 3, 2, tzinfo=UTC)),
            {"every": "300s", "start_at": "2026-03-02T00:00:00+00:00"},
        ),
        (At(datetime(2027, 3, 2, tzinfo=UTC)), {"at": "2027-03-02T00:00:00+00:00"}),
    ],
    ids=["cron", "cron in UTC", "cron with all options", "every", "every from an instant", "at"],
)
def test_a_trigger_that_is_a_value_can_be_the_schedule_of_a_job(
    functions: Functions, schedule: Cron | Every | At, fields: dict[str, object]
) -> None:
    @functions.job(schedule)
    def report() -> None: ...

    [definition] = functions.jobs
    assert definition == {"name": "report", "function": "report", **fields}
    assert read_job(definition, Defaults(), now=7).spec.trigger == schedule


def test_a_zone_beside_a_schedule_that_has_one_is_refused(functions: Functions) -> None:
    with pytest.raises(FieldError, match="timezone: 'UTC' is given by the schedule, too"):
        functions.job(Cron("0 9 * * *", "Europe/Berlin"), timezone="UTC")


def test_a_job_without_a_schedule_waits_to_be_triggered(functions: Functions) -> None:
    @functions.job(dead_letter=True)
    def charge() -> None: ...

    assert isinstance(read_job(functions.jobs[0], Defaults(), now=0).spec.trigger, OnDemand)


def test_options_of_a_job_are_those_that_the_reader_of_jobs_accepts(functions: Functions) -> None:
    @functions.job(
        every=timedelta(seconds=90),
        description="warms the cache",
        retry=Retry(initial_delay=timedelta(milliseconds=250), max_delay=60),
        timeout=timedelta(minutes=2),
        jitter=timedelta(milliseconds=1500),
        start_at=datetime(2026, 3, 2, tzinfo=UTC),
        overlap=Overlap.QUEUE,
        delivery=Delivery.AT_LEAST_ONCE,
        dead_letter=True,
        tags=["cache"],
        isolation=Isolation.PROCESS,
    )
    def warm_cache() -> None: ...

    job = read_job(functions.jobs[0], Defaults(), now=0)

    [step] = job.workflow.steps
    assert (job.name, step.function, step.timeout_ms, step.isolation) == (
        "warm-cache",
        "warm-cache",
        120_000,
        Isolation.PROCESS,
    )
    assert step.retry is not None
    assert (step.retry.initial_delay_ms, step.retry.max_delay_ms) == (250, 60_000)
    assert (job.spec.overlap, job.spec.jitter_ms) == (Overlap.QUEUE, 1500)
    assert (job.workflow.delivery, job.workflow.dead_letter) == (Delivery.AT_LEAST_ONCE, True)


def test_every_field_that_the_reader_of_jobs_accepts_has_an_option() -> None:
    said_otherwise = {"name", "function", *COMMAND_FIELDS, "http", "agent", "schedule", "dag"}

    assert set(JOB_FIELDS) - said_otherwise == set(JobOptions.__annotations__)
