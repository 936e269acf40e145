"""A streamed call of any provider's API, under the limits of Cortex.

The SDKs' retries are off, since one place decides about retries. Pings would reset their read
time-outs, while only content counts here. Importing an SDK takes 0.5 to 1.5 s of CPU, so it happens
in `preload` or on first use.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
import trio

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.batch_api import BatchApi
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import (
    BrokenAnswerError,
    ErrorEventError,
    ModelRejectedError,
    ModelUnavailableError,
)
from cortex.agent.models.failures import ErrorReader, Headers, translate
from cortex.agent.models.neutral import given_back, signed
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError
from cortex.domain.failure import CLIENT_NOT_LOADED, CallFailure
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.usage import Usage

LAST_BYTES_S: Final = 2.0
"""After the answer's end, for that of the body: then the connection can be kept."""
Sdk = TypeVar("Sdk")


class Decoder(Protocol):
    """Makes events of the Messages API of what a body consists of."""

    @property
    def is_cut(self) -> bool:
        """The body ended inside an event, which `finish` has dropped."""
        ...

    def feed(self, data: Any, /) -> Iterator[dict[str, Any]]:
        """Yield the events that are complete now. Raises `BrokenAnswerError` for anything else."""
        ...

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield the events that the end of the body completes."""
        ...


@attrs.frozen(kw_only=True)
class Body:
    """The beginning of an answer: its headers are there."""

    pieces: AsyncIterator[Any]
    decoder: Decoder
    headers: Headers
    request_id: str | None
    is_framed: bool
    """A length or a last chunk shows that the body is whole."""


@attrs.frozen(kw_only=True)
class Exchange:
    """One request, ready to be sent."""

    host: str
    body: AbstractAsyncContextManager[Body]
    """Sends it; raises the SDK's errors."""
    reader: ErrorReader
    mend: Callable[[ModelRejectedError | ModelUnavailableError], bool] = lambda _: False
    """Returns whether a request that failed without an answer is to be translated anew."""


