"""`gnomon up` as its users meet it: started, fed, watched, stopped."""

import base64
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from support.command_line import run_command
from support.gnomon_processes import TESTS, GnomonProcess, up
from support.witness import read_witness


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[..., Path]:
    def written(*lines: str) -> Path:
        file = tmp_path / "jobs.yaml"
        new = tmp_path / "jobs.new"
        new.write_text("jobs:\n" + "".join(f"  - {{{line}}}\n" for line in lines))
        new.replace(file)
        return file

    return written


SECONDLY = 'name: {name}, function: witness/coroutine, schedule: "* * * * * *"'


def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does: there is nothing to await."""
    while not condition():
        time.sleep(0.02)


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as file:
        return file.execute(query).fetchall()


def gnomon(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(*words, folder=TESTS)


# ---- starting and feeding ------------------------------------------------------------------------


def test_a_file_and_a_function_are_enough(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    with up(database, "--jobs", str(jobs(SECONDLY.format(name="ticker")))) as running:
        running.line_with("+ ticker")
        until(lambda: read_witness(witness))
        assert running.terminate() == 0

    assert ("completed",) in rows(database, "SELECT status FROM run")


def test_a_changed_file_is_applied(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    file = jobs(SECONDLY.format(name="old"))
    with up(database, "--jobs", str(file)) as running:
        jobs(SECONDLY.format(name="old"), SECONDLY.format(name="new"))
        running.line_with("1 created, 0 changed, 1 as before")
        running.line_with("+ new")
    assert {job for _, job, *_ in read_witness(witness)} >= {"new"}


def test_a_job_that_is_declared_no_more_is_named_at_the_start_and_pruned_on_demand(
    database: Path, jobs: Callable[..., Path], tmp_path: Path
) -> None:
    def started_with(function: str, *words: str) -> str:
        code = f'import gnomon\n\n@gnomon.job("@daily")\ndef {function}() -> None: ...\n'
        (tmp_path / "renamed_functions.py").write_text(code)
        environment = {"PYTHONPATH": f"{tmp_path}:{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"}
        with up(database, *words, imports=["renamed_functions"], environment=environment) as running:
            return "".join(running.read)

    started_with("old_name")
    renamed = started_with("new_name", "--jobs", str(jobs("name: report, function: new-nmae")))
    found = gnomon("doctor", "--database", str(database))
    pruned = started_with("new_name", "--prune")

    assert "1 job was declared in import renamed_functions before and not now: old-name;" in renamed
    assert "no worker here has the function 'new-nmae' of report; did you mean new-name?" in renamed
    assert "1 job is no longer declared: old-name (import renamed_functions)" in found.stdout
    assert "1 job was no longer declared in import renamed_functions and deleted: old-name" in pruned

    assert rows(database, "SELECT schedule_id FROM schedule WHERE deleted_at IS NULL ORDER BY 1") == [
        ("new-name",),
        ("report",),
    ]


def test_a_broken_file_is_reported_and_left_alone(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    file = jobs(SECONDLY.format(name="old"))
    with up(database, "--jobs", str(file)) as running:
        jobs(SECONDLY.format(name="old"), 'name: BAD NAME, function: f, schedule: "* * * * *"')
        assert "line 3" in running.line_with("! ")
        running.line_with("+ old")
        jobs(SECONDLY.format(name="mended"))
        running.line_with("+ mended")
    del witness


def test_a_file_that_is_broken_from_the_start_is_refused(database: Path, jobs: Callable[..., Path]) -> None:
    file = jobs("name: x, function: f, schedule: nonsense")

    refused = gnomon("up", "--database", str(database), "--jobs", str(file))

    assert refused.returncode == 2
    assert "line 2" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nothing_is_registered_if_any_file_is_wrong(database: Path, jobs: Callable[..., Path], tmp_path: Path) -> None:
    good = jobs(SECONDLY.format(name="good"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("jobs: [{name: bad, function: f, schedule: nonsense}]")

    refused = gnomon("up", "--database", str(database), "--jobs", str(good), "--jobs", str(bad))

    assert refused.returncode == 2
    assert [line for line in refused.stderr.splitlines() if "bad.yaml" not in line] == []
    assert not database.exists()


def test_a_job_that_stands_in_two_files_is_refused(database: Path, jobs: Callable[..., Path], tmp_path: Path) -> None:
    first, second = jobs(SECONDLY.format(name="twice")), tmp_path / "more.yaml"
    second.write_text(first.read_text())

    refused = gnomon("up", "--database", str(database), "--jobs", str(first), "--jobs", str(second))

    assert refused.returncode == 2
    assert f"'twice' stands in {first} and in {second}" in refused.stderr
    assert not database.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--import", "no.such.module"), "cannot import no.such.module"),
        (("--database", "/no/such/folder/g.db"), "there is no folder"),
        (("--database", "ftp://x"), "a store is at"),
        (("--slots", "0"), "slots"),
        (("--config", "/no/such/file.yaml"), "/no/such/file.yaml"),
    ],
)
def test_nonsense_is_refused_in_words(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    database = () if "--database" in words else ("--database", str(tmp_path / "g.db"))

    refused = run_command("up", *database, *words, folder=tmp_path)

    assert refused.returncode in (1, 2)
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.req("H-04")
def test_a_function_that_nobody_has_registered_is_named(database: Path, jobs: Callable[..., Path]) -> None:
    line = 'name: lost, function: no/such, schedule: "* * * * * *"'
    with up(database, "--jobs", str(jobs(line))) as running:
        assert "no worker has registered the function 'no/such'" in running.line_with("no_workers")


@pytest.mark.req("H-26")
def test_a_run_triggered_by_another_process_starts_at_once(
    database: Path, jobs: Callable[..., Path], witness: Path
) -> None:
    with up(database, "--jobs", str(jobs("name: asked, function: witness/coroutine"))):
        triggered = gnomon("jobs", "trigger", "asked", "--database", str(database))
        until(lambda: read_witness(witness))

    assert triggered.returncode == 0
    assert len(read_witness(witness)) == 2


@pytest.mark.req("H-26")
@pytest.mark.guarantee("S11")
def test_a_running_execution_is_cancelled_from_another_process(
    database: Path, jobs: Callable[..., Path], witness: Path
) -> None:
    line = "name: long, function: witness/stubborn, isolation: process"
    with up(database, "--jobs", str(jobs(line)), environment={"GNOMON_WORKER__KILL_GRACE_MS": "200"}) as running:
        gnomon("jobs", "trigger", "long", "--database", str(database))
        until(lambda: read_witness(witness))
        [(_, _, run, _, _, pid)] = read_witness(witness)
        cancelled = gnomon("executions", "cancel", run, "--database", str(database))
        running.line_with("! long: cancelled")

    assert cancelled.returncode == 0
    assert not alive(pid)
    assert rows(database, "SELECT status FROM run") == [("cancelled",)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- stopping ------------------------------------------------------------------------------------


def started(running: GnomonProcess, database: Path, witness: Path, job: str) -> int:
    """The job was triggered and runs; its process id."""
    gnomon("jobs", "trigger", job, "--database", str(database))
    until(lambda: read_witness(witness))
    del running
    return read_witness(witness)[0][-1]


@pytest.mark.guarantee("S26")
def test_a_stop_lets_what_runs_finish(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    line = "name: slow, function: witness/thread, input: {seconds: 1.0}"
    with up(database, "--jobs", str(jobs(line))) as running:
        started(running, database, witness, "slow")
        assert running.terminate() == 0

    assert [what for what, *_ in read_witness(witness)] == ["start", "end"]
    assert rows(database, "SELECT status FROM run") == [("completed",)]


@pytest.mark.guarantee("S26")
def test_an_attempt_that_exceeds_the_drain_is_killed_and_retried_at_the_next_start(
    database: Path, jobs: Callable[..., Path], witness: Path
) -> None:
    line = "name: long, function: witness/stubborn, isolation: process"
    brief = {"GNOMON_WORKER__DRAIN_MS": "200", "GNOMON_WORKER__KILL_GRACE_MS": "300"}
    with up(database, "--jobs", str(jobs(line)), environment=brief) as running:
        pid = started(running, database, witness, "long")
        began = time.monotonic()
        assert running.terminate() == 0
        assert time.monotonic() - began < 10
    assert not alive(pid)
    assert rows(database, "SELECT state, attempts, losses FROM task") == [("PENDING", 0, 0)]

    with up(database, "--jobs", str(jobs(line)), environment=brief) as again:
        until(lambda: len(read_witness(witness)) == 2)
        again.kill()
    assert [fence for *_, fence, _, _ in read_witness(witness)] == [1, 2]


@pytest.mark.guarantee("S26")
def test_the_second_signal_is_obeyed_at_once(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    line = "name: long, function: witness/stubborn, isolation: process"
    with up(database, "--jobs", str(jobs(line))) as running:
        pid = started(running, database, witness, "long")
        running.signal(signal.SIGINT)
        running.line_with("once more to stop at once")
        running.signal(signal.SIGINT)
        assert running.ended() == 128 + signal.SIGINT

    until(lambda: not alive(pid))


@pytest.mark.guarantee("S5")
def test_kill_9_takes_the_child_processes_along(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    line = "name: long, function: witness/stubborn, isolation: process, delivery: at_most_once"
    with up(database, "--jobs", str(jobs(line))) as running:
        pid = started(running, database, witness, "long")
        running.kill()
        until(lambda: not alive(pid))
    with up(database, "--jobs", str(jobs(line))) as again:
        again.line_with("lost")

    assert rows(database, "SELECT status FROM run") == [("failed",)]
    assert len(read_witness(witness)) == 1


# ---- secrets -------------------------------------------------------------------------------------


@pytest.mark.req("H-22")
@pytest.mark.guarantee("S24")
def test_a_secret_is_in_no_table_no_log_and_no_message(
    database: Path, jobs: Callable[..., Path], tmp_path: Path
) -> None:
    canary = 'Zk9"/canary\\+&é7Qx'
    line = "name: leaky, function: leaky, dead_letter: true, input: {token: '${secret:CANARY}'}"
    isolated = line.replace("name: leaky", "name: leaky-process") + ", isolation: process"
    environment = {"CANARY": canary, "GNOMON_SECRETS__ALLOW": "CANARY"}
    arguments = ("--jobs", str(jobs(line, isolated)))
    said: list[str] = []
    with up(database, *arguments, imports=("support.misbehaving_functions",), environment=environment) as running:
        for job in ("leaky", "leaky-process"):
            gnomon("jobs", "trigger", job, "--database", str(database))
            said.append(running.line_with("dead letter"))
        shown = [gnomon("executions", "list", "-o", "json", "--database", str(database)).stdout]
        runs = [str(run) for (run,) in rows(database, "SELECT run_id FROM run")]
        shown += [gnomon("executions", "show", run, "-o", "json", "--database", str(database)).stdout for run in runs]
        shown += [gnomon("executions", "logs", run, "--database", str(database)).stdout for run in runs]
        assert running.terminate() == 0

    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("gnomon.db"))
    everything = kept + "".join([*said, *shown]).encode()
    raw = canary.encode()
    forms = [
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        base64.b64encode(raw).rstrip(b"="),
        base64.urlsafe_b64encode(raw).rstrip(b"="),
        quote(canary).encode(),
        quote(canary, safe="").encode(),
        canary.replace("\\", "\\\\").replace('"', '\\"').encode(),
    ]
    assert b"[secret CANARY]" in everything
    assert [form for form in forms if form in everything] == []


# ---- not being held up ---------------------------------------------------------------------------


@pytest.mark.guarantee("E5")
def test_a_coroutine_that_blocks_its_loop_does_not_hold_up_the_clock(
    database: Path, jobs: Callable[..., Path], witness: Path
) -> None:
    blocking = "name: blocking, function: blocking"
    ticking = 'name: ticking, function: witness/thread, schedule: "* * * * * *", overlap: allow'
    with up(
        database, "--jobs", str(jobs(blocking, ticking)), imports=("support.witness", "support.misbehaving_functions")
    ) as running:
        gnomon("jobs", "trigger", "blocking", "--database", str(database))
        until(lambda: len(read_witness(witness)) >= 6)
        running.kill()

    late = rows(database, "SELECT max(decided_at - planned_at) FROM tick")
    assert late[0][0] < 1000  # type: ignore[operator]
    assert rows(database, "SELECT status FROM run WHERE schedule_id = 'blocking'") == [("running",)]


# ---- nobody listens ------------------------------------------------------------------------------


@contextmanager
def unheard(how: str) -> Iterator[int]:
    """Where to write to, and nobody reads it: the disk is full, the reader has left, or stands still."""
    if how == "full":
        with Path("/dev/full").open("w") as full:
            yield full.fileno()
        return
    reader, writer = os.pipe()
    if how == "left":
        os.close(reader)
    else:
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while os.write(writer, b"x" * 4096):
                pass
        os.set_blocking(writer, True)
    yield writer
    os.close(writer)
    if how != "left":
        os.close(reader)


@pytest.mark.parametrize(
    ("output", "more"),
    [
        pytest.param("full", (), id="full"),
        pytest.param("full", ("--quiet",), id="full, logs", marks=pytest.mark.thorough),
        pytest.param("left", (), id="left", marks=pytest.mark.thorough),
        pytest.param("left", ("--quiet",), id="left, logs"),
        pytest.param("still", (), id="still"),
        pytest.param("still", ("--quiet",), id="still, logs", marks=pytest.mark.thorough),
    ],
)
def test_output_that_nobody_takes_ends_nothing(
    database: Path, jobs: Callable[..., Path], witness: Path, output: str, more: tuple[str, ...]
) -> None:
    file = jobs("name: beat, function: witness/coroutine, every: 100ms, overlap: allow")
    words = ("up", "--no-api", "--database", str(database), "--jobs", str(file), "--import", "support.witness", *more)
    with (
        unheard(output) as stream,
        subprocess.Popen(
            [sys.executable, "-m", "gnomon", *words], cwd=TESTS, stdout=stream, stderr=subprocess.PIPE, text=True
        ) as running,
    ):
        until(lambda: len(read_witness(witness)) >= 20 or running.poll() is not None)
        running.terminate()
        _, said = running.communicate(timeout=30)

    assert (running.returncode, said) == (0, "")
    assert len(read_witness(witness)) >= 20


def test_the_last_line_says_that_it_has_stopped(database: Path, jobs: Callable[..., Path], witness: Path) -> None:
    with up(database, "--jobs", str(jobs(SECONDLY.format(name="ticker")))) as running:
        until(lambda: read_witness(witness))
        running.signal(signal.SIGTERM)
        assert running.line_with("stopped").endswith("  stopped\n")
        assert running.ended() == 0


def test_a_database_file_that_is_deleted_is_reported(database: Path, jobs: Callable[..., Path]) -> None:
    with up(database, "--jobs", str(jobs("name: idle, function: witness/coroutine"))) as running:
        running.line_with("* scheduling")
        database.unlink()
        assert str(database) in running.line_with("was moved or deleted")


# ---- inside a program ----------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, gnomon

@gnomon.job(every="200ms", overlap="allow")
async def beat(ctx: gnomon.Context) -> None:
    with open(os.environ["GNOMON_WITNESS"], "a") as file:
        file.write(f"start beat {ctx.run_id} {ctx.fence} {ctx.attempt} {os.getpid()}\\n")

if __name__ == "__main__":
    with gnomon.start(database=sys.argv[1]):
        print("started", flush=True)
        sys.stdin.read()
"""


