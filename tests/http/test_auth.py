"""Access: every declared route refuses clients without the right, and guessing ends soon."""

import re

import pytest
import trio
from starlette.responses import Response

from cortex.domain.errors import UnavailableError
from cortex.domain.token import IMPLIED, TOKEN_PREFIX, Role, digest_of_token, may, token_text
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import MISSES_MAX, Authenticator
from cortex.http.framework.dispatch import application
from cortex.http.framework.route import PUBLIC, Method, Route, SignIn, answer
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes import ALL
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Database, Profile
from cortex.store import tokens
from tests.support.counting import CountingPort
from tests.support.eventually import eventually, eventually_async
from tests.support.people import user
from tests.support.records.rows import move_clock, seeded_random
from tests.support.servers.http_server import Answered, HttpServer, http_server
from tests.support.servers.postgres import sql

WRONG = TOKEN_PREFIX + "0" * 64
BY_TOKEN = [r for r in ALL if r.role is not PUBLIC and r.sign_in is SignIn.BEARER]
BY_COOKIE = [r for r in ALL if r.role is not PUBLIC and r.sign_in is SignIn.COOKIE]


def somewhere(path: str) -> str:
    """A path with its parameters filled in by ids that nothing has."""
    return re.sub(r"{\w+}", "01a1f84b-0000-7000-8000-000000000000", path)


def refused(output: Answered, status: int, code: str) -> bool:
    """Return whether this is such a problem document."""
    assert output.headers["content-type"] == "application/problem+json"
    assert (output.status, output.json["code"]) == (status, code), output
    assert set(output.json) >= {"type", "title", "status", "detail", "code"}
    return True


def test_every_route_without_a_token_asks_for_one(server: HttpServer) -> None:
    for route in BY_TOKEN:
        output = server.ask(route.method.value, somewhere(route.path))
        assert refused(output, 401, "unauthenticated"), route
        assert output.headers["www-authenticate"] == 'Bearer realm="cortex"'


def is_about_one_job(route: Route) -> bool:
    """Whether a submitter reads it of the jobs that they submitted."""
    is_reading = route.method is Method.GET and route.role is Role.VIEWER
    return is_reading and route.tenancy is Tenancy.JOB


def test_every_route_refuses_a_token_without_its_role(server: HttpServer) -> None:
    held = {role: server.token(role.value) for role in Role}
    for route in BY_TOKEN:
        for role, token in held.items():
            output = server.ask(route.method.value, somewhere(route.path), token=token)
            if isinstance(route.role, Role) and may({role}, route.role):
                assert output.status not in {401, 403}, (route.path, role)
            elif role is Role.SUBMITTER and is_about_one_job(route):
                assert refused(output, 404, "not_found"), route.path
            else:
                assert refused(output, 403, "forbidden"), (route.path, role)


def test_each_role_opens_its_routes(database: str) -> None:
    async def act(_: CheckedRequest[None, None], __: Api) -> Response:
        return answer({})

    routes = [
        Route(
            method=Method.POST,
            path=f"/v1/{needed}",
            handle=act,
            role=needed,
            summary="x",
            tenancy=Tenancy.SHARED,
        )
        for needed in Role
    ]
    with http_server(database, routes=routes) as server:
        tokens_ = {role: server.token(role) for role in Role}
        both = server.token("approver", "operator")
        for needed in Role:
            opened = {
                role
                for role, token in tokens_.items()
                if server.post(f"/v1/{needed}", token=token).status == 200
            }
            assert opened == {role for role in Role if needed in IMPLIED[role]}, needed
            is_open = server.post(f"/v1/{needed}", token=both).status == 200
            assert is_open == (needed is not Role.ADMIN), needed


def test_every_page_sends_strangers_to_sign_in_and_refuses_their_forms(
    server: HttpServer,
) -> None:
    for route in BY_COOKIE:
        output = server.ask(route.method.value, somewhere(route.path))
        if route.method is Method.GET:
            assert (output.status, output.headers["location"][:9]) == (303, "/sign-in?"), route
        else:
            assert output.status in {401, 403}, route


NO_TOKENS = (
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {WRONG}",
    f"Basic {WRONG}",
    f"Bearer {WRONG}0",
    f"Bearer {WRONG[:-1]}",
    "Bearer ' OR 1=1 --",
    "Bearer " + "x" * 8000,
    f"Bearer {WRONG.upper()}",
)


def test_malformed_token_is_unauthenticated(server: HttpServer) -> None:
    for header in NO_TOKENS:
        output = server.get("/v1/pods", headers={"Authorization": header})
        assert refused(output, 401, "unauthenticated"), header


