"""The scripted server as a program sees it: HTTP, its log, its process."""

import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
import trio
from click.testing import CliRunner

from cortex.cli.run.scripted_model import scripted_model as command
from cortex.demo.script import Call, Fault, Reply, at_pace
from cortex.demo.script_echo import echo
from cortex.demo.script_tools import tools
from cortex.demo.server import ScriptedServer, main, serve
from cortex.domain.errors import UsageError
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.servers.scripted_model import API_KEY, MODEL, program, scripted_model


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serve(tools) as running:
        yield running


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=server.base_url, headers={"x-api-key": API_KEY}, trust_env=False
    ) as client:
        yield client


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "max_tokens": 100, "messages": messages, **fields}


async def test_answer_without_streaming_is_one_message(client: httpx2.AsyncClient) -> None:
    prompt = program({"text": "hello", "tools": [{"name": "now"}]})
    answer = await client.post("/v1/messages", json=body(prompt))
    message = answer.json()
    assert message["content"][0] == {"type": "text", "text": "hello"}
    assert message["content"][1]["name"] == "now"
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens"] > 1


async def test_the_same_call_gets_the_same_answer(client: httpx2.AsyncClient) -> None:
    prompt = program({"text": "hello", "tools": [{"name": "now"}]})
    first = await client.post("/v1/messages", json=body(prompt))
    second = await client.post("/v1/messages", json=body(prompt))
    assert first.json()["content"] == second.json()["content"]
    assert first.json()["usage"] == second.json()["usage"]


async def test_call_log_lists_calls_in_order(client: httpx2.AsyncClient) -> None:
    prompt = program({"status": 500, "times": 1, "text": "better"}, mark="mine")
    for _ in range(2):
        await client.post("/v1/messages", json=body(prompt, stream=True))
    await client.post("/v1/messages", json=body(program(mark="other")))
    log = (await client.get("/calls")).json()
    assert log["count"] == 3
    first, second, other = log["calls"]
    assert [first["outcome"], second["outcome"]] == ["refused", "answered"]
    assert [first["number"], second["number"], other["number"]] == [1, 2, 1]
    assert first["conversation"] == second["conversation"] != other["conversation"]
    assert first["prompt"].startswith("mine")
    assert first["started_s"] <= first["ended_s"] <= second["started_s"]


async def test_open_calls_are_listed(client: httpx2.AsyncClient, nursery: trio.Nursery) -> None:
    async def open_calls() -> list[str]:
        return [call["prompt"] for call in (await client.get("/calls/open")).json()["calls"]]

    await client.post("/v1/messages", json=body("done"))
    hangs = program({"fault": "hang"}, mark="hangs")
    nursery.start_soon(lambda: client.post("/v1/messages", json=body(hangs), timeout=None))
    prompts: list[str] = await eventually_async(open_calls, what="it is being answered")
    assert [prompt.startswith("hangs") for prompt in prompts] == [True]
    nursery.cancel_scope.cancel()


async def test_a_client_that_leaves_is_noted(
    client: httpx2.AsyncClient, server: ScriptedServer
) -> None:
    prompt = program({"text": "words " * 100, "chunks": 100, "delay_s": 0.1})
    async with client.stream("POST", "/v1/messages", json=body(prompt, stream=True)) as answer:
        assert answer.status_code == 200
    await eventually_async(
        lambda: server.calls.as_json()["calls"][0]["outcome"] == "disconnected",
        what="the log says that the client left",
    )


@pytest.mark.parametrize(
    "content, status, output",
    [
        (b"not json", 400, "not a Messages request"),
        (b"[]", 400, "not a Messages request"),
        (b'{"model": "m", "max_tokens": 1, "messages": []}', 400, "at least one message"),
        (orjson.dumps(body(" ")), 400, "messages.0.content.0.text: text content blocks must"),
        (orjson.dumps(body("no program here")), 400, "not a program"),
        (orjson.dumps(body('{"turns": [{"txet": "typo"}]}')), 400, "txet"),
    ],
)
async def test_bad_request_names_its_problem(
    client: httpx2.AsyncClient, content: bytes, status: int, output: str
) -> None:
    answer = await client.post("/v1/messages", content=content)
    assert answer.status_code == status
    assert output in answer.json()["error"]["message"]


