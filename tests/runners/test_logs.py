"""Logs: what a body says is kept with its task, bounded; what others say is not touched."""

import asyncio
import logging
import threading

import pytest

from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from runners.runner_harness import assignment, open_runner


@pytest.fixture
def functions() -> Functions:
    return Functions()


def said(outcome: AttemptOutcome) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in outcome.logs]


async def test_records_of_the_standard_library_are_kept(functions: Functions) -> None:
    @functions.function
    async def talks() -> None:
        logging.getLogger("any.name").warning("%d left", 3)
        await asyncio.to_thread(logging.getLogger("any.name").error, "from a thread")

    async with open_runner(functions) as harness:
        outcome = await harness.run("talks")

    assert said(outcome) == [("warning", "3 left"), ("error", "from a thread")]


async def test_an_exception_is_kept_with_its_record(functions: Functions) -> None:
    @functions.function
    def talks() -> None:
        try:
            int("inner")
        except ValueError:
            logging.getLogger("any.name").exception("it broke")

    async with open_runner(functions) as harness:
        [(level, text)] = said(await harness.run("talks"))

    assert level == "error"
    assert text.startswith("it broke\nTraceback")
    assert text.endswith("'inner'")


async def test_each_body_has_its_own_log(functions: Functions) -> None:
    together = asyncio.Event()

    @functions.function
    async def talks(name: str) -> None:
        if name == "second":
            together.set()
        await together.wait()
        logging.getLogger("any.name").warning(name)

    async with open_runner(functions) as harness:
        batch = [assignment("talks", {"name": name}) for name in ("first", "second")]
        harness.runner.start(batch)

        assert [said(await harness.outcome(each)) for each in batch] == [
            [("warning", "first")],
            [("warning", "second")],
        ]


async def test_the_level_that_the_host_chose_counts(functions: Functions) -> None:
    @functions.function
    async def talks(ctx: Context) -> None:
        logging.getLogger("any.name").debug("not wanted by the host")
        ctx.logger.debug("kept: %s", "always")
        ctx.log("also kept")

    level = logging.getLogger().level
    async with open_runner(functions) as harness:
        outcome = await harness.run("talks")
        assert logging.getLogger().level == level

    assert said(outcome) == [("debug", "kept: always"), ("info", "also kept")]


async def test_records_of_other_threads_are_not_kept(functions: Functions, caplog: pytest.LogCaptureFixture) -> None:
    started, enough = threading.Event(), threading.Event()

    @functions.function
    def waits() -> None:
        started.set()
        enough.wait(10)

    async with open_runner(functions) as harness:
        harness.runner.start([assigned := assignment("waits")])
        assert await asyncio.to_thread(started.wait, 10)
        logging.getLogger("host").warning("of the host")
        enough.set()

        assert (await harness.outcome(assigned)).logs == ()
    assert caplog.messages == ["of the host"]


async def test_two_runners_in_a_process_keep_a_record_once(functions: Functions) -> None:
    @functions.function
    async def talks() -> None:
        logging.getLogger("any.name").warning("once")

    async with open_runner(functions) as other, open_runner(functions) as harness:
        await other.run("talks")
        outcome = await harness.run("talks")

    assert said(outcome) == [("warning", "once")]


async def test_one_runner_that_is_closed_takes_nothing_from_the_other(functions: Functions) -> None:
    @functions.function
    async def talks() -> None:
        logging.getLogger("any.name").warning("still heard")

    async with open_runner(functions) as harness:
        await harness.run("talks")
        async with open_runner(functions) as other:
            await other.run("talks")

        assert said(await harness.run("talks")) == [("warning", "still heard")]


async def test_the_host_can_still_set_its_logging_up(functions: Functions) -> None:
    @functions.function
    async def talks() -> None: ...

    handlers = list(logging.getLogger().handlers)
    async with open_runner(functions) as harness:
        await harness.run("talks")

        assert logging.getLogger().handlers == handlers


async def test_a_logger_that_does_not_propagate_is_captured_too(functions: Functions) -> None:
    quiet = logging.Logger("quiet")  # noqa: LOG001 - stands alone on purpose

    @functions.function
    async def talks() -> None:
        quiet.warning("between us")

    async with open_runner(functions) as harness:
        assert said(await harness.run("talks")) == [("warning", "between us")]


async def test_a_record_that_cannot_be_shown_breaks_nothing(functions: Functions) -> None:
    @functions.function
    async def talks(ctx: Context) -> None:
        ctx.logger.warning("%d", "no number")

    async with open_runner(functions) as harness:
        [(_, text)] = said(await harness.run("talks"))

    assert text == "[a record that cannot be shown: TypeError] '%d'"


@pytest.mark.guarantee("S25")
async def test_characters_that_no_database_keeps_are_escaped(functions: Functions) -> None:
    @functions.function
    async def odd(ctx: Context) -> None:
        ctx.log("a\0", level="\udcff")
        ctx.logger.info("b%s", "\ud800")
        logging.getLogger("anything").warning("c\0")

    async with open_runner(functions) as harness:
        outcome = await harness.run("odd")

    assert said(outcome) == [(r"\udcff", r"a\x00"), ("info", r"b\ud800"), ("warning", r"c\x00")]


async def test_a_log_is_cut_with_a_mark(functions: Functions) -> None:
    @functions.function
    async def talks(ctx: Context) -> None:
        for number in range(10):
            ctx.log(f"{number}" * 3000)

    async with open_runner(functions, max_log_lines=3) as harness:
        outcome = await harness.run("talks")

    assert [len(text) for _, text in said(outcome)[:3]] == [2000, 2000, 2000]
    assert said(outcome)[2][1].endswith("2…")
    assert said(outcome)[3:] == [("warning", "[only the first 3 lines are kept]")]