def test_of_several_programs_that_start_it_at_once_one_schedules(tmp_path: Path, database: Path, witness: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    programs = [
        subprocess.Popen(
            [sys.executable, str(script), str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            program.stdout.readline()
        until(lambda: len(read_witness(witness)) >= 3)
        [leader] = {pid for *_, pid in read_witness(witness)}
        [first] = [program for program in programs if program.pid == leader]
        first.kill()
        until(lambda: {pid for *_, pid in read_witness(witness)} > {leader})
    finally:
        for program in programs:
            program.communicate(timeout=30)

    planned = rows(database, "SELECT planned_at, count(*) FROM run GROUP BY planned_at HAVING count(*) > 1")
    assert planned == []
    # An attempt whose process was killed is run again, under another fence.
    starts = [(run, fence) for _, _, run, fence, *_ in read_witness(witness)]
    assert len(set(starts)) == len(starts)


UNGUARDED = """
import os, gnomon

@gnomon.job(every="300ms", isolation="process")
def beat(ctx: gnomon.Context) -> None:
    with open(os.environ["GNOMON_WITNESS"], "a") as file:
        file.write(f"start beat {ctx.run_id} {ctx.fence} {ctx.attempt} {os.getpid()}\\n")

gnomon.run(database=os.environ["GNOMON_TEST_DATABASE"])
"""


def test_an_isolated_function_of_a_program_that_runs_it_unguarded_finds_its_function(
    tmp_path: Path, database: Path, witness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_TEST_DATABASE", str(database))
    script = tmp_path / "program.py"
    script.write_text(UNGUARDED)
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as program:
        until(lambda: len(read_witness(witness)) >= 2)
        program.terminate()
        program.communicate(timeout=30)

    assert program.returncode == 0
    assert program.pid not in {pid for *_, pid in read_witness(witness)}
