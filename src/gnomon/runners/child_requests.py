"""The request to the process of a function: how that process finds the function, its input and its limits."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.context import AttemptInfo
from gnomon.runners.ipc import ChildRequest
from gnomon.runners.open_files import inherited_open_files_limit
from gnomon.runners.process_memory import memory_reads_forbidden
from gnomon.runners.registry import Function
from gnomon.runners.secrets import redactor


def attempt_request(attempt: RunningAttempt, environment: RunnerEnvironment, imports: Sequence[str]) -> ChildRequest:
    """The request for the function of an attempt, with the secrets that its input names."""
    wanted = attempt.function.binder.wanted(attempt.assignment)
    given, found = environment.secrets.resolve(wanted, tenant=attempt.tenant, job=attempt.job)
    if found:
        attempt.log.redact_with(redactor(found))
    request = plain_request(attempt.function, wanted, attempt, environment, imports, facts=attempt.facts())
    return msgspec.structs.replace(request, input=_to_builtins(given), secrets=found)


def plain_request(
    function: Function,
    given: Mapping[str, Any],
    attempt: RunningAttempt,
    environment: RunnerEnvironment,
    imports: Sequence[str],
    *,
    facts: AttemptInfo,
) -> ChildRequest:
    """The request for a function with this input, in which no secrets are looked up."""
    main = sys.modules["__main__"]
    module, script = function.module, None
    if module == "__main__":
        spec = getattr(main, "__spec__", None)
        module, script = (spec.name, None) if spec else ("", getattr(main, "__file__", None))
    plain = _to_builtins(given)
    return ChildRequest(
        search_path=sys.path,
        imports=tuple(imports),
        script=script,
        module=module,
        qualname=function.qualname,
        function=function.name,
        input=plain,
        shown=plain,
        secrets={},
        forbid_memory_reads=memory_reads_forbidden(),
        facts=facts,
        timeout_ms=round(attempt.timeout * 1000),
        max_output_bytes=environment.max_output_bytes,
        max_log_lines=environment.max_log_lines,
        open_files=inherited_open_files_limit(),
    )


def _to_builtins(given: Any) -> dict[str, Any]:  # noqa: ANN401 - any mapping
    plain: dict[str, Any] = msgspec.to_builtins(given)
    return plain
