"""The model client: the real SDK, the real server, every way in which a call can go wrong."""

import errno
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import pytest
import trio

from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.agent.models.client import CallLimits
from cortex.agent.models.errors import ErrorEventError, ModelRejectedError, ModelUnavailableError
from cortex.demo.script import Call, Reply
from cortex.demo.server import serve
from cortex.domain import classification
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.failure import CallFailure, FailureClass
from cortex.domain.model import INVALID_INPUT, ModelOptions, ModelRequest, ModelResponse
from tests.support.eventually import eventually_async
from tests.support.servers.scripted_model import (
    API_KEY,
    MODEL,
    ScriptedModel,
    program,
)
from tests.support.servers.web_server import open_server

PATIENT = CallLimits(total_s=30, idle_s=20, connect_s=10)
ENDLESS = {"text": "many words " * 500, "chunks": 500, "delay_s": 0.05}


@pytest.fixture
def mark() -> str:
    """A label that makes this test's conversation unique on the shared server."""
    return uuid.UUID(bytes=os.urandom(16)).hex


def asking(*turns: dict[str, Any], mark: str = "", **fields: Any) -> ModelRequest:
    prompt = program(*turns, mark=mark)
    messages = [{"role": "user", "content": prompt}]
    return ModelRequest(model=MODEL, messages=messages, max_tokens=1000, **fields)


async def failure_of(
    model: AnthropicModel, turn: dict[str, Any], limits: CallLimits = PATIENT
) -> ModelUnavailableError | ModelRejectedError:
    """The error that a call with this answer raises, with its message already checked."""
    with pytest.raises((ModelUnavailableError, ModelRejectedError)) as caught:
        await model.respond(asking(turn), limits=limits)
    error = caught.value
    assert isinstance(error, ModelUnavailableError | ModelRejectedError)
    assert MODEL in error.message
    assert "127.0.0.1:" in error.message
    assert "\n" not in error.message
    return error


# --- answers


async def test_complete_answer_is_read(model: AnthropicModel, mark: str) -> None:
    turn = {
        "text": "Let me look at “café” 🙂.",
        "chunks": 7,
        "tools": [
            {"name": "list_files", "input": {"pattern": "**/*", "deep": {"a": [1, 2.5, None]}}},
            {"name": "now", "input": {}},
        ],
    }
    heard: list[str] = []
    response = await model.respond(asking(turn, mark=mark), on_text=heard.append)
    assert response.text == "".join(heard) == turn["text"]
    assert len(heard) == 7
    assert [(call["name"], call["input"]) for call in response.tool_calls] == [
        ("list_files", {"pattern": "**/*", "deep": {"a": [1, 2.5, None]}}),
        ("now", {}),
    ]
    assert response.stop_reason == "tool_use"
    assert response.model == MODEL
    assert response.message_id.startswith("msg_")
    assert response.usage.input_tokens > 50
    assert response.usage.output_tokens > 10
    assert ModelResponse.from_json(response.to_json()) == response


async def test_the_request_arrives_as_it_was_asked() -> None:
    seen: list[Call] = []

    def script(call: Call) -> Reply:
        seen.append(call)
        return Reply(content=({"type": "text", "text": "ok"},))

    tool = {"name": "now", "description": "the time", "input_schema": {"type": "object"}}
    request = ModelRequest(
        model="some-model",
        messages=[{"role": "user", "content": "hello"}],
        system="be brief",
        tools=[tool],
        max_tokens=77,
        options=ModelOptions(temperature=0.25),
    )
    async with serve(script) as server:
        client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
        await client.respond(request)
        await client.aclose()
    (call,) = seen
    assert (call.model, call.system, call.max_tokens) == ("some-model", "be brief", 77)
    assert call.tools == [tool]
    assert call.messages == [{"role": "user", "content": "hello"}]
    assert call.temperature == 0.25
    assert call.stream


async def test_strange_events_are_ignored(model: AnthropicModel) -> None:
    turn = {"text": "one two three four", "chunks": 4, "fault": "strange_events"}
    assert (await model.respond(asking(turn))).text == turn["text"]


@pytest.mark.parametrize("raw", ['{"path": "a', "[1, 2]", "not json", '{"a": 1} {"b": 2}'])
async def test_tool_input_that_is_no_object_is_kept_for_the_loop(
    model: AnthropicModel, raw: str
) -> None:
    response = await model.respond(asking({"tools": [{"name": "read_file", "raw_input": raw}]}))
    (call,) = response.tool_calls
    assert call["input"] == {}
    assert call[INVALID_INPUT] == raw
    assert INVALID_INPUT not in response.as_message()["content"][0]