class StreamingClient(ABC, Generic[Sdk]):
    """What the clients on SDKs share: a `ModelClient` for one trio run.

    `unix_ms` is the wall clock: it is used for a Retry-After date if the server sends no Date.
    """

    def __init__(self, endpoint: Endpoint, *, unix_ms: Callable[[], int] | None = None) -> None:
        self.endpoint: Final = endpoint
        self._unix_ms = unix_ms or system_chance().unix_ms
        self._loading = Lock()
        self._sdk: Sdk | None = None

    @abstractmethod
    def provider_of(self, model: str) -> str:
        """See `ModelClient`."""

    @abstractmethod
    def capabilities(self, model: str) -> Capabilities:
        """See `ModelClient`."""

    @abstractmethod
    def _make(self) -> Sdk:
        """Import the SDK and make its client. Raises `UsageError` without a key or an address."""

    @abstractmethod
    def _exchange(self, sdk: Sdk, request: ModelRequest, limits: CallLimits) -> Exchange:
        """Translate a request. Raises `UsageError` for what the provider does not have."""

    @abstractmethod
    async def _close(self, sdk: Sdk) -> None: ...

    def preload(self) -> Sdk:
        """Import the SDK and make its client. Blocks for a second: call it in a thread.

        Raises `UsageError` when there is no usable key or address.
        """
        with self._loading:
            if self._sdk is None:
                self._sdk = self._make()
            return self._sdk

    async def respond(
        self,
        request: ModelRequest,
        *,
        name: str | None = None,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> ModelResponse:
        """See `ModelClient.respond`. `name`: the model's, where the request has a prefix, too."""
        deadline = trio.current_time() + limits.total_s
        sdk = await self._loaded(request, deadline, limits)
        answer = ModelAnswer(
            model=request.model, on_text=on_text, on_open=on_open, on_usage=on_usage
        )
        named = request if name is None else attrs.evolve(request, model=name)
        if self.endpoint.is_named:
            own = given_back(named.messages, self.endpoint.name, self.endpoint.kind)
            named = attrs.evolve(named, messages=own)
        while True:
            exchange = self._exchange(sdk, named, limits)
            call = _StreamedCall(
                exchange,
                request.model,
                endpoint=self.endpoint,
                answer=answer,
                limits=limits,
                unix_ms=self._unix_ms,
            )
            try:
                response = await call.run(deadline)
            except (ModelRejectedError, ModelUnavailableError) as error:
                if answer.has_content or not exchange.mend(error):
                    raise
            else:
                return self._signed(response)

    def _signed(self, response: ModelResponse) -> ModelResponse:
        if not self.endpoint.is_named:
            return response
        return attrs.evolve(response, content=signed(response.content, self.endpoint.name))

    async def loaded(self) -> Sdk:
        """Return the client once the SDK is imported. Raises `UsageError` without a usable key."""
        if self._sdk is not None:
            return self._sdk
        return await trio.to_thread.run_sync(self.preload, abandon_on_cancel=True)

    def unix_ms(self) -> int:
        """The wall clock."""
        return self._unix_ms()

    def batches(self) -> BatchApi | None:
        """Return the batches of this endpoint; None: its API has none that Cortex uses."""
        return None

    async def _loaded(self, request: ModelRequest, deadline: float, limits: CallLimits) -> Sdk:
        """Return the client once the SDK is imported: the call's clock runs meanwhile."""
        if self._sdk is not None:
            return self._sdk
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
        if self._sdk is not None:
            await self._close(self._sdk)


class _StreamedCall:
    """One call, from its request to its complete answer."""

    def __init__(
        self,
        exchange: Exchange,
        model: str,
        *,
        endpoint: Endpoint,
        answer: ModelAnswer,
        limits: CallLimits,
        unix_ms: Callable[[], int],
    ) -> None:
        self._exchange = exchange
        self._model = model
        self._endpoint = endpoint
        self._limits = limits
        self._unix_ms = unix_ms
        self._answer = answer
        self._request_id: str | None = None
        self._wrong: Exception | None = None

    async def run(self, deadline: float) -> ModelResponse:
        """Return the answer if it is complete at `deadline`, on trio's clock."""
        try:
            await self._stream_until(deadline)
            return self._answer.response()
        except Exception as error:
            translated = translate(
                error,
                self._failure(),
                reader=self._exchange.reader,
                endpoint=self._endpoint,
                limits=self._limits,
                now=datetime.fromtimestamp(self._unix_ms() / 1000, UTC),
            )
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
        async with self._exchange.body as body:
            self._request_id = body.request_id
            reading.deadline = trio.current_time() + self._limits.idle_s
            async for data in body.pieces:
                if self._wrong is not None or self._answer.complete:
                    continue
                if self._take(body.decoder.feed(data), body.headers):
                    reading.deadline = trio.current_time() + self._patience_s
                if self._wrong is not None:
                    reading.cancel()
            if self._wrong is None and not self._answer.complete:
                self._take(body.decoder.finish(), body.headers)
                self._answer.finish(is_framed=body.is_framed, is_cut=body.decoder.is_cut)

    @property
    def _patience_s(self) -> float:
        return LAST_BYTES_S if self._answer.complete else self._limits.idle_s

    def _take(self, events: Iterator[dict[str, Any]], headers: Headers) -> bool:
        """Pass events to the answer; True if it grew."""
        grew = False
        try:
            for event in events:
                grew |= self._answer.take(event)
                if self._answer.complete:
                    break
        except ErrorEventError as error:
            error.headers = headers
            self._wrong = error
        except Exception as error:  # noqa: BLE001 - raised when the body is closed
            self._wrong = error
        return grew and self._wrong is None

    def _failure(self) -> CallFailure:
        return CallFailure(
            model=self._model,
            host=self._exchange.host,
            type="",
            request_id=self._request_id,
            usage=self._answer.usage,
            has_content=self._answer.has_content,
            protocol=self._exchange.reader.protocol,
            address=self._endpoint.address_from,
        )
