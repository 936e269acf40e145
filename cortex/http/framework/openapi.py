"""The OpenAPI 3.1 document, made from the declared routes and their shapes."""

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import attrs
import orjson
from starlette.responses import Response

import cortex
from cortex.durable.json_schema import Schema
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.problem import MEDIA_TYPE, Problem
from cortex.http.framework.route import PUBLIC, Method, Route, SignIn
from cortex.http.framework.shape import fields_of, query_schema, schema_of
from cortex.http.framework.tenancy import Tenancy

PATH: Final = "/v1/openapi.json"
_SECURITY: Final = {
    SignIn.BEARER: {"type": "http", "scheme": "bearer", "description": "cortex tokens create"},
    SignIn.COOKIE: {"type": "apiKey", "in": "cookie", "name": "cortex_session"},
}
_MEANINGS: Final = {
    400: "the request is malformed",
    401: "the caller is not authenticated",
    403: "the caller may not do this",
    404: "the named resource does not exist",
    405: "the path does not support this method",
    408: "the request took too long to arrive",
    409: "another request came first, or the state does not allow this",
    413: "the body is too large",
    415: "the body is not JSON",
    422: "the body, or its effect, is not valid",
    429: "too many requests; see Retry-After",
    500: "an internal error",
    503: "temporarily unavailable; see Retry-After",
    504: "the wait timed out",
}


def route(routes: Sequence[Route]) -> Route:
    """Return the route that serves the document of these routes and itself."""

    @cache
    def text() -> bytes:
        return orjson.dumps(document([*routes, itself]))

    async def handle(_: CheckedRequest[None, None], __: Api) -> Response:
        return Response(text(), media_type="application/json")

    itself = Route(
        method=Method.GET,
        path=PATH,
        handle=handle,
        role=PUBLIC,
        tenancy=Tenancy.SHARED,
        summary="Show this document.",
        answers={200: dict},
    )
    return itself


def document(routes: Sequence[Route]) -> Schema:
    """Return the document. Raises `TypeError` for a shape without a JSON Schema."""
    components: dict[str, Schema] = {}
    paths: dict[str, Any] = {}
    for each in (route for route in routes if route.is_documented):
        paths.setdefault(each.path, {})[each.method.value.lower()] = _operation(each, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cortex",
            "version": cortex.__version__,
            "description": "Durable jobs and agents. New keys may appear in any response.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                name: {key: value for key, value in schema.items() if key != "x-shape"}
                for name, schema in sorted(components.items())
            },
            "securitySchemes": {kind.value: scheme for kind, scheme in _SECURITY.items()},
        },
    }


def _operation(route: Route, components: dict[str, Schema]) -> Schema:
    made: Schema = {
        "operationId": f"{route.handle.__name__}",
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": _parameters(route, components),
        "responses": _responses(route, components),
        "security": [] if route.role is PUBLIC else [{route.sign_in.value: []}],
    }
    if route.role is not PUBLIC:
        made["description"] = f"Requires the role {route.role.value}."
    if route.body is not None:
        fields = fields_of(route.body, components)
        made["requestBody"] = {
            "required": any(each.is_required for each in fields.values()),
            "content": {"application/json": {"schema": _closed(route.body, components)}},
        }
    elif route.raw_body:
        made["requestBody"] = {"content": {"application/x-www-form-urlencoded": {}}}
    return made


def _tag(route: Route) -> str:
    parts = [part for part in route.path.split("/") if part]
    return parts[1] if parts[:1] == ["v1"] and len(parts) > 1 else "pod"


def _parameters(route: Route, components: dict[str, Schema]) -> list[Schema]:
    made = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": route.params.get(name, {"type": "string"}),
        }
        for name in route.param_names
    ]
    if route.query is not None:
        hints = get_type_hints(route.query)
        for name, field in fields_of(route.query, components).items():
            plain = {key: value for key, value in field.schema.items() if key != "anyOf"}
            given = schema_of(query_schema(hints[name]), components) | plain
            made.append(
                {"name": name, "in": "query", "required": field.is_required, "schema": given}
            )
    if route.takes_key:
        key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
        made.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    return made


def _responses(route: Route, components: dict[str, Schema]) -> Schema:
    made: Schema = {}
    for status, shape in route.answers.items():
        fields: Schema = {"description": route.summary}
        if shape is not None:
            media = MEDIA_TYPE if issubclass(shape, Problem) else "application/json"
            fields["content"] = {media: {"schema": schema_of(shape, components)}}
        elif route.media != "application/json" and status != HTTPStatus.NO_CONTENT:
            fields["content"] = {route.media: {}}
        made[str(status)] = fields
    problem = schema_of(Problem, components)
    for status in _refusals(route):
        made.setdefault(str(status), _problem(_MEANINGS.get(status, "a problem"), problem))
    return made


def _refusals(route: Route) -> list[int]:
    found = {429, 500, *route.refuses}
    if route.role is not PUBLIC:
        found |= {401, 403, 503}
    if route.query is not None or route.takes_key:
        found.add(400)
    if route.takes_key:
        found |= {409, 422}
    if route.body is not None:
        found |= {400, 408, 413, 415, 422}
    if route.bound_s is not None:
        found.add(504)
    return sorted(found)


def _problem(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


def _closed(shape: type, components: dict[str, Schema]) -> Schema:
    """Return the schema of a request body, which refuses undeclared keys, unlike responses."""
    reference = schema_of(shape, components)
    for each in _within(shape):
        schema_of(each, components)
        components[each.__name__]["additionalProperties"] = False
    return reference


def _within(hint: Any) -> list[type]:
    """Return the shapes within a type."""
    members = getattr(hint, "__args__", ())
    found = [shape for member in members for shape in _within(member)]
    if isinstance(hint, type) and attrs.has(hint):
        inner = [shape for each in get_type_hints(hint).values() for shape in _within(each)]
        return [hint, *inner, *found]
    return found
