"""Classes of the failures of a model call, as our client reports and the SDK raises them."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anthropic
import httpx2
import pytest
import trio

from cortex.agent.models.anthropic import STANDARD, AnthropicModel, standard
from cortex.agent.models.client import CallLimits
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.agent.models.failures import ErrorReader, translate
from cortex.domain.classification import classify, failure_of
from cortex.domain.failure import CallFailure, Failure, FailureClass
from cortex.domain.model import ModelRequest
from cortex.domain.usage import Usage
from tests.support.servers.scripted_model import (
    API_KEY,
    MODEL,
    ScriptedModel,
    program,
)

INFRA = FailureClass.TRANSIENT_INFRA
APP = FailureClass.TRANSIENT_APP
PERMANENT = FailureClass.PERMANENT
BUDGET = FailureClass.BUDGET
PATIENT = CallLimits(total_s=30, idle_s=20, connect_s=10)
NOW = datetime(2015, 10, 21, 7, 28, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def sdk(server: ScriptedModel) -> Iterator[anthropic.Anthropic]:
    """The SDK itself; its blocking half, since the other leaves open generators behind."""
    with anthropic.Anthropic(api_key=API_KEY, base_url=server.base_url, max_retries=0) as client:
        yield client


def asking(turn: dict[str, Any]) -> ModelRequest:
    messages = [{"role": "user", "content": program(turn)}]
    return ModelRequest(model=MODEL, messages=messages, max_tokens=1000)


async def ours(
    model: AnthropicModel, turn: dict[str, Any], limits: CallLimits = PATIENT
) -> Failure:
    """Failure of a call of our client; family and class agree."""
    with pytest.raises((ModelUnavailableError, ModelRejectedError)) as caught:
        await model.respond(asking(turn), limits=limits)
    failure = failure_of(caught.value)
    assert isinstance(caught.value, ModelUnavailableError) is failure.cls.is_transient
    assert failure.source == f"llm:{MODEL}"
    assert failure.message == caught.value.message
    return failure


async def raw(sdk: anthropic.Anthropic, turn: dict[str, Any], *, read_s: float = 20) -> Exception:
    """The error that the SDK itself raises, as job code would meet it."""
    client = sdk.with_options(timeout=httpx2.Timeout(20, read=read_s))

    def call() -> None:
        prompt: list[anthropic.types.MessageParam] = [{"role": "user", "content": program(turn)}]
        with client.messages.stream(model=MODEL, max_tokens=1000, messages=prompt) as stream:
            stream.until_done()

    with pytest.raises(Exception) as caught:  # noqa: PT011 -- each raises its own
        await trio.to_thread.run_sync(call)
    return caught.value


# --- statuses


STATUSES = [
    (400, "invalid_request_error", "BadRequestError", "invalid_request", PERMANENT),
    (401, "authentication_error", "AuthenticationError", "authentication", PERMANENT),
    (402, "billing_error", "PaymentRequiredError", "billing", BUDGET),
    (403, "permission_error", "PermissionDeniedError", "permission", PERMANENT),
    (404, "not_found_error", "NotFoundError", "not_found", PERMANENT),
    (408, "timeout_error", "RequestTimeoutError", "request_timeout", APP),
    (409, "conflict_error", "ConflictError", "conflict", PERMANENT),
    (413, "request_too_large", "ContentTooLargeError", "request_too_large", PERMANENT),
    (418, "api_error", "APIStatusError", "refused", PERMANENT),
    (422, "invalid_request_error", "UnprocessableEntityError", "invalid_request", PERMANENT),
    (429, "rate_limit_error", "RateLimitError", "rate_limit", APP),
    (500, "api_error", "InternalServerError", "api_error", INFRA),
    (502, "api_error", "InternalServerError", "bad_gateway", INFRA),
    (503, "api_error", "ServiceUnavailableError", "service_unavailable", APP),
    (504, "timeout_error", "GatewayTimeoutError", "gateway_timeout", INFRA),
    (529, "overloaded_error", "OverloadedError", "overloaded", APP),
]


@pytest.mark.parametrize("row", STATUSES, ids=lambda row: str(row[0]))
async def test_status_is_classified(
    model: AnthropicModel,
    sdk: anthropic.Anthropic,
    row: tuple[int, str, str, str, FailureClass],
) -> None:
    status, type_, kind, code, expected = row
    turn = {"status": status, "error_type": type_, "retry_after": "17"}
    output, error = await ours(model, turn), await raw(sdk, turn)
    assert type(error).__name__ == kind
    for failure in (output, failure_of(error)):
        assert (failure.cls, failure.code, failure.retry_after_s) == (expected, code, 17)
        assert failure.is_escalated is (status in (401, 402, 403))
        assert failure.is_rate_limit is (status == 429)


async def test_a_retry_after_in_both_forms_and_none(
    model: AnthropicModel, sdk: anthropic.Anthropic
) -> None:
    for turn, seconds in (
        ({"status": 429, "retry_after_date_s": 40}, 40),
        ({"status": 429, "retry_after_date_s": -40}, 0),
        ({"status": 429, "retry_after": "whenever"}, 60),
        ({"status": 429}, None),
    ):
        assert (await ours(model, turn)).retry_after_s == seconds
        assert failure_of(await raw(sdk, turn)).retry_after_s == seconds


async def test_a_date_of_a_server_without_a_clock_is_read_by_ours(server: ScriptedModel) -> None:
    client = AnthropicModel(
        standard(api_key=API_KEY, base_url=server.base_url),
        unix_ms=lambda: int(NOW.timestamp() * 1000),
    )
    turn = {"status": 429, "retry_after": "Wed, 21 Oct 2015 07:28:40 GMT"}
    assert (await ours(client, turn)).retry_after_s == 10
    await client.aclose()


@pytest.mark.parametrize(
    "detail, code, expected",
    [
        ("enforced_spend_limit_reached", "billing", BUDGET),
        ("contract_spend_limit_reached", "billing", BUDGET),
        ("organization_on_hold", "account_suspended", PERMANENT),
        ("ramp_limit_exceeded", "rate_limit", APP),
    ],
)
async def test_error_code_of_the_api_refines_its_status(
    model: AnthropicModel,
    sdk: anthropic.Anthropic,
    detail: str,
    code: str,
    expected: FailureClass,
) -> None:
    turn = {"status": 429, "error_type": "rate_limit_error", "error_code": detail}
    for failure in (await ours(model, turn), failure_of(await raw(sdk, turn))):
        assert (failure.code, failure.cls) == (code, expected)
        assert failure.is_escalated is (expected is not APP)


# --- errors inside a stream, and broken streams


@pytest.mark.parametrize(
    "type_, code, expected",
    [
        ("overloaded_error", "overloaded", APP),
        ("rate_limit_error", "rate_limit", APP),
        ("api_error", "api_error", INFRA),
        ("timeout_error", "gateway_timeout", INFRA),
        ("invalid_request_error", "invalid_request", PERMANENT),
        ("authentication_error", "authentication", PERMANENT),
        ("permission_error", "permission", PERMANENT),
        ("not_found_error", "not_found", PERMANENT),
        ("request_too_large", "request_too_large", PERMANENT),
        ("billing_error", "billing", BUDGET),
        ("error_of_the_future", "api_error", INFRA),
    ],
)
async def test_error_event_after_a_200_is_classified(
    model: AnthropicModel,
    sdk: anthropic.Anthropic,
    type_: str,
    code: str,
    expected: FailureClass,
) -> None:
    turn = {"text": "a b c", "chunks": 3, "fault": "error_event", "fault_after": 2}
    turn |= {"error_type": type_}
    error = await raw(sdk, turn)
    assert isinstance(error, anthropic.APIStatusError)
    for failure in (await ours(model, turn), failure_of(error)):
        assert (failure.code, failure.cls) == (code, expected)


@pytest.mark.parametrize(
    "fault, code, raw_class",
    [
        ("cut", "connection_lost", INFRA),
        ("drop", "connection_lost", INFRA),
        ("malformed", "malformed_answer", INFRA),
        ("not_utf8", "malformed_answer", INFRA),
        # The SDK itself takes these for answers.
        ("early_end", "ended_early", None),
        ("empty", "malformed_answer", None),
        ("html", "not_a_stream", None),
    ],
)
async def test_broken_stream_is_classified(
    model: AnthropicModel,
    sdk: anthropic.Anthropic,
    fault: str,
    code: str,
    raw_class: FailureClass | None,
) -> None:
    turn = {"text": "one two three four", "chunks": 4, "fault": fault, "fault_after": 2}
    failure = await ours(model, turn)
    assert (failure.code, failure.cls) == (code, INFRA)
    if raw_class is not None:
        assert classify(await raw(sdk, turn)) is raw_class


# --- limits


async def test_stalled_stream_is_a_timeout(model: AnthropicModel, sdk: anthropic.Anthropic) -> None:
    turn = {"text": "a b c", "chunks": 3, "fault": "stall", "fault_after": 1, "ping_s": 0.02}
    failure = await ours(model, turn, CallLimits(total_s=30, idle_s=0.3, connect_s=10))
    assert (failure.code, failure.cls) == ("idle_timeout", APP)
    assert (failure.scope, failure.limit_s) == ("idle", 0.3)
    assert classify(await raw(sdk, {**turn, "fault": "silence"}, read_s=0.05)) is APP


async def test_missing_answer_is_a_total_timeout(
    model: AnthropicModel, sdk: anthropic.Anthropic
) -> None:
    failure = await ours(model, {"fault": "hang"}, CallLimits(total_s=0.3, idle_s=9, connect_s=9))
    assert (failure.code, failure.cls) == ("total_timeout", APP)
    assert (failure.scope, failure.limit_s) == ("call", 0.3)
    error = await raw(sdk, {"fault": "hang"}, read_s=0.05)
    assert isinstance(error, anthropic.APITimeoutError)
    assert classify(error) is APP


async def test_missing_connection_is_a_connect_timeout() -> None:
    """With a backlog of none, the last of three waiting connections gets no answer."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.settimeout(0)
            each.connect_ex(address)
        url = f"http://127.0.0.1:{address[1]}"
        client = AnthropicModel(standard(api_key=API_KEY, base_url=url))
        failure = await ours(client, {}, CallLimits(total_s=30, idle_s=20, connect_s=0.2))
        assert (failure.code, failure.cls) == ("connect_timeout", INFRA)
        assert (failure.scope, failure.limit_s) == ("connect", 0.2)
        bare = anthropic.AsyncAnthropic(
            api_key=API_KEY,
            base_url=url,
            max_retries=0,
            timeout=httpx2.Timeout(20, connect=0.1),
        )
        with pytest.raises(anthropic.APITimeoutError) as caught:
            await bare.messages.create(model=MODEL, max_tokens=1, messages=[])
        assert classify(caught.value) is INFRA
        await bare.close()
        for each in waiting:
            each.close()
        await client.aclose()


