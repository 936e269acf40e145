"""Builds the application from declared routes: finds the route, authenticates, checks, answers.

Invariants: a route without a role, or with an undeclared one, is refused at start-up; no part of a
request is read before its sender is authorised.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import attrs
import trio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as PathRoute
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from cortex.domain.errors import ForbiddenError, NotFoundError, TimedOutError
from cortex.domain.idempotency import checked_key
from cortex.domain.token import Role
from cortex.durable.json_schema import Schema
from cortex.http.framework import body as bodies
from cortex.http.framework import shape
from cortex.http.framework.apart import Apart
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME, lacks
from cortex.http.framework.gate import TEMPLATE, WHO, Gate, Numbers
from cortex.http.framework.limits import Buckets, Rate
from cortex.http.framework.origin import address_of, refuse_foreign
from cortex.http.framework.principal import NOBODY, Principal
from cortex.http.framework.problem import (
    EndingError,
    MethodNotAllowedError,
    NotJsonError,
    RateLimitedError,
    UnauthenticatedError,
)
from cortex.http.framework.route import PUBLIC, Method, Public, Route, SignIn
from cortex.http.framework.tenancy import (
    PARAMS,
    Tenancy,
    is_submitter,
    refuse_for_tenant,
    require_own,
    require_submitted,
)

SIGN_IN_PATH: Final = "/sign-in"
ADDRESS_RATE: Final = Rate(burst=4000, per_s=400)
TOKEN_RATE: Final = Rate(burst=2000, per_s=200)
"""A thousand clients may wait for results at once with one token; many share a proxy's address."""


def application(
    routes: Sequence[Route],
    api: Api,
    *,
    address_rate: Rate = ADDRESS_RATE,
    token_rate: Rate = TOKEN_RATE,
) -> ASGIApp:
    """Return the ASGI application of these routes. Raises `TypeError` for one without a role."""
    by_path: defaultdict[str, list[Route]] = defaultdict(list)
    for route in routes:
        _check(route)
        by_path[route.path].append(route)
    buckets: Buckets[UUID] = Buckets(token_rate)
    rooms = _Rooms()
    resources = [
        PathRoute(path, _Resource(declared, api, buckets, rooms))
        for path, declared in by_path.items()
    ]
    router = Router(resources, redirect_slashes=False, default=_nowhere)
    number = Numbers(f"{api.chance.rng.getrandbits(40):010x}")
    return Gate(router, pod=api.pod, rate=address_rate, number=number)


def _check(route: Route) -> None:
    """Refuse a declaration that is contradictory or would admit unintended callers."""
    where = f"{route.method} {route.path}"
    if not isinstance(route.role, Role | Public):
        raise TypeError(f"{where} declares no role: a Role, or PUBLIC")
    if not isinstance(route.tenancy, Tenancy):
        raise TypeError(f"{where} declares no tenancy")
    named = PARAMS.get(route.tenancy)
    if named is not None and named[0] not in route.param_names:
        raise TypeError(f"{where} has no parameter {named[0]}, of which its tenancy is")
    if unknown := set(route.params) - set(route.param_names):
        raise TypeError(f"{where} has no parameter {unknown.pop()}")
    if route.body is not None and route.method is Method.GET:
        raise TypeError(f"{where} has a body")


async def _nowhere(_: Scope, __: Receive, ___: Send) -> None:
    raise NotFoundError("there is nothing at this path", hint="see /v1/openapi.json for the paths")


@attrs.frozen
class _Rooms:
    """Body memory; anonymous senders have a share of their own and exclude no one else."""

    of_known: bodies.Room = attrs.field(factory=bodies.Room)
    of_strangers: bodies.Room = attrs.field(factory=bodies.Room)


