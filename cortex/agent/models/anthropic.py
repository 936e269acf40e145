"""The model client on the Anthropic SDK."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cortex.agent.models import anthropic_errors
from cortex.agent.models.anthropic_batches import AnthropicBatches
from cortex.agent.models.anthropic_caching import Marking, Markings, marked
from cortex.agent.models.batch_api import BatchApi
from cortex.agent.models.client import CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import ErrorEventError
from cortex.agent.models.events import AnswerDecoder
from cortex.agent.models.failures import ApiError, ErrorReader
from cortex.agent.models.neutral import blocks_of
from cortex.agent.models.streamed import Body, Exchange, StreamingClient
from cortex.domain.classification import register_library
from cortex.domain.errors import UsageError
from cortex.domain.model import (
    CONTAINER,
    CacheTtl,
    Capabilities,
    ModelOptions,
    ModelRequest,
    OutputFormat,
)
from cortex.domain.windows import window_of

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

PROVIDER: Final = "anthropic"
NO_KEY: Final = "none"
"""Sent to an endpoint without a key: the SDK sends something."""
DEFAULT_URL: Final = "https://api.anthropic.com"
FILES_MAX: Final = 600
"""Images of a request, and pages of its PDF files."""
FILES_MAX_OF_SMALL: Final = 100
SMALL_WINDOW: Final = 200_000
SIDE_OF_MANY: Final = 2_000
WITHOUT_OUTPUT: Final = (
    *("claude-2", "claude-3", "claude-opus-4-0", "claude-opus-4-2", "claude-sonnet-4-0"),
    "claude-sonnet-4-2",
)
"""The beginning of the names of models from before structured outputs, such as -4-20250514."""
OPTIONAL_MAX: Final = 24
UNIONS_MAX: Final = 16
"""Of a schema for structured output: "too many parameters with union types … limit: 16"."""
_OK: Final = 200
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


register_library(anthropic_errors.ERRORS)


def standard(*, api_key: str | None = None, base_url: str | None = None) -> Endpoint:
    """Return the provider's own endpoint; what is None comes from the SDK's variables."""
    return Endpoint(
        name=PROVIDER,
        kind="anthropic",
        base_url=base_url,
        api_key=api_key,
        key_from="ANTHROPIC_API_KEY",
        address_from="ANTHROPIC_BASE_URL",
        vendor="Anthropic",
    )


STANDARD: Final = standard()


class AnthropicModel(StreamingClient["AsyncAnthropic"]):
    """A `ModelClient` for the Messages API.

    Missing settings come from where the SDK looks: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and so on.
    """

    def __init__(
        self,
        endpoint: Endpoint = STANDARD,
        *,
        unix_ms: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(endpoint, unix_ms=unix_ms)
        self._markings = Markings()

    def provider_of(self, model: str) -> str:  # noqa: ARG002 -- all of them
        return PROVIDER

    def capabilities(self, model: str) -> Capabilities:
        """See its pages on vision, PDF support and structured outputs."""
        window = window_of(model)
        most = FILES_MAX if window is None or window > SMALL_WINDOW else FILES_MAX_OF_SMALL
        return Capabilities(
            images_max=most,
            pages_max=most,
            side_of_many=SIDE_OF_MANY,
            batches=True,
            output=not model.startswith(WITHOUT_OUTPUT),
            optional_max=OPTIONAL_MAX,
            unions_max=UNIONS_MAX,
        )

    def _make(self) -> "AsyncAnthropic":
        return _make_client(self.endpoint)

    async def _close(self, sdk: "AsyncAnthropic") -> None:
        await sdk.close()

    def _exchange(
        self, sdk: "AsyncAnthropic", request: ModelRequest, limits: CallLimits
    ) -> Exchange:
        from cortex.agent.models.http import timeout_of  # noqa: PLC0415 -- as above

        marking = self._markings.of(request.model)
        now = datetime.fromtimestamp(self._unix_ms() / 1000, UTC)
        arguments = marked(arguments_of(request, now), request.cache, marking)

        @asynccontextmanager
        async def body() -> AsyncIterator[Body]:
            async with sdk.messages.with_streaming_response.create(
                stream=True, timeout=timeout_of(limits.connect_s), **arguments
            ) as response:
                headers = response.headers
                kind = headers.get("content-type", "nothing").partition(";")[0]
                yield Body(
                    pieces=response.iter_bytes(),
                    decoder=AnswerDecoder(kind.strip().lower()),
                    headers=headers,
                    request_id=headers.get("request-id"),
                    is_framed="content-length" in headers or "transfer-encoding" in headers,
                )

        return Exchange(
            host=self.host,
            body=body(),
            reader=self.reader(),
            mend=partial(self._weaken, request, marking),
        )

    @property
    def host(self) -> str:
        """The address of its API, once its SDK is loaded."""
        return "its API" if self._sdk is None else self._sdk.base_url.netloc.decode("ascii")

    def reader(self) -> ErrorReader:
        from anthropic import APIConnectionError  # noqa: PLC0415 -- loaded by now

        return ErrorReader(
            protocol="the Messages API", connection_errors=(APIConnectionError,), read=_read
        )

    def batches(self) -> BatchApi:
        return AnthropicBatches(self)

    def params_of(self, request: ModelRequest) -> dict[str, Any]:
        """Return what the API takes for a request that is one of a batch."""
        now = datetime.fromtimestamp(self._unix_ms() / 1000, UTC)
        arguments = arguments_of(request, now)
        extra = arguments.pop("extra_body", {})
        return marked({**arguments, **extra}, request.cache, self._markings.of(request.model))

    def _weaken(self, request: ModelRequest, marking: Marking, error: Exception) -> bool:
        """Return whether a request is to be made again with weaker marks of its cached prefix."""
        is_marked = request.cache is not CacheTtl.OFF
        return is_marked and self._markings.weaken(request.model, marking, error)


# --- a request


def arguments_of(request: ModelRequest, now: datetime) -> dict[str, Any]:
    """Return the arguments of the SDK for a request. `now` is the wall clock."""
    options = request.options
    tools = [*request.tools, *options.server_tools]
    messages = list(_messages(request))
    optional = {
        "system": request.system,
        "tools": tools,
        "stop_sequences": list(options.stop_sequences),
        "tool_choice": _tool_choice(options, has_tools=bool(tools)),
        "thinking": _thinking(options, messages),
        "output_config": _output_config(options, request.output),
        "metadata": dict(options.metadata),
        "container": _container(request, now),
        "extra_body": _extra(options),
    }
    return {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages,
        **{name: value for name, value in optional.items() if value},
    }


def _messages(request: ModelRequest) -> Iterator[Mapping[str, Any]]:
    """Yield the messages without the blocks of other providers; an empty one is left out."""
    for message in request.messages:
        if isinstance(message["content"], str):
            yield message
        elif blocks := [each for each in blocks_of(message, PROVIDER) if not _is_container(each)]:
            yield {**message, "content": blocks}


def _is_container(block: Mapping[str, Any]) -> bool:
    return block.get("type") == CONTAINER


def _container(request: ModelRequest, now: datetime) -> Any:
    """Return where the conversation's code runs: the API refuses open calls without it.

    Else only while it is alive: the API fails for containers that it has given up, after days at
    most, and makes a new one where none is named.
    """
    blocks = [each for message in request.messages for each in blocks_of(message, PROVIDER)]
    last = next((each for each in reversed(blocks) if _is_container(each)), None)
    asked = {each.get("id") for each in blocks if each["type"] == "server_tool_use"}
    answered = {each.get("tool_use_id") for each in blocks}
    is_used = last is not None and (bool(asked - answered) or now < _end_of(last))
    used = last["id"] if last is not None and is_used else None
    given = request.options.extra.get(CONTAINER)
    if isinstance(given, Mapping):  # what is loaded into it, such as skills
        return {**({} if used is None else {"id": used}), **given}
    return given or used


def _end_of(container: Mapping[str, Any]) -> datetime:
    """Return until when a container lives if nothing uses it; long ago if that is unknown."""
    try:
        end = datetime.fromisoformat(str(container.get("expires_at")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return end if end.tzinfo is not None else end.replace(tzinfo=UTC)


def _tool_choice(options: ModelOptions, *, has_tools: bool) -> dict[str, Any] | None:
    if not has_tools or (options.tool_choice is None and options.parallel_calls):
        return None
    match options.tool_choice:
        case "none":
            return {"type": "none"}
        case None | "auto" | "any" as kind:
            choice: dict[str, Any] = {"type": kind or "auto"}
        case name:
            choice = {"type": "tool", "name": name}
    return choice if options.parallel_calls else {**choice, "disable_parallel_tool_use": True}


def _thinking(
    options: ModelOptions, messages: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    match options.thinking:
        case None:
            return None
        case "adaptive":
            return {"type": "adaptive"}
        case "off":
            return {"type": "disabled"}
        case tokens:
            budget = {"type": "enabled", "budget_tokens": tokens}
            return budget if _may_think(messages) else None


def _may_think(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the API takes a budget for thinking after these messages.

    The calls whose results it gets must begin with the model's own thinking. They do not where
    another model made the first of them, where their thinking holds a secret, or where a summary
    has taken its place: the model thinks once before several calls.
    """
    first: Mapping[str, Any] | None = None
    for message in reversed(messages):
        kinds = _kinds(message)
        if message["role"] == "assistant":
            first = message
        elif "tool_result" not in kinds:
            break
    return first is None or bool(_THINKING.intersection(_kinds(first)[:1]))


