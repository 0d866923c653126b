"""Jobs in code: an error names the job, the function and the line, and modules are named as Python names them."""

import inspect
from pathlib import Path

import pytest

from gnomon.app.files import read_declared_jobs
from gnomon.app.runner import import_modules
from gnomon.config.settings import Settings
from gnomon.errors import DeclaredJobError, UsageError
from gnomon.runners.registry import Functions
from gnomon.runners.workflow_builder import Workflows, step

SETTINGS = Settings()


def test_an_error_of_a_job_in_code_names_the_job_the_function_and_the_line() -> None:
    functions = Functions()

    @functions.job("every day at 9am")
    def fine() -> None: ...

    @functions.job("@daily", name="billing", retires=3)  # type: ignore[call-arg]
    def charge() -> None: ...

    with pytest.raises(DeclaredJobError) as refused:
        read_declared_jobs(functions.declared, SETTINGS, now=0)

    place = f"{charge.__module__}.{charge.__qualname__} ({__file__}:{inspect.getsourcelines(charge)[1]})"
    assert str(refused.value) == f"the job 'billing' of {place}: retires: 3 is no field; did you mean retry?"


def test_an_error_of_a_workflow_in_code_names_its_line() -> None:
    functions = Functions()

    @functions.function
    def extract() -> None: ...

    @Workflows(functions).workflow("61 * * * *")
    def load() -> None:
        step(extract)

    line = inspect.getsourcelines(load)[1]
    with pytest.raises(DeclaredJobError, match=f"the job 'load' of .*test_declared_jobs.py:{line}.: schedule: "):
        read_declared_jobs(functions.declared, SETTINGS, now=0)


@pytest.mark.parametrize(
    ("file", "module"), [("my_functions.py", "my_functions"), ("./company/jobs.py", "company.jobs")]
)
def test_a_file_that_is_given_as_a_module_is_answered_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, module: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError) as refused:
        import_modules([file])

    assert str(refused.value) == f"cannot import {file}: name the module, not the file: --import {module}"