async def test_closed_port_is_a_refused_connection() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = AnthropicModel(standard(api_key=API_KEY, base_url=url))
        failure = await ours(client, {})
        assert (failure.code, failure.cls) == ("connection_refused", INFRA)
        await client.aclose()
        with anthropic.Anthropic(api_key=API_KEY, base_url=url, max_retries=0) as sdk:
            error = await raw(sdk, {})
    assert isinstance(error, anthropic.APIConnectionError)
    assert failure_of(error).code == "connection_refused"


@pytest.mark.parametrize(
    "number, expected", [(socket.EAI_NONAME, PERMANENT), (socket.EAI_AGAIN, INFRA)]
)
async def test_unresolvable_host_is_classified(number: int, expected: FailureClass) -> None:
    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(number, "output")

        async def getnameinfo(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    url = "http://models.example"
    client = AnthropicModel(standard(api_key=API_KEY, base_url=url))
    assert (await ours(client, {})).cls is expected
    await client.aclose()
    async with anthropic.AsyncAnthropic(api_key=API_KEY, base_url=url, max_retries=0) as sdk:
        with pytest.raises(anthropic.APIConnectionError) as caught:
            await sdk.messages.create(model=MODEL, max_tokens=1, messages=[])
    assert classify(caught.value) is expected


# --- what a call has used


async def test_failed_call_reports_its_usage(model: AnthropicModel) -> None:
    used: list[Usage] = []
    opened: list[str] = []
    turn = {"text": "one two", "chunks": 2, "fault": "cut", "fault_after": 1}
    with pytest.raises(ModelUnavailableError) as caught:
        await model.respond(
            asking(turn), on_usage=used.append, on_open=lambda: opened.append("open")
        )
    assert opened == ["open"]
    assert [caught.value.failure.usage] == used
    assert used[0].input_tokens > 0


async def test_cancelled_call_reports_its_usage(model: AnthropicModel) -> None:
    used: list[Usage] = []
    turn = {"text": "many words " * 500, "chunks": 500, "delay_s": 0.05}
    with trio.CancelScope() as scope:
        await model.respond(asking(turn), on_usage=used.append, on_text=lambda _: scope.cancel())
    assert scope.cancelled_caught
    (usage,) = used
    assert usage.input_tokens > 100


async def test_complete_call_reports_growing_usage(model: AnthropicModel) -> None:
    used: list[Usage] = []
    output: list[str] = []
    response = await model.respond(
        asking({"text": "one two three", "chunks": 3}),
        on_usage=used.append,
        on_open=lambda: output.append("open"),
        on_text=output.append,
    )
    assert output[0] == "open"
    assert output.count("open") == 1
    assert used[-1] == response.usage
    assert [each.input_tokens for each in used] == [response.usage.input_tokens] * 2
    assert used[0].output_tokens < used[1].output_tokens


@pytest.mark.parametrize("turn", [{"status": 429}, {"fault": "empty"}, {"fault": "drop"}])
async def test_call_without_a_stream_is_never_open(
    model: AnthropicModel, turn: dict[str, Any]
) -> None:
    output: list[object] = []
    with pytest.raises(ModelUnavailableError) as caught:
        await model.respond(asking(turn), on_usage=output.append, on_open=lambda: output.append(0))
    assert output == []
    assert caught.value.failure.usage == Usage()


async def test_error_raised_by_a_callback_passes_unchanged(model: AnthropicModel) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await model.respond(asking({"text": "one"}), on_open=fail)


def test_an_error_from_elsewhere_is_not_ours_to_translate() -> None:
    blank = CallFailure(model="m", host="h", type="")
    reader = ErrorReader(protocol="an API", connection_errors=(), read=lambda _: None)
    bug = ValueError("a bug")
    assert translate(bug, blank, reader=reader, endpoint=STANDARD, limits=PATIENT, now=NOW) is None
