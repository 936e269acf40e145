"""Route declarations, used for dispatch, rights, checks and the OpenAPI document."""

import re
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.durable.json_schema import Schema
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.body import SMALL_BYTES
from cortex.http.framework.tenancy import Tenancy
from cortex.view.verbs import Verb

HANDLER_BOUND_S: Final = 60.0
"""Longer than any database call, which has a bound of its own."""
UUID_PARAM: Final[Schema] = {"type": "string", "format": "uuid"}
NUMBER_PARAM: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}

_PARAM: Final = re.compile(r"{(\w+)}")


class Public(Enum):
    """Marks a route as open to everyone."""

    PUBLIC = "public"


PUBLIC: Final = Public.PUBLIC


class Method(StrEnum):
    """Supported methods; HEAD follows GET, OPTIONS lists them."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    DELETE = "DELETE"


class SignIn(StrEnum):
    """How callers authenticate."""

    BEARER = "bearer"
    """`Authorization: Bearer TOKEN`; cookies are ignored, so pages cannot forge requests."""
    COOKIE = "cookie"
    """A page's session; anything but GET must come from a page of the same origin."""


Handler = Callable[[CheckedRequest[Any, Any], Api], Awaitable[Response]]


@attrs.frozen(kw_only=True)
class Route:
    """One method on one path."""

    method: Method
    path: str
    """With parameters in braces: `/v1/jobs/{job_id}`."""
    handle: Handler
    role: Role | Public
    tenancy: Tenancy
    summary: str
    """One line for the OpenAPI document."""
    params: Mapping[str, Schema] = attrs.field(factory=dict)
    """JSON Schema of path parameters; the default is text.

    `UUID_PARAM` gives a `UUID`, `NUMBER_PARAM` an `int`.
    """
    query: type | None = None
    """The attrs class of the query string; see `cortex.http.framework.shape`."""
    body: type | None = None
    """The attrs class of the JSON body."""
    raw_body: bool = False
    """The handler gets the body as bytes: a form."""
    body_max: int = SMALL_BYTES
    """Maximum bytes of the body; larger ones are refused before they are read."""
    admit: Callable[[str, Api], None] | None = None
    """Takes an address, and may refuse it before the body is read."""
    answers: Mapping[int, type | None] = attrs.field(factory=lambda: {200: None})
    """By status: the attrs class of the JSON response; None for other media types or no body."""
    media: str = "application/json"
    """Of responses without a class: `text/event-stream`, `text/html` …"""
    refuses: tuple[int, ...] = ()
    """Problem statuses specific to this handler: 404, 409 …"""
    takes_key: bool = False
    """Whether requests may have an `Idempotency-Key`."""
    sign_in: SignIn = SignIn.BEARER
    bound_s: float | None = HANDLER_BOUND_S
    """Time limit of the handler in seconds; None for streams, which end with their reader."""

    is_documented: bool = True
    """Whether it is in the OpenAPI document; pages for people are not."""

    @property
    def param_names(self) -> tuple[str, ...]:
        """The parameters of the path, in order."""
        return tuple(_PARAM.findall(self.path))


def read(
    path: str,
    handle: Handler,
    summary: str,
    *,
    tenancy: Tenancy,
    role: Role = Role.VIEWER,
    **more: Any,
) -> Route:
    """Return a route that reads; `more` as in `Route`."""
    return Route(
        method=Method.GET,
        path=path,
        handle=handle,
        role=role,
        tenancy=tenancy,
        summary=summary,
        **more,
    )


def change(
    verb: Verb, path: str, handle: Handler, summary: str, *, tenancy: Tenancy, **more: Any
) -> Route:
    """Return a route that changes something, with the right and the key of its verb."""
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=verb.role,
        tenancy=tenancy,
        summary=summary,
        takes_key=verb.has_key,
        **more,
    )


def answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response: attrs records become objects, ids text, money numbers."""
    content = orjson.dumps(value, default=_plain, option=orjson.OPT_UTC_Z)
    return Response(content, status, headers, media_type="application/json")


def _plain(value: object) -> object:
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]
    match value:
        case UUID():  # asyncpg has its own UUID class
            return str(value)
        case Decimal():
            return float(value)
        case bytes():
            return value.hex()
        case frozenset() | set():
            return sorted(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")
