"""`/mcp` over HTTP, with the client of the `mcp` package."""

import http.client
import json
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from cortex.domain.clock import system_chance
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from tests.support.assistant import Assistant, Person, in_thread, serving, token_of
from tests.support.eventually import WITHIN_S
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.servers.postgres import sql

# The client of the `mcp` package leaves the generators of its streams to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def url(shared_database: str) -> Iterator[str]:
    """A server of tools on the module's database, with everything allowed."""
    ready = threading.Event()
    found: list[str] = []
    scope = trio.CancelScope()
    token: list[trio.lowlevel.TrioToken] = []

    def at(address: str) -> None:
        found.append(address)
        ready.set()

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        with scope:
            async with (
                open_port(Profile(dsn=shared_database), rng=system_chance().rng) as port,
                serving(port, "submit", "approve", "retry", "cancel") as served,
            ):
                await served.on_http("127.0.0.1", 0, ready=at)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(WITHIN_S)
    yield found[0]
    trio.from_thread.run_sync(scope.cancel, trio_token=token[0])
    thread.join(WITHIN_S)
    assert not thread.is_alive()


def connect(
    url: str, token: str, mode: str = "auto", *, person: Person | None = None
) -> AbstractContextManager[Assistant]:
    @asynccontextmanager
    async def connected() -> AsyncGenerator[Client, None]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WITHIN_S) as outside:
            transport = streamable_http_client(f"{url}/mcp", http_client=outside)
            async with Client(
                transport,
                mode=mode,
                elicitation_callback=person,  # type: ignore[arg-type]
            ) as client:
                yield client

    return in_thread(connected)


def test_a_person_confirms_a_high_risk_over_http(
    url: str, shared_database: str, askers: Askers
) -> None:
    wish = {"risk": "HIGH"}
    new, old = askers.asked(**wish), askers.asked(**wish)
    token = token_of(shared_database, "approver")
    person = Person(new.id.hex[-4:])
    with connect(url, token, person=person) as ask:
        done = ask("approve_approval", approval_id=str(new.id), digest=new.digest.hex())
    assert done.document["outcome"] == "approved"
    with connect(url, token, "legacy", person=person) as ask:
        refused = ask("approve_approval", approval_id=str(old.id), digest=old.digest.hex())
    assert "this assistant cannot ask one" in refused.error


def post(
    url: str, headers: Mapping[str, str], *, method: str = "POST", path: str = "/mcp"
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WITHIN_S)
    try:
        body = json.dumps(INITIALIZE) if method == "POST" else None
        connection.request(method, path, body=body, headers={**HEADERS, **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_many_assistants_are_served_beside_each_other(
    url: str, shared_database: str, life: Life
) -> None:
    life.type()
    wait = {"job_id": str(life.job()), "timeout_s": 600}
    ana = token_of(shared_database, "operator", name="ana")
    bo = token_of(shared_database, "viewer", name="bo", tenant="acme")
    with connect(url, ana) as first, connect(url, bo, "legacy") as second:
        with first.beside("wait_for_job", **wait):
            assert first("cancel_job", job_id=wait["job_id"]).document["status"] == "CANCELLED"
            assert "cancel_job" in first.tools()
            assert "cancel_job" not in second.tools()
            assert second("list_jobs").document["jobs"] == []
        shown = first("show_job", job_id=wait["job_id"])
    assert "ana (mcp)" in shown.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_wait_reports_progress_over_http(
    url: str, shared_database: str, life: Life, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.mcp.tools.TURN_S", 0.02)
    life.type()
    job_id = str(life.job())
    with connect(url, token_of(shared_database, "viewer"), mode) as ask:
        assert ask("wait_for_job", job_id=job_id, timeout_s=0.1).document["has_ended"] is False
        assert ask.progress


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({}, (401, "this needs a token")),
        ({"Authorization": "Bearer cortex_" + "0" * 64}, (401, "unknown token")),
        ({"Origin": "http://evil.example"}, (403, "pages in browsers may not")),
        ({"Origin": "http://evil.example", "Host": "evil.example"}, (403, "pages in browsers")),
        ({"Origin": "null"}, (403, "pages in browsers may not")),
    ],
)
def test_a_request_without_a_right_is_refused(
    url: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    status, text = post(url, headers)
    assert status == expected[0]
    assert expected[1] in text


def test_nothing_but_post_to_its_path_is_served(url: str, shared_database: str) -> None:
    bearer = {"Authorization": f"Bearer {token_of(shared_database, 'viewer')}"}
    assert post(url, bearer)[0] == 200
    assert post(url, bearer, method="GET")[0] == 405
    assert post(url, bearer, method="DELETE")[0] == 405
    assert post(url, bearer, path="/v1/jobs")[0] == 404
    assert post(url, bearer | {"Content-Length": str(10**9)})[0] == 413


def test_a_revoked_token_ends_a_wait(url: str, shared_database: str, life: Life) -> None:
    life.type()
    job_id = str(life.job())
    token = token_of(shared_database, "viewer", name="lea")
    with connect(url, token) as ask:
        sql(
            shared_database,
            "UPDATE cortex.api_token SET revoked_at = now(), revoked_by = 'x' WHERE name = 'lea'",
        )
        with pytest.raises(MCPError, match="error response"):
            ask("wait_for_job", job_id=job_id, timeout_s=600)
