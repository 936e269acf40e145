"""What goes wrong with each API: refusals, broken streams, limits, cancellation."""

import json
from typing import Any

import pytest
import trio

from cortex.agent.models.client import CallLimits
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.domain.classification import failure_of
from cortex.domain.errors import UsageError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.model import ModelOptions, ModelRequest
from tests.providers.conftest import APIS, asking, client_of, endpoint_of
from tests.support.servers.model_apis import ModelApis, Turn, model_apis

INFRA = FailureClass.TRANSIENT_INFRA
APP = FailureClass.TRANSIENT_APP
PERMANENT = FailureClass.PERMANENT
BUDGET = FailureClass.BUDGET
BEGUN = {"openai": 4, "chat": 2, "google": 2}
"""Events after which a part of the text has come."""
LIMITS = CallLimits(total_s=20, idle_s=10, connect_s=5)


async def failed(
    api: str,
    apis: ModelApis,
    request: ModelRequest | None = None,
    *,
    key: str | None = None,
    limits: CallLimits = LIMITS,
) -> Failure:
    given = {} if key is None else {"key": key}
    async with client_of(api, apis, **given) as client:
        with pytest.raises((ModelUnavailableError, ModelRejectedError)) as caught:
            await client.respond(request or asking(), limits=limits)
    failure = failure_of(caught.value)
    assert isinstance(caught.value, ModelUnavailableError) is failure.cls.is_transient
    assert failure.source == "llm:some-model"
    assert f"127.0.0.1:{apis.port}" in failure.message
    assert "\n" not in failure.message
    return failure


@pytest.mark.parametrize("api", APIS)
async def test_a_wrong_key_is_a_matter_for_people_and_is_not_shown(api: str) -> None:
    async with model_apis() as apis:
        failure = await failed(api, apis, key="sk-wrong-0123")
    assert (failure.code, failure.is_escalated) == ("authentication", True)
    assert "sk-wrong" not in failure.message


@pytest.mark.parametrize("key", [None, "", "sk-secret\n"])
@pytest.mark.parametrize("api", APIS)
async def test_a_key_that_cannot_be_sent_is_named_by_its_variable(
    api: str, key: str | None
) -> None:
    async with model_apis() as apis, client_of(api, apis, key=key) as client:
        with pytest.raises(UsageError) as caught:
            await client.respond(asking())
    assert endpoint_of(api, apis).key_from in (caught.value.hint or "")
    assert "secret" not in str(caught.value)
    assert apis.keys == []


def refusal(api: str, status: int, message: str, code: str | None = None) -> Turn:
    """Each API's own way to say it."""
    if api == "google":
        names = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
        error: dict[str, Any] = {"code": status, "message": message, "status": names.get(status)}
    else:
        error = {"message": message, "type": "some_error", "param": None, "code": code}
    return Turn(status=status, error=error)