class _Resource:
    """All methods of one path."""

    def __init__(
        self, routes: Sequence[Route], api: Api, buckets: Buckets[UUID], rooms: _Rooms
    ) -> None:
        self._routes: dict[str, Route] = {}
        for route in routes:
            if route.method.value in self._routes:
                raise TypeError(f"{route.method} {route.path} is declared twice")
            self._routes[route.method.value] = route
        self._path = routes[0].path
        self._api = api
        self._buckets = buckets
        self._rooms = rooms
        methods = [*self._routes, "OPTIONS", *(["HEAD"] if "GET" in self._routes else [])]
        self._allow = {"Allow": ", ".join(sorted(methods))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        scope[TEMPLATE] = self._path
        if method == "OPTIONS":
            response = Response(status_code=204, headers=self._allow)
        else:
            route = self._routes.get("GET" if method == "HEAD" else method)
            if route is None:
                raise MethodNotAllowedError(
                    f"this path takes {self._allow['Allow']}", headers=self._allow
                )
            await self._serve(route, Request(scope, receive), send)
            return
        await response(scope, receive, send)

    async def _serve(self, route: Route, request: Request, send: Send) -> None:
        """Answer; what only reads ends with the caller's token."""
        address = address_of(request.scope)
        principal = await self._principal(route, request, address)
        if principal is None:
            response = _to_sign_in(request)
            await response(request.scope, request.receive, send)
            return
        is_watched = route.method is Method.GET
        with self._api.live.read(principal if is_watched else NOBODY):
            response = await self._answer(route, request, principal, address)
            await response(request.scope, request.receive, send)

    async def _answer(
        self, route: Route, request: Request, principal: Principal, address: str
    ) -> Response:
        request.scope[WHO] = principal.name
        self._check_right(route, principal)
        refuse_for_tenant(route.tenancy, principal)
        if self._api.pod.draining.is_set() and route.method is not Method.GET:
            raise EndingError
        if route.admit is not None:
            route.admit(address, self._api)
        if request.method == "HEAD" and route.bound_s is None:
            return Response(media_type=route.media)
        room = self._rooms.of_strangers if principal is NOBODY else self._rooms.of_known
        with room.entered() as share:
            requested: CheckedRequest[Any, Any] = CheckedRequest(
                query=_query(route, request),
                body=await _body(route, request, share, self._api.apart),
                path=_path(route, request),
                principal=principal,
                address=address,
                key=_key(route, request),
                request=request,
                size=share.size,
            )
            if route.bound_s is None:
                return await self._handled(route, requested)
            with trio.move_on_after(route.bound_s):
                return await self._handled(route, requested)
        raise TimedOutError(f"no response within {route.bound_s:g} s")

    async def _handled(self, route: Route, requested: CheckedRequest[Any, Any]) -> Response:
        """Answer about records of the caller's tenant only."""
        principal = requested.principal
        if (named := PARAMS.get(route.tenancy)) is not None:
            name, kind = named
            await require_own(self._api.port, principal, kind, [requested.path[name]])
            if reads_own(route, principal):
                await require_submitted(self._api.port, principal, requested.path[name])
        response = await route.handle(requested, self._api)
        is_confined = route.tenancy is not Tenancy.FILTERED or requested.tenant_use.is_read
        if principal.tenant is not None and not is_confined:
            raise AssertionError(f"{route.method} {route.path} did not keep to the tenant")
        return response

    async def _principal(self, route: Route, request: Request, address: str) -> Principal | None:
        """Return the caller; None for a reader of pages who has to sign in first."""
        if route.role is PUBLIC:
            return NOBODY
        auth = self._api.auth
        is_read_only = route.method is Method.GET
        if route.sign_in is SignIn.BEARER:
            header = request.headers.get("authorization")
            return await auth.by_token(header, address=address, is_read_only=is_read_only)
        if not is_read_only:
            refuse_foreign(request)
        principal = await auth.by_cookie(request.cookies.get(COOKIE_NAME), address=address)
        if principal is None and not is_read_only:
            raise UnauthenticatedError("not signed in", hint=f"sign in at {SIGN_IN_PATH}")
        return principal

    def _check_right(self, route: Route, principal: Principal) -> None:
        if (
            isinstance(route.role, Role)
            and not principal.may(route.role)
            and not reads_own(route, principal)
        ):
            raise ForbiddenError(
                lacks(principal, route.role), hint="ask an admin for a token that has it"
            )
        if principal.token_id is not None:
            wait_s = self._buckets.take(principal.token_id)
            if wait_s > 0:
                raise RateLimitedError("too many requests with this token", wait_s=wait_s)


def reads_own(route: Route, principal: Principal) -> bool:
    """Whether the route reads one job, for a caller who may read those that they submitted."""
    is_reading = route.method is Method.GET and route.role is Role.VIEWER
    return is_reading and route.tenancy is Tenancy.JOB and is_submitter(principal)


def _to_sign_in(request: Request) -> Response:
    return RedirectResponse(f"{SIGN_IN_PATH}?next={quote(request.url.path)}", status_code=303)


def _query(route: Route, request: Request) -> Any:
    if route.query is None:
        return None
    return shape.from_query(request.query_params.multi_items(), route.query)


async def _body(route: Route, request: Request, share: bodies.Share, apart: Apart) -> Any:
    if route.body is None and not route.raw_body:
        return None
    promised = request.headers.get("content-length")
    raw = await bodies.read(
        request.receive, promised=promised, share=share, bytes_max=route.body_max
    )
    if route.body is None:
        return raw
    if not raw:
        return shape.from_json(b"{}", route.body)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise NotJsonError(
            f"the body is {media or 'of no known type'}, not application/json",
            hint="send `Content-Type: application/json`",
        )
    return await apart(partial(shape.from_json, raw, route.body), size=len(raw))


def _path(route: Route, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = dict(request.path_params)
    for name, schema in route.params.items():
        if schema.get("format") == "uuid":
            found[name] = _uuid(found[name])
        elif schema.get("type") == "integer":
            found[name] = _number(found[name], schema)
    return found


def _uuid(word: str) -> UUID:
    try:
        if len(word) == 36:  # noqa: PLR2004 -- with its dashes: `UUID` takes braces and more
            return UUID(word)
    except ValueError:
        pass
    raise NotFoundError(f"{word!a} is not an id")


def _number(word: str, schema: Schema) -> int:
    if re.fullmatch("[1-9][0-9]{0,18}", word):
        number = int(word)
        if schema["minimum"] <= number <= schema["maximum"]:
            return number
    raise NotFoundError(f"{word[:80]!a} is not a number")


def _key(route: Route, request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    return checked_key(key) if key is not None and route.takes_key else None