async def test_a_connection_is_used_again(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    for _ in range(3):
        await model.respond(asking({"text": "one two", "chunks": 2, "delay_s": 0.01}, mark=mark))
    calls = server.calls(mark)
    assert len(calls) == 3
    assert len({call["connection"] for call in calls}) == 1


async def test_fifty_streams_at_once(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    answers: dict[int, str] = {}

    async def ask(index: int) -> None:
        turn = {"text": f"answer {index} " * 10, "chunks": 10, "delay_s": 0.2}
        answers[index] = (await model.respond(asking(turn, mark=mark), limits=PATIENT)).text

    async with trio.open_nursery() as nursery:
        for index in range(50):
            nursery.start_soon(ask, index)
    assert answers == {index: f"answer {index} " * 10 for index in range(50)}
    calls = server.calls(mark)
    assert [call["outcome"] for call in calls] == ["answered"] * 50
    assert max(call["started_s"] for call in calls) < min(call["ended_s"] for call in calls)


# --- errors of the API


@pytest.mark.parametrize(
    "status, type_",
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
    ],
)
async def test_permanent_status_is_a_rejection(
    model: AnthropicModel, status: int, type_: str
) -> None:
    turn = {"status": status, "error_type": type_, "message": "because\nof this"}
    error = await failure_of(model, turn)
    assert isinstance(error, ModelRejectedError)
    assert (error.failure.status, error.failure.type) == (status, type_)
    assert f"{status} {type_}: because of this (request req_scripted)" in error.message
    assert isinstance(error.__cause__, anthropic.APIStatusError)


@pytest.mark.parametrize(
    "status, type_",
    [
        (408, "timeout_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
async def test_transient_status_is_unavailability(
    model: AnthropicModel, status: int, type_: str
) -> None:
    error = await failure_of(
        model, {"status": status, "error_type": type_, "message": "later", "retry_after": "17"}
    )
    assert isinstance(error, ModelUnavailableError)
    assert (error.failure.status, error.failure.type) == (status, type_)
    assert error.failure.retry_after == "17"
    assert error.failure.request_id == "req_scripted"
    assert isinstance(error.__cause__, anthropic.APIStatusError)


async def test_the_sdk_does_not_retry_by_itself(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    turn = {"status": 529, "retry_after": "0", "times": 1, "text": "better now"}
    with pytest.raises(ModelUnavailableError):
        await model.respond(asking(turn, mark=mark))
    assert [call["number"] for call in server.calls(mark)] == [1]
    assert (await model.respond(asking(turn, mark=mark))).text == "better now"
    assert [call["number"] for call in server.calls(mark)] == [1, 2]


async def test_web_page_in_an_error_body_is_cut_short(model: AnthropicModel) -> None:
    page = "<html>" + "bad gateway " * 1000
    error = await failure_of(model, {"status": 502, "body": page})
    assert error.failure.type == "http_502"
    assert len(error.message) < 500


async def test_bad_key_and_unknown_model_have_hints(model: AnthropicModel) -> None:
    bad_key = await failure_of(model, {"status": 401, "error_type": "authentication_error"})
    assert "ANTHROPIC_API_KEY" in (bad_key.hint or "")
    unknown = await failure_of(model, {"status": 404, "error_type": "not_found_error"})
    assert "model" in (unknown.hint or "")


@pytest.mark.parametrize(
    "type_, expected",
    [
        ("overloaded_error", ModelUnavailableError),
        ("rate_limit_error", ModelUnavailableError),
        ("api_error", ModelUnavailableError),
        ("timeout_error", ModelUnavailableError),
        ("invalid_request_error", ModelRejectedError),
        ("permission_error", ModelRejectedError),
    ],
)
async def test_an_error_inside_the_stream_is_judged_by_its_type(
    model: AnthropicModel, type_: str, expected: type[CortexError]
) -> None:
    turn = {
        "text": "one two three",
        "chunks": 3,
        "fault": "error_event",
        "fault_after": 2,
        "error_type": type_,
    }
    error = await failure_of(model, turn)
    assert isinstance(error, expected)
    assert (error.failure.status, error.failure.type) == (200, type_)
    assert error.failure.usage.input_tokens > 0
    assert isinstance(error.__cause__, ErrorEventError)


# --- broken streams


@pytest.mark.parametrize(
    "fault, type_, output, is_paid",
    [
        # A reset takes with it what the client has not read yet.
        ("cut", "connection_lost", "reset", None),
        ("drop", "connection_lost", "reset", None),
        ("early_end", "ended_early", "ended its answer early", True),
        ("empty", "malformed_answer", "without message_start", False),
        ("malformed", "malformed_answer", "not JSON", True),
        ("not_utf8", "malformed_answer", "not JSON", True),
        ("html", "not_a_stream", "text/html", False),
    ],
)
async def test_broken_stream_is_unavailability(
    model: AnthropicModel, fault: str, type_: str, output: str, is_paid: bool | None
) -> None:
    turn = {"text": "one two three four", "chunks": 4, "fault": fault, "fault_after": 2}
    error = await failure_of(model, turn)
    assert isinstance(error, ModelUnavailableError)
    assert error.failure.type == type_
    assert output in error.message
    assert is_paid in (None, classification.failure_of(error).is_paid)


async def test_broken_stream_reports_its_usage(model: AnthropicModel) -> None:
    error = await failure_of(model, {"text": "one two", "chunks": 2, "fault": "early_end"})
    assert error.failure.usage.input_tokens > 0
    assert error.failure.request_id == "req_scripted"


@pytest.mark.parametrize(
    "stop_reason", ["max_tokens", "refusal", "stop_sequence", "pause_turn", "enlightenment"]
)
async def test_answer_keeps_its_stop_reason(model: AnthropicModel, stop_reason: str) -> None:
    response = await model.respond(asking({"text": "well", "stop_reason": stop_reason}))
    assert response.stop_reason == stop_reason


# --- limits


async def test_pings_do_not_keep_a_stalled_stream_alive(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    turn = {"text": "a b c", "chunks": 3, "fault": "stall", "fault_after": 1, "ping_s": 0.02}
    limits = CallLimits(total_s=30, idle_s=0.4, connect_s=10)
    with pytest.raises(ModelUnavailableError, match=r"no content for 0\.4 s") as caught:
        await model.respond(asking(turn, mark=mark), limits=limits)
    assert caught.value.failure.type == "idle_timeout"
    await eventually_async(
        lambda: [call["outcome"] for call in server.calls(mark)] == ["disconnected"],
        what="the stalled stream is closed",
    )


async def test_content_keeps_a_slow_stream_alive(model: AnthropicModel) -> None:
    turn = {"text": "many words " * 10, "chunks": 25, "delay_s": 0.25}
    limits = CallLimits(total_s=60, idle_s=5, connect_s=10)
    assert (await model.respond(asking(turn), limits=limits)).text == turn["text"]


@pytest.mark.parametrize("turn", [ENDLESS, {"fault": "hang"}], ids=["endless", "hang"])
async def test_total_limit_ends_the_call(model: AnthropicModel, turn: dict[str, Any]) -> None:
    error = await failure_of(model, turn, CallLimits(total_s=0.4, idle_s=20, connect_s=10))
    assert isinstance(error, ModelUnavailableError)
    assert error.failure.type == "total_timeout"
    assert "within 0.4 s" in error.message
    assert classification.failure_of(error).is_paid is (turn is ENDLESS)


async def test_cancelling_closes_the_stream_at_once(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    with trio.CancelScope() as scope:
        await model.respond(asking(ENDLESS, mark=mark), on_text=lambda _: scope.cancel())
    assert scope.cancelled_caught
    (call,) = await eventually_async(
        lambda: [each for each in server.calls(mark) if each["outcome"] == "disconnected"],
        what="the server sees that the client left",
    )
    assert call["chunk_count"] < 100


async def test_error_raised_by_on_text_passes_unchanged(
    server: ScriptedModel, model: AnthropicModel, mark: str
) -> None:
    def on_text(_: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await model.respond(asking(ENDLESS, mark=mark), on_text=on_text)
    await eventually_async(
        lambda: server.calls(mark)[0]["outcome"] == "disconnected", what="the stream is closed"
    )


# --- no server, no key


async def test_refused_connection_is_unavailability() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        client = AnthropicModel(standard(api_key=API_KEY, base_url=f"http://127.0.0.1:{port}"))
        error = await failure_of(client, {"text": "never sent"})
    assert isinstance(error, ModelUnavailableError)
    assert error.failure.type == "connection_refused"
    assert not classification.failure_of(error).is_paid
    assert "refused" in error.message
    assert f"127.0.0.1:{port}" in error.message
    assert isinstance(error.__cause__, anthropic.APIConnectionError)
    await client.aclose()


@pytest.mark.parametrize(
    "code, expected",
    [(socket.EAI_NONAME, ModelRejectedError), (socket.EAI_AGAIN, ModelUnavailableError)],
)
async def test_unresolvable_host_is_classified(code: int, expected: type[CortexError]) -> None:
    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(code, os.strerror(errno.ENOENT))

        async def getnameinfo(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    client = AnthropicModel(standard(api_key=API_KEY, base_url="http://models.example"))
    with pytest.raises(expected, match=r"at models\.example"):
        await client.respond(asking({"text": "never sent"}))
    await client.aclose()


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


async def test_without_a_key(no_credentials: None) -> None:
    with pytest.raises(UsageError) as caught:
        await AnthropicModel().respond(asking({"text": "never sent"}))
    assert "ANTHROPIC_API_KEY" in (caught.value.hint or "")


async def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        await AnthropicModel(standard(api_key="sk-secret\n")).respond(
            asking({"text": "never sent"})
        )
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(UsageError) as caught:
        await AnthropicModel(standard(api_key="sk")).respond(asking({"text": "never sent"}))
    assert f"SSL_CERT_FILE={path}" in str(caught.value)
    assert "SSL_CERT_FILE" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "location, is_followed",
    [
        ("http://localhost:1/v1/messages", False),
        ("http://127.0.0.1:1/v1/messages", False),
        ("http://127.0.0.1:{port}/v1/messages/", True),
        ("/v1/messages/", True),
        ("//metadata.test/", False),
    ],
)
async def test_a_redirect_to_another_host_gets_no_key(
    nursery: trio.Nursery,
    location: str,
    is_followed: bool,
) -> None:
    web = await open_server(nursery)
    target = location.format(port=web.port)
    moved = f"HTTP/1.1 307 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
    web.reply = moved.encode()
    client = AnthropicModel(standard(api_key="sk", base_url=web.url(path="")))
    with pytest.raises((ModelRejectedError, ModelUnavailableError)) as caught, trio.fail_after(9):
        await client.respond(asking({"text": "no"}))
    await client.aclose()
    assert (len(web.asked) > 1) is is_followed
    if not is_followed:
        failure = classification.failure_of(caught.value)
        assert (failure.code, failure.cls) == ("redirected", FailureClass.PERMANENT)
        assert target.split("/")[2].partition(":")[0] in failure.message
        assert "ANTHROPIC_BASE_URL" in (caught.value.hint or "")


async def test_a_proxy_takes_calls_to_the_model(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await open_server(nursery)
    web.reply = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    monkeypatch.setenv("HTTP_PROXY", web.url())
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.delenv("no_proxy", raising=False)
    client = AnthropicModel(standard(api_key="sk", base_url="http://model.test"))
    with pytest.raises(ModelRejectedError):
        await client.respond(asking({"text": "no"}))
    await client.aclose()
    assert web.asked[0].startswith("POST http://model.test/v1/messages HTTP/1.1")
    for variables in ({"HTTP_PROXY": "socks5://p:1"}, {"HTTP_PROXY": "", "ALL_PROXY": "ftp://p"}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UsageError, match="only http and https proxies") as caught:
            await AnthropicModel(standard(api_key="sk", base_url="http://model.test")).respond(
                asking({"text": "no"})
            )
        assert "or use NO_PROXY" in caught.value.message, "a job's record keeps no hint"


@pytest.mark.parametrize("base_url", ["localhost:8080", "ftp://example.com", "http://[::1"])
async def test_address_without_http_or_host_is_refused(base_url: str) -> None:
    with pytest.raises(UsageError) as caught:
        await AnthropicModel(standard(api_key=API_KEY, base_url=base_url)).respond(
            asking({"text": "no"})
        )
    assert "ANTHROPIC_BASE_URL" in (caught.value.hint or "")


async def test_key_and_address_come_from_the_environment(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    client = AnthropicModel()
    assert (await client.respond(asking({"text": "found"}))).text == "found"
    await client.aclose()


def test_the_sdk_is_imported_late() -> None:
    code = "import sys, cortex.agent.models.anthropic; print('anthropic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


async def test_preload_in_a_thread(server: ScriptedModel) -> None:
    client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.to_thread.run_sync, client.preload))
        nursery.start_soon(client.respond, asking({"text": "both at once"}))
    assert client.preload() is client.preload()
    await client.aclose()


async def test_clock_of_a_call_runs_while_the_sdk_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    client = AnthropicModel(standard(api_key=API_KEY, base_url="http://127.0.0.1:9"))
    monkeypatch.setattr(client, "preload", go_on.wait)
    try:
        with (
            trio.fail_after(5),
            pytest.raises(ModelUnavailableError, match=r"being imported after 0\.05 s") as caught,
        ):
            await client.respond(asking({}), limits=CallLimits(total_s=0.05))
    finally:
        go_on.set()
    failure = classification.failure_of(caught.value)
    assert (failure.code, failure.scope, failure.limit_s) == ("client_not_loaded", "call", 0.05)


async def test_import_time_counts_towards_the_limit_of_a_call(
    server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
    loaded = client.preload()
    client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))

    def slow() -> anthropic.AsyncAnthropic:
        threading.Event().wait(0.45)
        return loaded

    monkeypatch.setattr(client, "preload", slow)
    began = trio.current_time()
    with pytest.raises(ModelUnavailableError, match="total_timeout"):
        await client.respond(asking({"fault": "hang"}), limits=CallLimits(total_s=0.5))
    assert trio.current_time() - began < 0.9
    await loaded.close()


def test_a_failure_without_a_status_reads_well() -> None:
    failure = CallFailure(model="m", host="h", type="connection_lost")
    assert re.fullmatch(r"model 'm' at h: connection_lost: gone", failure.line("gone"))