@pytest.mark.parametrize(
    "status, message, code, expected, cls",
    [
        (400, "Invalid value", None, "invalid_request", PERMANENT),
        (
            400,
            "the input token count (10) exceeds the maximum number of tokens allowed (9)",
            "context_length_exceeded",
            "prompt_too_long",
            PERMANENT,
        ),
        (403, "no", None, "permission", PERMANENT),
        (404, "no such model", "model_not_found", "not_found", PERMANENT),
        (413, "too large", None, "request_too_large", PERMANENT),
        (429, "slow down", "rate_limit_exceeded", "rate_limit", APP),
        (500, "oops", None, "api_error", INFRA),
        (502, "proxy", None, "bad_gateway", INFRA),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_refusals_are_judged_by_each_client(
    api: str, status: int, message: str, code: str | None, *, expected: str, cls: FailureClass
) -> None:
    async with model_apis(refusal(api, status, message, code)) as apis:
        failure = await failed(api, apis)
    assert (failure.code, failure.cls) == (expected, cls)
    assert message in failure.message


@pytest.mark.parametrize(
    "api, code", [("openai", "service_unavailable"), ("google", "overloaded")], ids=str
)
async def test_an_overload_passes(api: str, code: str) -> None:
    async with model_apis(refusal(api, 503, "The model is overloaded.")) as apis:
        failure = await failed(api, apis)
    assert (failure.code, failure.cls) == (code, APP)


async def test_an_account_without_credit_is_no_rate_limit() -> None:
    async with model_apis(refusal("openai", 429, "check your plan", "insufficient_quota")) as apis:
        failure = await failed("openai", apis)
    assert (failure.code, failure.cls, failure.is_escalated) == ("billing", BUDGET, True)


async def test_pauses_are_read_in_each_apis_way() -> None:
    limits = (
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "20ms"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m1.5s"),
    )
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    google = {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    turns = (
        Turn(status=429, error={"message": "slow"}, headers=limits),
        Turn(status=429, error={"message": "slow"}, headers=(("retry-after", "7"), *limits)),
        Turn(status=429, error=google),
    )
    async with model_apis(*turns) as apis:
        pauses = [(await failed(api, apis)).retry_after_s for api in ("openai", "chat", "google")]
    assert pauses == [361.5, 7, 34.5]


@pytest.mark.parametrize(
    "api, error, code",
    [
        ("openai", {"code": "server_error", "message": "oops"}, "api_error"),
        ("openai", {"code": "rate_limit_exceeded", "message": "slow"}, "rate_limit"),
        ("openai", {"code": "image_content_policy_violation", "message": "no"}, "refused"),
        ("openai", {"code": "error_of_the_future", "message": "?"}, "api_error"),
        ("chat", {"code": 502, "message": "upstream"}, "bad_gateway"),
        ("chat", {"code": 429, "message": "slow"}, "rate_limit"),
        ("google", {"code": 503, "message": "busy", "status": "UNAVAILABLE"}, "overloaded"),
        ("google", {"code": 500, "message": "oops", "status": "INTERNAL"}, "api_error"),
    ],
)
async def test_an_error_inside_the_stream_is_judged_by_its_own_words(
    api: str, error: dict[str, Any], code: str
) -> None:
    async with model_apis(Turn(text="I beg", error=error)) as apis:
        failure = await failed(api, apis)
    assert failure.code == code
    assert error["message"] in failure.message


@pytest.mark.parametrize("api", APIS)
async def test_a_cut_stream_is_never_an_answer(api: str) -> None:
    """At each event: what arrived is no answer, unless only counts were missing."""
    whole = 3 if api == "google" else 4
    for place in range(1, whole):
        async with model_apis(Turn(text="one two three", cut_after=place)) as apis:
            failure = await failed(api, apis)
        assert failure.cls is INFRA, place


@pytest.mark.parametrize("api", APIS)
async def test_silence_ends_the_call_after_the_limit(api: str) -> None:
    async with model_apis(Turn(text="one two three", hang_after=BEGUN[api])) as apis:
        limits = CallLimits(total_s=20, idle_s=0.2, connect_s=5)
        failure = await failed(api, apis, limits=limits)
        assert (failure.code, failure.limit_s, failure.is_paid) == ("idle_timeout", 0.2, True)
        with trio.fail_after(5):
            await apis.left.wait()


@pytest.mark.parametrize("api", APIS)
async def test_a_server_that_never_answers_is_left_at_the_total_limit(api: str) -> None:
    async with model_apis(Turn(text="x", hang_after=0)) as apis:
        limits = CallLimits(total_s=0.3, idle_s=10, connect_s=5)
        failure = await failed(api, apis, limits=limits)
    assert (failure.code, failure.scope) == ("total_timeout", "call")


@pytest.mark.parametrize("api", APIS)
async def test_cancellation_closes_the_stream_at_once(api: str) -> None:
    async with (
        model_apis(Turn(text="one two three", hang_after=BEGUN[api])) as apis,
        client_of(api, apis) as client,
    ):
        with trio.fail_after(10), trio.CancelScope() as scope:
            await client.respond(asking(), on_text=lambda _: scope.cancel(), limits=LIMITS)
        assert scope.cancelled_caught
        with trio.fail_after(5):
            await apis.left.wait()


@pytest.mark.parametrize("api", APIS)
async def test_a_web_page_is_no_answer(api: str) -> None:
    page = Turn(body=b"<!doctype html><h1>Sign in</h1>", content_type="text/html")
    async with model_apis(page) as apis:
        failure = await failed(api, apis)
    assert failure.code in ("not_a_stream", "malformed_answer")


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"type": "response.output_text.delta", "delta": 3}\n\n',
        b"data: {\n\n",
        b"data: []\n\n",
        b'data: {"candidates": 7, "choices": 7, "type": "response.completed"}\n\n',
        b"",
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_nonsense_in_the_stream_is_a_broken_answer(api: str, body: bytes) -> None:
    async with model_apis(Turn(body=body)) as apis:
        failure = await failed(api, apis)
    assert failure.code in ("malformed_answer", "not_a_stream", "ended_early")


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_connection_is_named(api: str) -> None:
    async with model_apis() as apis:
        pass
    failure = await failed(api, apis)
    assert failure.code == "connection_refused"


async def test_one_document_in_place_of_a_stream_is_read() -> None:
    chat = {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    content = [{"type": "output_text", "text": "hi"}]
    responses = {
        "object": "response",
        "id": "r",
        "model": "m",
        "status": "completed",
        "output": [{"type": "message", "content": content}],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    for api, document in (("chat", chat), ("openai", responses)):
        turn = Turn(body=json.dumps(document).encode(), content_type="application/json")
        async with model_apis(turn) as apis, client_of(api, apis) as client:
            response = await client.respond(asking())
        assert (response.text, response.stop_reason) == ("hi", "end_turn")
        assert response.usage.total_tokens == 5


async def test_the_responses_api_has_no_stop_sequences() -> None:
    async with model_apis() as apis, client_of("openai", apis) as client:
        with pytest.raises(UsageError, match="no stop sequences") as caught:
            await client.respond(asking(options=ModelOptions(stop_sequences=("END",))))
    assert 'api = "chat"' in (caught.value.hint or "")
    assert apis.asked == []
