"""The OpenAPI document, generated from the table of routes, which is also the table that serves requests."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.api.problems import MEDIA_TYPE, TITLES, Problem
from gnomon.api.route import MODEL, ApiRoute, Permission
from gnomon.version import __version__

_REF = "#/components/schemas/{name}"


def document(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the routes."""
    kinds = [route.answer for route in routes if route.answer is not None]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REF)
    answers = dict(zip(map(repr, [*kinds, Problem]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, answers)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gnomon",
            "version": __version__,
            "summary": "Predict, prove and explain every fire.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _operation(route: ApiRoute, answers: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "tags": [route.path.split("/")[2] if route.path.startswith("/v1/") else "health"],
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": _responses(route, answers),
    }
    if route.permission is Permission.EVERYBODY:
        found["security"] = []
    else:
        found["description"] = f"Roles: {', '.join(sorted(role.value for role in route.permission.value))}."
    if route.body is not None:
        content = {"application/json": {"schema": route.body.schema, "examples": _example(route.body.example)}}
        found["requestBody"] = {"required": route.body.required, "content": content}
    return found


def _in_path(route: ApiRoute) -> list[dict[str, Any]]:
    example = {"name": "report", "id": "run_1"}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            "examples": _example(example.get(name, "x")),
        }
        for name in route.names
    ]


def _in_query(route: ApiRoute) -> list[dict[str, Any]]:
    components = msgspec.json.schema(route.query)["$defs"]
    fields = components[route.query.__name__].get("properties", {})
    found = []
    for name, field in fields.items():
        schema = _without_null(_resolved(field, components))
        about = {"description": schema.pop("description")} if "description" in schema else {}
        if schema.get("default") is None:
            schema.pop("default", None)
        found.append({"name": name, "in": "query", **about, "schema": schema})
    return found


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema with references replaced by their targets."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_resolved(one, components) for one in schema["anyOf"]]}
    if "$ref" not in schema:
        return schema
    target = components[schema["$ref"].rpartition("/")[2]]
    rest = {word: value for word, value in schema.items() if word != "$ref"}
    return {"enum": target["enum"], **rest}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without the null alternative: a query parameter is given or missing."""
    rest = {word: value for word, value in schema.items() if word != "anyOf"}
    kinds = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    return {**kinds[0], **rest} if kinds else rest


def _in_headers(route: ApiRoute) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "description": header.about,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "examples": _example(header.example),
        }
        for header in (*route.headers, *((MODEL,) if route.changes else ()))
    ]


def _responses(route: ApiRoute, answers: dict[str, Any]) -> dict[str, Any]:
    found = {str(status): _success(route, about, answers) for status, about in route.success.items()}
    for status in sorted({*_common_responses(route), *route.error_statuses} - set(route.success)):
        content = {MEDIA_TYPE: {"schema": answers[repr(Problem)]}}
        found[str(status)] = {"description": f"{TITLES[status]}.", "content": content}
    return found


def _common_responses(route: ApiRoute) -> set[int]:
    """The error statuses that the route can always return."""
    found = {400, 422, 503}
    if route.permission is not Permission.EVERYBODY:
        found |= {401, 403, 429}
    if route.changes:
        # The budget of a model may be spent.
        found |= {409}
    if route.body is not None:
        found |= {413, 415}
    return found


def _success(route: ApiRoute, about: str, answers: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": about}
    if route.media_type != "application/json":
        found["content"] = {route.media_type: {"schema": {"type": "string"}}}
    elif route.answer is not None:
        content: dict[str, Any] = {"schema": answers[repr(route.answer)]}
        if route.example is not None:
            content["examples"] = _example(route.example)
        found["content"] = {"application/json": content}
    if route.has_etag:
        found["headers"] = {
            "ETag": {"schema": {"type": "string"}, "description": "Names the current revision of the job."}
        }
    return found


def _example(value: object) -> dict[str, Any]:
    return {"usual": {"value": value}}