def test_revoked_token_is_unauthenticated(server: HttpServer) -> None:
    token = server.token("admin")
    assert server.get("/v1/pods", token=token).status == 200

    async def revoke(db: Database) -> None:
        (row,) = await tokens.page(db)
        await tokens.revoke(db, row.id, by=user("li"), reason="lost")

    server.store(revoke)
    # What only reads may be let in for a moment more.
    eventually(lambda: server.get("/v1/pods", token=token).status == 401, what="it is refused")
    assert "was revoked" in server.get("/v1/pods", token=token).json["detail"]


def test_expired_token_is_unauthenticated(server: HttpServer, database: str) -> None:
    token = server.token("viewer", expires_s=60)
    assert server.get("/v1/pods", token=token).status == 200
    move_clock(database, 61)
    eventually(lambda: server.get("/v1/pods", token=token).status == 401, what="it is refused")
    assert "has expired" in server.get("/v1/pods", token=token).json["detail"]


def test_writing_route_never_trusts_a_cached_token(database: str) -> None:
    async def act(_: CheckedRequest[None, None], __: Api) -> Response:
        return answer({})

    route = Route(
        method=Method.POST,
        path="/v1/act",
        handle=act,
        role=Role.OPERATOR,
        summary="Act.",
        tenancy=Tenancy.SHARED,
    )
    with http_server(database, routes=[*ALL, route]) as server:
        token = server.token("operator")
        assert server.post("/v1/act", token=token).status == 200
        assert server.get("/v1/pods", token=token).status == 200
        sql(database, "UPDATE cortex.api_token SET revoked_at = now(), revoked_by = 'li'")
        assert server.post("/v1/act", token=token).status == 401


def test_guessing_is_locked_out_and_neighbours_with_a_good_token_are_not(
    server: HttpServer,
) -> None:
    token = server.token("viewer")
    assert server.get("/v1/pods", token=token).status == 200
    late = server.token("viewer", name="li")
    for n in range(MISSES_MAX):
        guess = token_text(n.to_bytes(32, "big"))
        assert server.get("/v1/pods", token=guess).status == 401
    output = server.get("/v1/pods", token=WRONG)
    assert refused(output, 429, "rate_limited")
    assert 0 < int(output.headers["retry-after"]) <= 60
    # A right guess looks the same as a wrong one now.
    assert server.get("/v1/pods", token=late).status == 429
    assert server.get("/v1/pods", token=token).status == 200
    assert server.get("/healthz").status == 200


def test_revoked_token_is_no_guess(server: HttpServer, database: str) -> None:
    old = server.token("viewer")
    sql(database, "UPDATE cortex.api_token SET revoked_at = cortex.now(), revoked_by = 'li'")
    for _ in range(MISSES_MAX):
        assert server.get("/v1/pods", token=old).status == 401
    assert server.get("/v1/pods", token=server.token("viewer", name="li")).status == 200


async def test_token_checks_fail_together_while_the_database_is_silent(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.framework.auth.LOOK_WAIT_S", 0.1)
    header = f"Bearer {token_text(bytes(32))}"
    refused_: list[UnavailableError] = []
    async with open_port(Profile(dsn=database), rng=seeded_random()) as plain:
        port = CountingPort(plain)
        port.is_silent = True
        auth = Authenticator(port)

        async def ask() -> None:
            try:
                await auth.by_token(header, address="127.0.0.1", is_read_only=True)
            except UnavailableError as error:
                refused_.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
            await eventually_async(lambda: len(refused_) == 9, what="all but the first are refused")
            assert port.counts["used"] == 1
            nursery.cancel_scope.cancel()
    assert not auth._looking


def test_a_missing_token_is_no_guess(server: HttpServer) -> None:
    for _ in range(2 * MISSES_MAX):
        assert server.get("/v1/pods").status == 401


def test_token_is_stored_only_as_a_digest(server: HttpServer, database: str) -> None:
    token = server.token("admin")
    server.get("/v1/pods", token=token)
    (row,) = sql(database, "SELECT digest, t::text AS whole FROM cortex.api_token t")
    assert row["digest"] == digest_of_token(token)
    facts = str(sql(database, "SELECT data::text, source FROM cortex.fact"))
    for part in (token, token.removeprefix(TOKEN_PREFIX)):
        assert part not in row["whole"]
        assert part not in facts


def test_a_route_without_a_role_is_refused_at_start_up() -> None:
    async def handle(_: CheckedRequest[None, None], __: Api) -> Response:
        return answer({})

    undeclared: object = None
    for role in (undeclared, "admin"):
        route = Route(
            method=Method.GET,
            path="/x",
            handle=handle,
            role=role,  # type: ignore[arg-type]
            tenancy=Tenancy.SHARED,
            summary="x",
        )
        with pytest.raises(TypeError, match="GET /x declares no role"):
            application([route], None)  # type: ignore[arg-type]
