"""The OpenAPI document: complete, with valid examples, and responses that match it."""

import asyncio
from typing import Any, NamedTuple, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from jsonschema_rs import Draft202012Validator
from litestar import Litestar
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests

from gnomon.api.app import create_app
from gnomon.api.openapi import document
from gnomon.api.route import ApiRoute
from gnomon.api.routes import ROUTES
from gnomon.config.sections import ServerSettings
from support.api_fixture import JOB, ApiCaller, ApiFixture
from support.effort import EFFORT

DOCUMENT = document(ROUTES)
OPERATIONS = [
    pytest.param(path, method, said, id=said["operationId"])
    for path, methods in DOCUMENT["paths"].items()
    for method, said in methods.items()
]
_CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def served(app: Litestar) -> set[tuple[str, str]]:
    return {
        (method, route.path.replace(":str", ""))
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method != "OPTIONS"
    }


async def test_every_route_that_is_served_is_in_the_document(api_setup: ApiFixture, admin: ApiCaller) -> None:
    found = (await admin.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}

    assert described == served(create_app(api_setup.services, on_unexpected_error=api_setup.unhandled_errors.append))


#: Every endpoint of the specification that is served on this port; metrics have a port of their own.
_SPECIFIED = """
    POST /v1/jobs
    GET /v1/jobs
    GET /v1/jobs/{name}
    PUT /v1/jobs/{name}
    DELETE /v1/jobs/{name}
    POST /v1/jobs/{name}/trigger
    POST /v1/jobs/{name}/pause
    POST /v1/jobs/{name}/resume
    GET /v1/executions
    GET /v1/executions/{id}
    POST /v1/executions/{id}/cancel
    GET /v1/dead-letters
    POST /v1/dead-letters/{id}/replay
    POST /v1/dead-letters/replay-all
    PATCH /v1/dead-letters/{id}
    GET /v1/schedule
    GET /v1/health
"""


@pytest.mark.req("H-12")
def test_every_endpoint_of_the_specification_is_served() -> None:
    described = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}

    assert {line.strip() for line in _SPECIFIED.strip().splitlines()} <= described
    assert ServerSettings().port == 8062


async def test_the_document_needs_no_token(api_setup: ApiFixture) -> None:
    async with api_setup.caller(None) as somebody:
        found = await somebody.get("/openapi.json")

    assert (found.status_code, found.json()["openapi"]) == (200, "3.1.0")


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_every_operation_says_what_it_does(path: str, method: str, said: dict[str, Any]) -> None:
    del path, method
    assert said["summary"].endswith(".")
    assert said["responses"]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": DOCUMENT["components"]}


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_every_example_is_one(path: str, method: str, said: dict[str, Any]) -> None:
    del path, method
    contents = [one.get("content", {}) for one in (*said["responses"].values(), said.get("requestBody", {}))]
    for content in contents:
        for kind in content.values():
            for example in kind.get("examples", {}).values():
                Draft202012Validator(resolved(kind["schema"])).validate(example["value"])


@pytest.mark.parametrize(("path", "method", "said"), OPERATIONS)
def test_every_answer_has_an_example(path: str, method: str, said: dict[str, Any]) -> None:
    del path, method
    answers = [one["content"] for status, one in said["responses"].items() if status < "3" and "content" in one]
    reported = [one["application/json"] for one in answers if "application/json" in one]

    assert all(one["examples"] for one in reported)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        pytest.param(path, said["requestBody"]["content"]["application/json"], id=said["operationId"])
        for path, methods in DOCUMENT["paths"].items()
        for said in methods.values()
        # This server has no tools for models.
        if "requestBody" in said and "{" not in path and path != "/mcp"
    ],
)
async def test_every_example_of_a_request_is_taken(admin: ApiCaller, path: str, said: dict[str, Any]) -> None:
    await admin.post("/v1/workflows", {"workflow_id": "etl", "steps": [{"step": "a", "function": "f"}]})
    await admin.post("/v1/schedules/upsert", {"schedule_id": "nightly", "workflow_id": "etl", "schedule": "@daily"})
    await admin.post("/v1/policy/shadow", {"body": "default_decision: deny"})
    await admin.post("/v1/jobs", {"name": "publish", "command": "git tag v1"})

    done = await admin.post(path, said["examples"]["usual"]["value"])

    assert done.status_code < 300, done.text


@pytest.fixture(scope="module")
def prepared() -> ApiFixture:
    api_setup = ApiFixture()

    async def prepare() -> None:
        async with api_setup.caller("admin") as admin:
            await admin.post("/v1/jobs", JOB)

    asyncio.run(prepare())
    return api_setup


