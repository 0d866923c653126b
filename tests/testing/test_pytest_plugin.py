"""The plug-in for pytest, in a project of a user's own."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ("pytester",)

JOBS = """
jobs:
  - name: backup
    schedule: "30 2 * * *"
    timezone: Europe/Berlin
    function: storage/backup
    catchup: latest
"""
#: Where the package is not installed anew since the plug-in came, pytest does not find it by itself.
INSTALLED = any(point.value == "gnomon_pytest" for point in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "gnomon_pytest")
#: Plug-ins of this project that take long to import.
UNUSED = [
    option
    for name in ("cacheprovider", "hypothesispytest", "schemathesis", "xdist", "xdist.looponfail")
    for option in ("-p", f"no:{name}")
]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml(
        """
        [tool.pytest]
        strict = true
        filterwarnings = ["error"]
        asyncio_mode = "auto"
        asyncio_default_fixture_loop_scope = "function"
        """
    )
    pytester.makefile(".yaml", jobs=JOBS)
    return pytester


def outcome_of(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess(*PLUGIN, *UNUSED, *options)


def test_a_test_asks_for_a_scheduler_and_loads_its_jobs(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        async def test_the_backup_runs_every_night(scheduler):
            await scheduler.load("jobs.yaml")
            await scheduler.run_until("2027-03-28T04:00")
            assert len(scheduler.runs("backup")) == 87
        """
    )

    outcome_of(project).assert_outcomes(passed=1)


def test_a_test_says_by_a_mark_where_it_begins(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.gnomon(jobs="jobs.yaml", start="2027-03-27T00:00", timezone="Europe/Berlin")
        async def test_the_night_without_a_half_past_two(scheduler):
            await scheduler.run_until("2027-03-28T04:00")
            scheduler.assert_ran_at("backup", "2027-03-27T02:30", "2027-03-28T03:00")
        """
    )

    outcome_of(project).assert_outcomes(passed=1)


def test_a_project_says_in_its_settings_where_its_tests_begin(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(
        """
        [tool.pytest]
        asyncio_mode = "auto"
        gnomon_jobs = ["jobs.yaml"]
        gnomon_start = "2027-03-27T00:00"
        gnomon_timezone = "Europe/Berlin"
        """
    )
    project.makepyfile(
        """
        async def test_it(scheduler):
            await scheduler.run_for("1d")
            scheduler.assert_ran("backup", 1)
        """
    )

    outcome_of(project).assert_outcomes(passed=1)


def test_no_asynchronous_plug_in_is_needed(project: pytest.Pytester) -> None:
    project.makepyprojecttoml("[tool.pytest]\nstrict = true")
    project.makepyfile(
        """
        import asyncio

        def test_it(scheduler):
            async def night():
                await scheduler.load("jobs.yaml")
                await scheduler.run_for("1d")

            asyncio.run(night())
            scheduler.assert_ran("backup", 1)
        """
    )

    outcome_of(project, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_a_failed_assertion_is_shown_at_its_line(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        async def test_it(scheduler):
            await scheduler.load("jobs.yaml")
            await scheduler.run_for("2d")
            scheduler.assert_ran("backup", 3)
        """
    )

    done = outcome_of(project)

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            ">*scheduler.assert_ran*",
            "E*AssertionError: backup ran 2 times, not 3",
            "E*backup planned 2027-01-01T01:30:00+00:00 completed",
        ]
    )
    assert "expecting.py" not in done.stdout.str()


def test_every_test_has_a_scheduler_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("again", range(2))
        async def test_it(scheduler, again):
            await scheduler.load("jobs.yaml")
            await scheduler.run_for("1d")
            scheduler.assert_ran("backup", 1)
        """
    )

    outcome_of(project).assert_outcomes(passed=2)


def test_a_jobs_file_that_is_wrong_fails_the_test_with_its_line(project: pytest.Pytester) -> None:
    project.makefile(".yaml", jobs=JOBS.replace("30 2", "30 25"))
    project.makepyfile(
        """
        import pytest

        @pytest.mark.gnomon(jobs="jobs.yaml")
        async def test_it(scheduler):
            pass
        """
    )

    done = outcome_of(project)

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*jobs.yaml: line 3, column 5: jobs[[]0].schedule: '30 25 [*] [*] [*]' is refused*"])
    assert "Traceback" not in done.stdout.str()


def test_the_plug_in_imports_nothing_before_a_test_asks_for_it() -> None:
    program = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport gnomon_pytest\n"
        "print(sorted(name for name in set(sys.modules) - before if name != 'gnomon_pytest'))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_plug_in_shows_in_the_list_of_fixtures(project: pytest.Pytester) -> None:
    outcome_of(project, "--fixtures").stdout.fnmatch_lines(
        ["scheduler -- *gnomon_pytest*", "*A scheduler on virtual time*"]
    )