async def test_no_key_no_answer(server: ScriptedServer) -> None:
    async with httpx2.AsyncClient(base_url=server.base_url, trust_env=False) as client:
        answer = await client.post("/v1/messages", json=body("hello"))
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


async def test_other_paths(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/nowhere")).status_code == 404
    counted = await client.post("/v1/messages/count_tokens", json=body("x" * 4_000))
    assert counted.json()["input_tokens"] > 1_000


async def test_echo_script_repeats_the_prompt(client: httpx2.AsyncClient) -> None:
    async with serve(echo) as server:
        answer = await client.post(f"{server.base_url}/v1/messages", json=body("hear, hear"))
    assert answer.json()["content"] == [{"type": "text", "text": "hear, hear"}]


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.SILENCE, Fault.HANG])
async def test_stalled_answer_ends_after_its_time(fault: Fault, client: httpx2.AsyncClient) -> None:
    def script(_: Call) -> Reply:
        return Reply(content=(), fault=fault, ping_s=0.01, fault_s=0.05)

    async with serve(script) as server:
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            await client.post(f"{server.base_url}/v1/messages", json=body("x", stream=True))
        (call,) = server.calls.as_json()["calls"]
    assert call["outcome"] == "broken"


async def test_a_script_that_fails_ends_its_call_only(client: httpx2.AsyncClient) -> None:
    def script(call: Call) -> Reply:
        if call.user_text(0) == "fail":
            raise RuntimeError("a bug")
        return Reply(content=({"type": "text", "text": "fine"},))

    async with serve(script) as server:
        url = f"{server.base_url}/v1/messages"
        failed = await client.post(url, json=body("fail"))
        assert failed.status_code == 500
        assert "a bug" in failed.json()["error"]["message"]
        assert (await client.post(url, json=body("go on"))).status_code == 200


def test_pace_changes_all_delays() -> None:
    def script(_: Call) -> Reply:
        return Reply(content=(), delay_s=0.5, first_delay_s=2)

    reply = at_pace(0.1, script)(call_of("x"))
    assert isinstance(reply, Reply)
    assert (reply.delay_s, reply.first_delay_s) == (0.05, 0.2)


def call_of(prompt: str) -> Call:
    return Call(
        model=MODEL,
        system="",
        messages=[{"role": "user", "content": prompt}],
        tools=[],
        max_tokens=1,
        stream=True,
        input_tokens=1,
    )


def test_the_process_ends_on_sigterm() -> None:
    with scripted_model("echo") as running:
        assert running.calls() == []
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WITHIN_S) == 0


def test_a_script_of_somebodys_own_is_found_by_its_module() -> None:
    with scripted_model("cortex.demo.script_echo:echo") as running:
        answer = httpx2.post(
            f"{running.base_url}/v1/messages",
            json=body("hello"),
            headers={"x-api-key": API_KEY},
            trust_env=False,
        )
    assert answer.json()["content"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize("name", ["nosuch", "nosuch:script", "cortex.demo.script:nosuch"])
def test_unknown_script_is_refused_by_name(name: str) -> None:
    done = CliRunner().invoke(main, ["--script", name])
    assert done.exit_code == 2
    assert name in done.stderr


@pytest.mark.parametrize(
    "script, message",
    [
        ("model.py", "'model.py' names no function"),
        ("none.py:answer", "app 'none.py' does not exist"),
        ("model.py:none", "model.py has no function 'none'"),
        ("model.py:answer", "is not free: Address already in use"),
    ],
)
def test_unusable_script_is_refused_with_a_reason(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def answer(call): ...\n", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = CliRunner().invoke(command, [script, "--port", str(port)])
    assert isinstance(ended.exception, UsageError)
    assert message in ended.exception.message