#: Bodies with whole jobs. The generator cannot follow the rules between their fields; without these rules it generates
#: valid and invalid bodies.
_WITH_JOBS = {"register_job", "update_job", "apply_jobs", "plan_jobs", "simulate_jobs"}
_BETWEEN_FIELDS = ("allOf", "dependentRequired")
_WHOLE = {
    said["operationId"]: Draft202012Validator(said["requestBody"]["content"]["application/json"]["schema"])
    for methods in DOCUMENT["paths"].values()
    for said in methods.values()
    if said["operationId"] in _WITH_JOBS
}


def _loosened(said: Any) -> Any:  # noqa: ANN401 - as varied as a schema is
    """The schema of a body without rules between its fields."""
    if isinstance(said, dict):
        return {key: _loosened(value) for key, value in said.items() if key not in _BETWEEN_FIELDS}
    return [_loosened(one) for one in said] if isinstance(said, list) else said


class Generation(NamedTuple):
    """The requests that are generated for a route."""

    #: Every boundary value, or only random ones.
    boundaries: bool
    #: Also in steps those fields that a job has, too.
    shared_fields_of_steps: bool = True


def _without_shared_fields_of_steps(job: dict[str, Any]) -> dict[str, Any]:
    """The schema of a job whose steps have a function, and those fields that the job itself has not."""
    graph, shared = job["properties"]["dag"], job["properties"].keys() - {"function"}
    own = {name: said for name, said in graph["items"]["properties"].items() if name not in shared}
    reduced = {**graph, "items": {**graph["items"], "properties": own}}
    return {**job, "properties": {**job["properties"], "dag": reduced}}


def schema_of(route: ApiRoute, api_setup: ApiFixture, generation: Generation) -> schemathesis.BaseSchema:
    found = document([route])
    for methods in found["paths"].values():
        for said in methods.values():
            if said["operationId"] in _WITH_JOBS:
                said["requestBody"] = body = _loosened(said["requestBody"])
                content = body["content"]["application/json"]
                if not generation.shared_fields_of_steps:
                    content["schema"] = _without_shared_fields_of_steps(content["schema"])
    schema = schemathesis.openapi.from_dict(found)
    schema.app = cast("Any", api_setup.app)
    return schema


GENERATED = settings(
    max_examples=10 * EFFORT,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _cases(route: ApiRoute) -> list[Any]:
    """How requests are generated for a route, in every run and in thorough ones.

    Five routes take whole jobs, and a job has thousands of boundary values; one route takes the different ones in every
    run.
    """
    all_values = Generation(boundaries=True)
    if route.name not in _WITH_JOBS:
        return [pytest.param(route, all_values, id=f"{route.name}-boundaries")]
    different, chance = Generation(boundaries=True, shared_fields_of_steps=False), Generation(boundaries=False)
    return [
        pytest.param(route, different, id=f"{route.name}-different boundaries")
        if route.name == "register_job"
        else pytest.param(route, chance, id=f"{route.name}-random"),
        pytest.param(route, all_values, id=f"{route.name}-boundaries", marks=pytest.mark.thorough),
    ]


GENERATED_ROUTES = [case for route in ROUTES if route.name != "follow_changes" for case in _cases(route)]


# `schema.parametrize` generates all requests when tests are collected: in every process, and when other tests run too.
@pytest.mark.parametrize(("route", "generation"), GENERATED_ROUTES)
def test_no_request_fails_and_none_is_answered_otherwise_than_described(
    prepared: ApiFixture, route: ApiRoute, generation: Generation
) -> None:
    def answered_as_described(case: Any) -> None:  # noqa: ANN401
        prepared.unhandled_errors.clear()

        answer = case.call(headers={"Authorization": "Bearer admin"})

        case.validate_response(answer, checks=[CHECKS.get_one(name) for name in _CHECKS])
        assert prepared.unhandled_errors == []
        if route.name in _WITH_JOBS and answer.status_code < 300:
            # An accepted body follows the rules that were hidden from the generator.
            assert list(_WHOLE[route.name].iter_errors(case.body)) == []

    schema = schema_of(route, prepared, generation)
    schema.config.phases.coverage.enabled = generation.boundaries
    found = get_all_tests(schema=schema, test_func=answered_as_described, settings=GENERATED, given_kwargs=None)
    tests = [one.ok()[1] for one in found if isinstance(one, Ok)]

    assert len(tests) == 1
    tests[0]()
