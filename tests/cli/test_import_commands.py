"""`gnomon import`: files in, a jobs file out, and a line about every entry."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from runners.runner_harness import environment_of_tests
from support.cli_prompt import CliPrompt

DATA = Path(__file__).parents[1] / "data" / "importing"
KINDS = {
    "crontab": ("crontab", DATA / "crontab", "--tz", "Europe/Berlin"),
    "system crontab": ("crontab", DATA / "cron.d", "--system", "--tz", "UTC"),
    "systemd": ("systemd", DATA / "systemd", "--tz", "UTC"),
    "cronjob": ("cronjob", DATA / "cronjobs.yaml"),
}


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("kind", KINDS)
def test_the_written_file_is_a_jobs_file(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    # The report names the folder of a unit, which must lie inside of the workspace.
    monkeypatch.setenv("GNOMON_SHELL__WORKSPACE", "/srv")
    done = prompt.run("import", *map(str, KINDS[kind]), "-o", "out.yaml")

    assert (done.code, done.out) == (0, [])
    checked = prompt.lines("jobs", "validate", "-f", "out.yaml")
    assert checked[-1].endswith("nothing wrong")


def test_without_a_file_it_goes_to_the_terminal_and_the_report_beside_it(prompt: CliPrompt) -> None:
    done = prompt.run("import", *map(str, KINDS["crontab"]))

    assert done.out[4] == "jobs:"
    boot = "left out: @reboot starts with the machine, which is no time: leave it to the init system"
    assert done.err[:6] == [
        "crontab:7   dump    carried over",
        "crontab:8   manage  carried over",
        "crontab:13  mail    carried over",
        "crontab:14  find    carried over",
        f"crontab:15  -       {boot}",
        "crontab:16  -       left out: it is neither five fields and a command, nor a variable, nor a comment",
    ]
    assert done.err[6] == "6 found, 4 carried over"
    assert done.err[-1].startswith("note: MAILTO ops@example.org: nothing is mailed;")


def test_strict_is_for_those_who_want_all_of_it(prompt: CliPrompt) -> None:
    (prompt.folder / "whole").write_text("@daily ls\n")

    assert prompt.run("import", "crontab", "whole", "--strict").code == 0
    assert prompt.run("import", *map(str, KINDS["crontab"]), "--strict").code == 1


def test_a_file_that_is_there_is_not_written_over_unless_asked_to(prompt: CliPrompt) -> None:
    (prompt.folder / "tab").write_text("@daily ls\n")
    (prompt.folder / "out.yaml").write_text("mine")

    refused = prompt.run("import", "crontab", "tab", "-o", "out.yaml")
    assert (refused.code, refused.err) == (2, ["error: out.yaml: exists: --force overwrites it"])
    assert (prompt.folder / "out.yaml").read_text() == "mine"

    assert prompt.run("import", "crontab", "tab", "-o", "out.yaml", "--force").code == 0
    assert "name: ls" in (prompt.folder / "out.yaml").read_text()


def test_several_files_make_one_file_with_names_that_differ(prompt: CliPrompt) -> None:
    folder = prompt.folder / "cron.d"
    folder.mkdir()
    (folder / "b").write_text("@daily root ls\n")
    (folder / "a").write_text("@daily root ls\n")
    (folder / "old.bak").write_text("@daily root never\n")
    (prompt.folder / "tab").write_text("@hourly root ls\n")

    done = prompt.run("import", "crontab", "--system", "cron.d", "tab")

    assert [line for line in done.out if "name:" in line] == [f"  - name: {name}" for name in ("ls", "ls-2", "ls-3")]
    assert [line.split()[0] for line in done.err[:3]] == ["a:1", "b:1", "tab:1"]


def test_a_timer_alone_finds_its_service_beside_it(prompt: CliPrompt) -> None:
    done = prompt.run("import", "systemd", str(DATA / "systemd" / "probe.timer"))

    assert "  - name: probe" in done.out


def test_a_crontab_can_be_piped_in(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"@daily ls\n")))

    assert "  - name: ls" in prompt.run("import", "crontab", "-").out


@pytest.mark.parametrize(
    ("content", "kind", "error"),
    [
        (b"\xff\xfe", "crontab", "cannot be read: it is not UTF-8 at byte 0"),
        (b"a: [", "cronjob", "is no YAML: expected the node content, but found '<stream end>'"),
        (b"a: &x [1]\nb: *x", "cronjob", "has an alias, and none is read here"),
        (b"[" * 100, "cronjob", "is nested more than 64 deep"),
        (b"!!python/object:os.system {}", "cronjob", "could not determine a constructor"),
        (b"a: \x07", "cronjob", "is no YAML"),
        (b"a: 2026-99-99", "cronjob", "is no YAML"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line(prompt: CliPrompt, content: bytes, kind: str, error: str) -> None:
    (prompt.folder / "file").write_bytes(content)

    done = prompt.run("import", kind, "file")

    assert done.code == 2
    assert len(done.err) == 1
    assert error in done.err[0]


def test_a_file_that_is_not_there_and_a_zone_that_is_none(prompt: CliPrompt) -> None:
    assert prompt.run("import", "crontab", "nowhere").err == [
        "error: nowhere: cannot be read: No such file or directory"
    ]
    (prompt.folder / "tab").write_text("")
    assert prompt.run("import", "crontab", "tab", "--tz", "Mars/Olympus").code == 2


def test_the_zone_of_the_machine_is_taken_if_none_is_said(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    (prompt.folder / "tab").write_text("@daily ls\n")

    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert "    timezone: Asia/Tokyo" in prompt.run("import", "crontab", "tab").out
    monkeypatch.setenv("TZ", "nonsense/nowhere")
    assert prompt.run("import", "crontab", "tab").code == 0


def test_nothing_becomes_an_empty_file_of_jobs(prompt: CliPrompt) -> None:
    (prompt.folder / "tab").write_text("# nothing\n")

    done = prompt.run("import", "crontab", "tab", "-o", "out.yaml")

    assert done.err[0] == "0 found, 0 carried over"
    assert prompt.lines("jobs", "validate", "-f", "out.yaml") == ["out.yaml: 0 jobs, nothing wrong"]


def test_an_imported_job_runs(prompt: CliPrompt) -> None:
    """From a crontab with percent signs to the output of the command."""
    (prompt.folder / "tab").write_text('WHO=world\n0 0 1 1 * echo "hello $WHO"; cat%one%two\\%\n')
    prompt.run("import", "crontab", "tab", "-o", "jobs.yaml", "--tz", "UTC", "--force")
    program = (
        "import gnomon, subprocess, sys\n"
        "with gnomon.start(database='run.db', jobs='jobs.yaml'):\n"
        "    words = 'jobs trigger echo --wait --database run.db'.split()\n"
        "    subprocess.run([sys.executable, '-m', 'gnomon', *words], check=True)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=prompt.folder, env=environment_of_tests(), check=True)

    [run] = prompt.run("executions", "list", "-o", "json", "--database", "run.db").data()
    logs = prompt.lines("executions", "logs", run["execution_id"], "--database", "run.db")

    assert [line.rpartition("  ")[2] for line in logs] == ["hello world", "one", "two%"]
