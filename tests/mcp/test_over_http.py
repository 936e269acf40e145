"""Servers behind an address: what is sent to them, and what is refused."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from cortex.agent.mcp import http, rate
from cortex.agent.mcp.library_logs import RECORDS_MAX
from cortex.agent.mcp.sessions import CLOSE_S, Sessions
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import SecretReference, Secrets
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import NotSentError
from cortex.domain.errors import CortexError, ForbiddenError
from tests.mcp.conftest import AgentJob, listed, wanted
from tests.support.agent_turns import Script, calls, says
from tests.support.servers.mcp_over_http import HttpMcpServer, open_server

# The library leaves the loop over a body when it has its answer, or enough.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TOKEN = {"Authorization": "Bearer {secret:TOKEN}"}


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> HttpMcpServer:
    made = await open_server(nursery, "echo", "progress")
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", f"127.0.0.1:{made.port}")
    monkeypatch.setenv("NOTES_TOKEN", "s3cret-t0ken-value")
    return made


def secret(server: HttpMcpServer, *, hosts: list[str] | None = None) -> SecretReference:
    there = [f"http://127.0.0.1:{server.port}"] if hosts is None else hosts
    return SecretReference(env="NOTES_TOKEN", hosts=there)


@pytest.mark.parametrize("as_events", [False, True])
async def test_tool_of_an_address_is_called_with_the_agents_secret(
    folder: Path, server: HttpMcpServer, as_events: bool
) -> None:
    server.as_events = as_events
    terms = McpServer(url=server.url, headers=TOKEN, read_only=["*"])
    job = AgentJob(folder, {"notes": terms}, {"secrets": {"TOKEN": secret(server)}})
    script = Script([calls(("notes__echo", {"text": "hello"})), says("done")])
    await job.run(script)
    await job.toolbox.close()
    assert script.last_results == ["hello"]
    assert {each["authorization"] for each in server.requests} == {"Bearer s3cret-t0ken-value"}
    assert {each["host"] for each in server.requests} == {f"127.0.0.1:{server.port}"}
    assert "s3cret" not in str([each.output for each in job.record.steps])
    assert server.requests[-1][":method"] == "DELETE"
    gc.collect()


async def refused(sessions: Sessions, folder: Path, server: HttpMcpServer) -> CortexError:
    terms = McpServer(url=server.url, headers=TOKEN)
    secrets = Secrets(references={"TOKEN": secret(server)}, agent="a")
    with pytest.raises(CortexError) as caught:
        await listed(sessions, wanted(folder, terms, secrets=secrets))
    assert caught.value.message.startswith("MCP server 'notes' ")
    return caught.value


async def test_secret_goes_to_no_host_that_is_not_declared(
    folder: Path, sessions: Sessions, server: HttpMcpServer
) -> None:
    terms = McpServer(url=server.url, headers=TOKEN)
    references = {"TOKEN": secret(server, hosts=["api.example.com"])}
    with pytest.raises(ForbiddenError, match="secret TOKEN may not be sent to http://127"):
        await listed(
            sessions, wanted(folder, terms, secrets=Secrets(references=references, agent="a"))
        )
    assert server.requests == []


async def test_address_that_is_not_public_is_refused(
    folder: Path, sessions: Sessions, server: HttpMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORTEX_HTTP_ALLOW")
    error = await refused(sessions, folder, server)
    assert isinstance(error, ForbiddenError)
    assert "host '127.0.0.1' is not a public address" in error.message
    assert server.requests == []


async def test_redirect_is_not_followed(
    folder: Path, sessions: Sessions, server: HttpMcpServer
) -> None:
    there = f"http://127.0.0.1:{server.port}/other"
    server.reply = f"HTTP/1.1 307 Go\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode()
    error = await refused(sessions, folder, server)
    assert "answered with status 307" in error.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_status_of_a_refusal_is_shown(
    folder: Path, sessions: Sessions, server: HttpMcpServer, status: int
) -> None:
    server.reply = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()
    error = await refused(sessions, folder, server)
    assert error.message == f"MCP server 'notes' answered with status {status}"


async def test_answer_that_is_too_large_is_not_read(
    folder: Path, sessions: Sessions, server: HttpMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MESSAGE_MAX", 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    server.reply = head + b"x" * 200_000
    error = await refused(sessions, folder, server)
    assert "answered with more than 0 MiB" in error.message
    gc.collect()


async def test_server_that_is_gone_was_not_reached(
    folder: Path, sessions: Sessions, server: HttpMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.port = 1
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", "127.0.0.1:1")
    error = await refused(sessions, folder, server)
    assert isinstance(error, NotSentError)
    assert "cannot be reached" in error.message


async def test_call_fails_when_the_server_goes_away(
    folder: Path, sessions: Sessions, server: HttpMcpServer
) -> None:
    terms = McpServer(url=server.url)
    async with sessions.lend(wanted(folder, terms)) as session:
        server.reply = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(Exception, match="answered with status 503"):
            await session.call("echo", {"text": "a"})


async def test_server_that_has_restarted_gets_a_new_session(
    folder: Path, server: HttpMcpServer
) -> None:
    job = AgentJob(folder, {"notes": McpServer(url=server.url)})
    turn = calls(("notes__echo", {"text": "a"}))
    await job.run(Script([turn, says("done")]))
    server.restarts += 1
    server.server.is_initialized = False
    again = AgentJob(folder, job.servers, toolbox=job.toolbox, specs=job.specs)
    script = Script([turn, turn, says("done")])
    await again.run(script)
    first, second = (each.messages[-1]["content"][0]["content"] for each in script.asked[1:])
    assert "tool 'notes.echo': MCP server 'notes' has restarted. call it again" in first
    assert second == "a"
    assert len(again.record.outcomes) == 2
    await job.toolbox.close()


async def called_again(folder: Path, server: HttpMcpServer, change: Any) -> tuple[AgentJob, str]:
    """Have another job call a tool in a session that has begun before `change`."""
    job = AgentJob(folder, {"notes": McpServer(url=server.url)})
    turn = calls(("notes__echo", {"text": "a"}))
    await job.run(Script([turn, says("done")]))
    change()
    again = AgentJob(folder, job.servers, toolbox=job.toolbox, specs=job.specs)
    script = Script([turn, says("done")])
    try:
        await again.run(script)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await job.toolbox.close()
    return again, script.last_results[0]


async def test_call_that_cannot_reach_the_server_was_not_made(
    folder: Path, server: HttpMcpServer
) -> None:
    job, result = await called_again(folder, server, server.running.cancel)
    assert "tool 'notes.echo': MCP server 'notes' cannot be reached" in result
    (reason,) = job.record.outcomes
    assert str(reason).startswith("NotSentError: ")


def replying(server: HttpMcpServer, status: int, text: str = "") -> Callable[[], None]:
    reply = f"HTTP/1.1 {status} No\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
    return lambda: setattr(server, "reply", reply)


@pytest.mark.parametrize("text", ["", '{"error": "invalid_token"}'])
async def test_call_that_was_refused_by_its_status_was_not_made(
    folder: Path, server: HttpMcpServer, text: str
) -> None:
    job, result = await called_again(folder, server, replying(server, 401, text))
    assert "'notes.echo' was refused by its server: answered with status 401" in result
    (reason,) = job.record.outcomes
    assert "status 401" in str(reason)


async def test_call_that_a_server_failed_in_is_left_to_people_with_the_status(
    folder: Path, server: HttpMcpServer
) -> None:
    with pytest.raises(Suspended, match="its server failed: answered with status 503"):
        await called_again(folder, server, replying(server, 503))


async def test_error_of_the_protocol_beside_a_status_is_shown(
    folder: Path, server: HttpMcpServer
) -> None:
    error = {"code": -32_602, "message": "no such note"}
    text = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    _, result = await called_again(folder, server, replying(server, 400, text))
    assert "'notes.echo' was refused by its server: no such note" in result


NOTE = b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}'


@pytest.mark.parametrize(
    "flood, reason",
    [
        (NOTE + b"\n\n", "5,000 messages"),
        (NOTE + b"\r\n\r\n", "5,000 messages"),
        (b": " + b"x" * 1_000_000 + b"\n", "8 MiB"),
    ],
)
async def test_server_that_floods_is_left_and_fills_no_log(
    folder: Path, server: HttpMcpServer, flood: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.flood = flood * 50
    sessions = Sessions()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rate, "BYTES_MAX", 8 << 20)
        async with sessions.lend(wanted(folder, McpServer(url=server.url))) as session:
            with trio.fail_after(10):
                await session.end.wait()
        assert session.error is not None
        assert session.error.message == f"MCP server 'notes' sent {reason} within 10 seconds"
    assert len(caplog.records) <= RECORDS_MAX
    await sessions.close()
