"""The model client on the Anthropic SDK.

Streams every call and enforces its own limits. The SDK's retries are off, since one place decides
about retries. Pings would reset the SDK's read time-out, while only content counts here. Importing
the SDK takes 0.5 to 1 s of CPU, so it happens in `preload` or on first use.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import trio

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.anthropic_caching import Marking, Markings, marked
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.errors import (
    BrokenAnswerError,
    ErrorEventError,
    ModelRejectedError,
    ModelUnavailableError,
)
from cortex.agent.models.events import AnswerDecoder
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError
from cortex.domain.failure import CLIENT_NOT_LOADED, CallFailure
from cortex.domain.model import CacheTtl, ModelRequest, ModelResponse
from cortex.domain.redaction import excerpt
from cortex.domain.usage import Usage

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic, AsyncAPIResponse

CONNECTIONS_MAX = 1_100  # a thousand streams, and room for closing ones
CONNECTIONS_IDLE_MAX = 100  # the pool checks each idle one on every call
LAST_BYTES_S = 2.0  # after message_stop, for the end of the body: then the connection can be kept


class AnthropicModel:
    """A `ModelClient` for one trio run.

    Missing settings come from where the SDK looks: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and so on.
    `unix_ms` is the wall clock: it is used for a Retry-After date if the server sends no Date.
    """

    provider: Final = "anthropic"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        unix_ms: Callable[[], int] | None = None,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._unix_ms = unix_ms or system_chance().unix_ms
        self._loading = Lock()
        self._client: AsyncAnthropic | None = None
        self._markings = Markings()

    def preload(self) -> "AsyncAnthropic":
        """Import the SDK and make its client. Blocks for a second: call it in a thread.

        Raises `UsageError` when there is no usable key or address.
        """
        with self._loading:
            if self._client is None:
                self._client = _make_client(self._api_key, self._base_url)
            return self._client

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> ModelResponse:
        deadline = trio.current_time() + limits.total_s
        client = await self._loaded(request, deadline, limits)
        answer = ModelAnswer(
            model=request.model, on_text=on_text, on_open=on_open, on_usage=on_usage
        )
        while True:
            marking = self._markings.of(request.model)
            call = _StreamedCall(
                client,
                request,
                marking=marking,
                answer=answer,
                limits=limits,
                unix_ms=self._unix_ms,
            )
            try:
                return await call.run(deadline)
            except ModelRejectedError as error:
                # Refused at once and not paid for; a server that takes no marks is none the worse.
                is_marked = request.cache is not CacheTtl.OFF
                if not (is_marked and self._markings.weaken(request.model, marking, error)):
                    raise

    async def _loaded(
        self, request: ModelRequest, deadline: float, limits: CallLimits
    ) -> "AsyncAnthropic":
        """Return the client once the SDK is imported: the call's clock runs meanwhile."""
        if self._client is not None:
            return self._client
        with trio.CancelScope(deadline=deadline):
            # A slow import must not keep a pod from shutting down.
            try:
                return await trio.to_thread.run_sync(self.preload, abandon_on_cancel=True)
            except UsageError as error:
                raise error.with_way_out() from error
        # Raised as it is: to translate an error would wait for the import.
        raise ModelUnavailableError(
            CallFailure(
                model=request.model, host="its API", type=CLIENT_NOT_LOADED, limit_s=limits.total_s
            ),
            f"the SDK was still being imported after {limits.total_s:g} s",
        )

    async def aclose(self) -> None:
        """Close the idle connections. Calls in flight break."""
        if self._client is not None:
            await self._client.close()