def _kinds(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    return ["text"] if isinstance(content, str) else [str(each.get("type")) for each in content]


def _output_config(options: ModelOptions, output: OutputFormat | None) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if options.effort is not None:
        config["effort"] = options.effort
    if output is not None:
        config["format"] = {"type": "json_schema", "schema": _schema(output)}
    return config


def _schema(output: OutputFormat) -> dict[str, Any]:
    """Return a schema as the API takes it: what it cannot enforce becomes part of descriptions."""
    from anthropic import transform_schema  # noqa: PLC0415 -- loaded by now

    try:
        return transform_schema(dict(output.schema))
    except (ValueError, TypeError, AssertionError) as error:
        raise UsageError(
            f"output {output.name!r}: the Messages API does not take its schema: {error}",
            hint="give each part of the schema a type",
        ) from error


def _extra(options: ModelOptions) -> dict[str, Any]:
    """Return what the SDK has no argument for: the API takes a temperature from older models."""
    extra = {name: value for name, value in options.extra.items() if name != CONTAINER}
    if options.temperature is not None:
        extra.setdefault("temperature", options.temperature)
    return extra


# --- the SDK's client and its errors


def _make_client(endpoint: Endpoint) -> "AsyncAnthropic":
    import httpx2  # noqa: PLC0415 -- with the SDK
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # noqa: PLC0415 -- slow to import

    from cortex.agent.models.http import (  # noqa: PLC0415 -- with httpx2
        checked_key,
        checked_url,
        http_client,
    )
    from cortex.http_client.tls import trusted  # noqa: PLC0415 -- with httpx2

    base_url = endpoint.base_url or (DEFAULT_URL if endpoint.is_named else None)
    if base_url is not None:
        checked_url(base_url, endpoint)
    api_key = endpoint.api_key
    if endpoint.is_named:  # else the SDK would take those of the environment
        api_key = checked_key(api_key, endpoint) if endpoint.needs_key else NO_KEY
    try:
        client = AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            open_telemetry=False,  # the pod traces its steps itself
            http_client=DefaultAsyncHttpxClient(verify=trusted(), trust_env=False),
        )
    except httpx2.InvalidURL as error:
        hint = f"set {endpoint.address_from} to an address such as {DEFAULT_URL}, or unset it"
        raise UsageError(f"the model's base URL is not a URL: {error}", hint=hint) from error
    url = checked_url(str(client.base_url), endpoint)
    client = client.with_options(http_client=http_client(url, DefaultAsyncHttpxClient))
    if not (client.auth_token or client.credentials):
        checked_key(client.api_key, endpoint)
    for secret in filter(None, (client.api_key, client.auth_token)):
        checked_key(secret, endpoint)
    if endpoint.is_named:
        client._custom_headers = {}  # noqa: SLF001 -- ANTHROPIC_CUSTOM_HEADERS is for the standard one
    _ = client.messages  # imports what the first call needs
    return client


def _read(error: Exception) -> ApiError | None:
    from anthropic import APIStatusError  # noqa: PLC0415 -- loaded by now

    if isinstance(error, ErrorEventError):
        body = error.body["error"]
        body = body if isinstance(body, dict) else {"message": str(body)}
        details = body.get("details")
        cause = details.get("error_code") if isinstance(details, dict) else None
        type_, message = _text(body.get("type")), _text(body.get("message")) or str(error)
        return ApiError(
            status=_OK,
            type=type_,
            message=message,
            code=anthropic_errors.code_of(_OK, type_=type_, cause=cause, message=message),
            headers=error.headers,
        )
    if isinstance(error, APIStatusError):
        message = error.api_message or error.message
        return ApiError(
            status=error.status_code,
            type=error.type,
            message=message,
            code=anthropic_errors.code_of(
                error.status_code, type_=error.type, cause=error.error_code, message=message
            ),
            headers=error.response.headers,
            request_id=error.request_id,
            pause_s=lambda now: anthropic_errors.ERRORS.pause_s(error, now),
        )
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
