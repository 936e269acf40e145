"""People who sign in on a page: their cookie is as good as their token, and only for pages."""

from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
from starlette.responses import Response

from cortex.domain.token import TOKEN_PREFIX, Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME, MISSES_MAX
from cortex.http.framework.route import PUBLIC, Method, Route, SignIn, answer
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes import ALL
from cortex.http.sessions import drop_cookie, set_cookie, sign_in, sign_out
from cortex.postgres.database import Database
from cortex.store import tokens
from tests.support.people import user
from tests.support.servers.http_server import Answered, HttpServer, http_server
from tests.support.servers.postgres import sql

ORIGIN = {"Origin": "http://cortex.example:8080", "Host": "cortex.example:8080"}


async def enter(asked: CheckedRequest[None, bytes], api: Api) -> Response:
    token = parse_qs(asked.body.decode())["token"][0]
    response = answer({})
    set_cookie(response, await sign_in(api, token, address=asked.address), is_secure=False)
    return response


async def leave(asked: CheckedRequest[None, bytes], api: Api) -> Response:
    await sign_out(api, asked.request)
    response = answer({})
    drop_cookie(response)
    return response


async def show(asked: CheckedRequest[None, None], _: Api) -> Response:
    return answer({"who": asked.principal.name})


ROUTES = [
    *ALL,
    Route(
        method=Method.POST, path="/t/in", handle=enter, role=PUBLIC, summary="x",
        tenancy=Tenancy.SHARED, raw_body=True,
    ),
    *(
        Route(
            method=method, path=path, handle=handle, role=Role.APPROVER, summary="x",
            tenancy=Tenancy.SHARED, sign_in=SignIn.COOKIE, raw_body=method is Method.POST,
        )
        for method, path, handle in (
            (Method.GET, "/t/page", show),
            (Method.POST, "/t/page", show),
            (Method.POST, "/t/out", leave),
        )
    ),
]  # fmt: skip


@pytest.fixture
def server(database: str) -> Iterator[HttpServer]:
    with http_server(database, routes=ROUTES) as running:
        yield running


def signed_in(server: HttpServer, token: str) -> dict[str, str]:
    """The header that a browser sends after signing in."""
    output = server.post("/t/in", body=f"token={token}".encode())
    assert output.status == 200, output
    cookie = output.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert token not in cookie
    return {"Cookie": cookie.partition(";")[0]}


def test_signed_in_person_is_known_on_pages(server: HttpServer) -> None:
    cookie = signed_in(server, server.token("approver", name="ana"))
    assert server.get("/t/page", headers=cookie).json == {"who": "ana"}
    assert server.post("/t/page", headers=cookie | ORIGIN).json == {"who": "ana"}
    assert server.post("/t/out", headers=cookie | ORIGIN).status == 200
    assert server.get("/t/page", headers=cookie).status == 303


def test_a_cookie_opens_no_route_of_the_api(server: HttpServer) -> None:
    cookie = signed_in(server, server.token("admin"))
    assert server.get("/v1/pods", headers=cookie).status == 401


def test_a_token_opens_no_page(server: HttpServer) -> None:
    assert server.get("/t/page", token=server.token("admin")).status == 303


def test_stranger_is_sent_to_sign_in_with_the_path_only(server: HttpServer) -> None:
    output = server.get("/t/page?secret=1")
    assert (output.status, output.headers["location"]) == (303, "/sign-in?next=/t/page")
    assert server.post("/t/page", headers=ORIGIN).status == 401


FOREIGN: list[dict[str, str]] = [
    {},
    {"Origin": "null"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://cortex.example:8081"},
    {"Origin": "http://cortex.example:8080.evil.example"},
    {"Sec-Fetch-Site": "cross-site"} | ORIGIN,
    {"Sec-Fetch-Site": "same-site"} | ORIGIN,
    {"Sec-Fetch-Site": "none"} | ORIGIN,
]


def test_cross_site_request_is_refused(server: HttpServer) -> None:
    cookie = signed_in(server, server.token("approver"))
    for headers in FOREIGN:
        sent = {"Host": ORIGIN["Host"]} | cookie | headers
        output = server.post("/t/page", headers=sent)
        assert (output.status, output.json["code"]) == (403, "forbidden"), ascii(headers)


def test_the_role_counts_on_pages_too(server: HttpServer) -> None:
    cookie = signed_in(server, server.token("operator"))
    assert server.get("/t/page", headers=cookie).status == 403


def test_a_session_ends_at_once_with_its_token(server: HttpServer) -> None:
    cookie = signed_in(server, server.token("approver"))

    async def revoke(db: Database) -> None:
        (row,) = await tokens.page(db)
        await tokens.revoke(db, row.id, by=user("li"), reason="")

    server.store(revoke)
    assert server.get("/t/page", headers=cookie).status == 303


def test_signing_in_with_guesses_is_locked_out(server: HttpServer) -> None:
    def guess(number: int) -> Answered:
        return server.post("/t/in", body=f"token={TOKEN_PREFIX}{number:064x}".encode())

    assert [guess(n).status for n in range(MISSES_MAX)] == [401] * MISSES_MAX
    assert guess(99).status == 429
    late = server.token("approver")
    assert server.post("/t/in", body=f"token={late}".encode()).status == 429


def test_unknown_cookie_is_redirected_to_sign_in(server: HttpServer) -> None:
    for value in ["x", "0" * 64, "' OR 1=1 --", ""]:
        headers = {"Cookie": f"{COOKIE_NAME}={value}"}
        assert server.get("/t/page", headers=headers).status == 303, ascii(value)


def test_cookie_is_stored_only_as_a_digest(server: HttpServer, database: str) -> None:
    cookie = signed_in(server, server.token("approver"))["Cookie"].partition("=")[2]
    rows = str(sql(database, "SELECT s::text FROM cortex.api_session s"))
    facts = str(sql(database, "SELECT f::text FROM cortex.fact f"))
    assert cookie not in rows + facts