class _StreamedCall:
    """One call, from its request to its complete answer."""

    def __init__(
        self,
        client: "AsyncAnthropic",
        request: ModelRequest,
        *,
        marking: Marking,
        answer: ModelAnswer,
        limits: CallLimits,
        unix_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._marking = marking
        self._request = request
        self._limits = limits
        self._unix_ms = unix_ms
        self._decoder = AnswerDecoder()
        self._answer = answer
        self._request_id: str | None = None
        self._wrong: Exception | None = None

    async def run(self, deadline: float) -> ModelResponse:
        """Return the answer if it is complete at `deadline`, on trio's clock."""
        from cortex.agent.models.anthropic_errors import translate  # noqa: PLC0415 - it imports the SDK

        try:
            await self._stream_until(deadline)
            return self._answer.response()
        except Exception as error:
            now = datetime.fromtimestamp(self._unix_ms() / 1000, UTC)
            translated = translate(error, self._failure(), limits=self._limits, now=now)
            if translated is None:
                raise
            raise translated from error

    async def _stream_until(self, deadline: float) -> None:
        with trio.CancelScope(deadline=deadline) as total:
            await self._stream()
        if total.cancelled_caught:
            self._answer.break_off()
            if not self._answer.complete:
                message = f"no complete answer within {self._limits.total_s:g} s"
                raise BrokenAnswerError("total_timeout", message)

    async def _stream(self) -> None:
        """Read the answer, for as long as content keeps coming."""
        with trio.CancelScope() as reading:
            try:
                await self._read(reading)
            except Exception:
                self._answer.break_off()
                if not self._answer.complete:  # else the connection broke after its end
                    raise
        if self._wrong is not None:
            raise self._wrong
        if reading.cancelled_caught:
            self._answer.break_off()
            if not self._answer.complete:
                raise BrokenAnswerError("idle_timeout", f"no content for {self._limits.idle_s:g} s")

    async def _read(self, reading: trio.CancelScope) -> None:
        """Read the body; a failure to decode it is kept, and cancels `reading`.

        Raised from the loop it would leave the SDK's generators unfinished, to be ended by the
        garbage collector. A cancelled read ends them all.
        """
        async with self._client.messages.with_streaming_response.create(
            stream=True, **self._arguments()
        ) as response:
            headers = response.headers
            self._request_id = headers.get("request-id")
            kind = headers.get("content-type", "nothing").partition(";")[0]
            self._decoder = AnswerDecoder(kind.strip().lower())
            reading.deadline = trio.current_time() + self._limits.idle_s
            async for data in response.iter_bytes():
                if self._wrong is not None or self._answer.complete:
                    continue
                if self._take(self._decoder.feed(data), response):
                    reading.deadline = trio.current_time() + self._patience_s
                if self._wrong is not None:
                    reading.cancel()
            if self._wrong is None and not self._answer.complete:
                self._take(self._decoder.finish(), response)
                is_framed = "content-length" in headers or "transfer-encoding" in headers
                self._answer.finish(is_framed=is_framed, is_cut=self._decoder.is_cut)

    @property
    def _patience_s(self) -> float:
        return LAST_BYTES_S if self._answer.complete else self._limits.idle_s

    def _take(self, events: Iterator[dict[str, Any]], response: "AsyncAPIResponse[Any]") -> bool:
        """Pass events to the answer; True if it grew."""
        grew = False
        try:
            for event in events:
                grew |= self._answer.take(event)
                if self._answer.complete:
                    break
        except ErrorEventError as error:
            self._wrong = _status_error(error, response)
            self._wrong.__cause__ = error
        except Exception as error:  # noqa: BLE001 - raised when the body is closed
            self._wrong = error
        return grew and self._wrong is None

    def _arguments(self) -> dict[str, Any]:
        import httpx2  # noqa: PLC0415 - part of the SDK, and as slow to import

        arguments = marked(self._request.to_json(), self._request.cache, self._marking)
        temperature = arguments.pop("options", {}).get("temperature")
        if temperature is not None:  # the API takes it from older models; the SDK has dropped it
            arguments["extra_body"] = {"temperature": temperature}
        connect_s = self._limits.connect_s
        timeout = httpx2.Timeout(None, connect=connect_s, pool=connect_s, write=connect_s)
        return {**arguments, "timeout": timeout}

    def _failure(self) -> CallFailure:
        return CallFailure(
            model=self._request.model,
            host=self._client.base_url.netloc.decode("ascii"),
            type="",
            request_id=self._request_id,
            usage=self._answer.usage,
            has_content=self._answer.has_content,
        )


def _make_client(api_key: str | None, base_url: str | None) -> "AsyncAnthropic":
    import httpx2  # noqa: PLC0415 - with the SDK
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # noqa: PLC0415 - slow to import

    from cortex.http_client.client import origin_of  # noqa: PLC0415 - with httpx2
    from cortex.http_client.proxies import Proxies, library_proxy  # noqa: PLC0415 - with httpx2
    from cortex.http_client.tls import trusted  # noqa: PLC0415 - with httpx2

    limits = httpx2.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_IDLE_MAX
    )
    certificates = trusted()
    plain = DefaultAsyncHttpxClient(limits=limits, verify=certificates, trust_env=False)
    try:
        client = AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            open_telemetry=False,  # the pod traces its steps itself
            http_client=plain,
        )
    except httpx2.InvalidURL as error:
        raise UsageError(f"the model's base URL is not a URL: {error}", hint=_BASE_URL) from error
    if client.base_url.scheme not in ("http", "https"):
        raise UsageError(f"the model's base URL is {str(client.base_url)!r}", hint=_BASE_URL)
    proxy = Proxies.of_environment().configured(origin_of(client.base_url))
    if proxy is not None:
        plain = DefaultAsyncHttpxClient(
            limits=limits, verify=certificates, trust_env=False, proxy=library_proxy(proxy)
        )
        client = client.with_options(http_client=plain)
    plain.event_hooks = {"response": [_refuse_redirect]}
    if not (client.api_key or client.auth_token or client.credentials):
        raise UsageError("there is no API key for the model", hint="set ANTHROPIC_API_KEY")
    for secret in (client.api_key, client.auth_token):
        if secret and not (secret.isascii() and secret.isprintable()):
            # Refused here, since an error of the HTTP layer would quote it.
            raise UsageError(
                "the API key for the model contains a line break or other invalid characters",
                hint="check ANTHROPIC_API_KEY",
            )
    _ = client.messages  # imports what the first call needs
    return client


_BASE_URL = "set ANTHROPIC_BASE_URL to an address such as https://api.anthropic.com, or unset it"


async def _refuse_redirect(response: "httpx2.Response") -> None:
    """Refuse to follow a redirect to another host or port: the SDK would send it the key."""
    if not response.has_redirect_location:
        return
    asked = response.request.url
    place = asked.join(response.headers["location"])
    is_upgrade = (asked.scheme, place.scheme) == ("http", "https") and asked.port == place.port
    is_same = (asked.scheme, asked.port) == (place.scheme, place.port)
    if place.host == asked.host and (is_same or is_upgrade):
        return
    address = f"{place.scheme}://{place.netloc.decode('ascii', 'replace')}"
    raise BrokenAnswerError(
        "redirected", f"redirects to {excerpt(address)}, which gets no key and no request"
    )


def _status_error(event: ErrorEventError, response: "AsyncAPIResponse[Any]") -> Exception:
    """The SDK's error for an error event, as its own stream would raise it."""
    from anthropic import APIStatusError  # noqa: PLC0415 - slow to import

    return APIStatusError(str(event), response=response.http_response, body=event.body)
