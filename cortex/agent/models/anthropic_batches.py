"""Message Batches of the Anthropic API, on its SDK.

The API takes no idempotency key, and its list of batches names no custom ids. A pod that created a
batch and died before it recorded the id leaves a batch that is found by the custom ids in its
results.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
import orjson
import trio

from cortex.agent.models.answer import ModelAnswer
from cortex.agent.models.batch_api import BatchResult, RemoteBatch
from cortex.agent.models.client import CallLimits
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import BrokenAnswerError, ErrorEventError
from cortex.agent.models.events import AnswerDecoder
from cortex.agent.models.failures import ErrorReader, translate
from cortex.agent.models.usage import counted
from cortex.domain.failure import CallFailure
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.redaction import excerpt
from cortex.domain.usage import Usage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types.messages import MessageBatch


CALL_S: Final = 60.0
"""One request about a batch, but for its creation and its results."""
RESULTS_S: Final = 540.0
"""All results of one batch."""
PAGE: Final = 100
UNPAID: Final = {
    "canceled": "its batch was cancelled",
    "expired": "its batch expired before it was processed",
}
PROTOCOL: Final = "the Message Batches API"
TIER: Final = "batch"
T = TypeVar("T")


class Client(Protocol):
    """The client of single calls, as far as batches are made with it."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def host(self) -> str: ...
    async def loaded(self) -> "AsyncAnthropic":
        """Return the SDK's client. Raises `UsageError` without a usable key."""
        ...

    def reader(self) -> ErrorReader: ...
    def unix_ms(self) -> int: ...
    def params_of(self, request: ModelRequest) -> dict[str, Any]:
        """Return what the API takes for a request that is one of a batch."""
        ...


@attrs.frozen
class AnthropicBatches:
    """A `BatchApi`."""

    client: Client

    async def prepared(self, request: ModelRequest) -> Any:
        await self.client.loaded()
        return self.client.params_of(request)

    async def create(self, prepared: Mapping[str, Any], *, within_s: float) -> RemoteBatch:
        sdk = await self.client.loaded()
        entries: Any = [
            {"custom_id": custom_id, "params": params} for custom_id, params in prepared.items()
        ]

        async def create() -> RemoteBatch:
            return _remote(await sdk.messages.batches.create(requests=entries))

        return await self._bounded(create, within_s)

    async def retrieve(self, batch_id: str) -> RemoteBatch:
        sdk = await self.client.loaded()

        async def retrieve() -> RemoteBatch:
            return _remote(await sdk.messages.batches.retrieve(batch_id))

        return await self._bounded(retrieve, CALL_S)

    async def cancel(self, batch_id: str) -> None:
        sdk = await self.client.loaded()

        async def cancel() -> None:
            await sdk.messages.batches.cancel(batch_id)

        await self._bounded(cancel, CALL_S)

    async def since(self, instant: datetime) -> list[RemoteBatch]:
        """Return the batches that were created since; the API lists the newest first."""
        sdk = await self.client.loaded()
        found: list[RemoteBatch] = []
        after: dict[str, Any] = {}
        while True:

            async def next_page(after: Mapping[str, Any] = after) -> Any:
                return await sdk.messages.batches.list(limit=PAGE, **after)

            page = await self._bounded(next_page, CALL_S)
            fresh = [_remote(each) for each in page.data if each.created_at >= instant]
            found += fresh
            if not page.has_more or len(fresh) < len(page.data):
                return found
            after = {"after_id": page.data[-1].id}

    async def results(self, batch_id: str, take: Callable[[BatchResult], Awaitable[None]]) -> None:
        sdk = await self.client.loaded()

        async def read() -> None:
            api = sdk.messages.batches.with_streaming_response
            async with api.results(batch_id) as response:
                async for line in response.iter_lines():
                    if line.strip():
                        await take(_result(line))

        await self._bounded(read, RESULTS_S)

    async def _bounded(self, call: Callable[[], Awaitable[T]], within_s: float) -> T:
        """Make a call. Raises Cortex's errors in place of the SDK's."""
        limits = CallLimits(total_s=within_s)
        blank = CallFailure(
            model="batches",
            host=self.client.host,
            type="",
            protocol=PROTOCOL,
            address=self.client.endpoint.address_from,
        )
        try:
            return await _within(call, within_s)
        except Exception as error:
            translated = translate(
                error,
                blank,
                reader=self.client.reader(),
                endpoint=self.client.endpoint,
                limits=limits,
                now=datetime.fromtimestamp(self.client.unix_ms() / 1000, UTC),
            )
            if translated is None:
                raise
            raise translated from error


async def _within(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    with trio.CancelScope(deadline=trio.current_time() + seconds):
        return await call()
    raise BrokenAnswerError("total_timeout", f"no complete answer within {seconds:g} s")


def _remote(batch: "MessageBatch") -> RemoteBatch:
    counts = batch.request_counts
    total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
    return RemoteBatch(
        id=batch.id,
        created_at=batch.created_at,
        call_count=total,
        has_ended=batch.processing_status == "ended",
    )


def _result(line: str) -> BatchResult:
    """Read one line of the results. Raises `BrokenAnswerError` for one that is none."""
    try:
        entry = orjson.loads(line)
        custom_id, result = str(entry["custom_id"]), entry["result"]
        kind = result["type"]
        if kind == "succeeded":
            return _answered(custom_id, result["message"])
        if kind == "errored":
            error = result["error"]
            error = error.get("error", error)
            message = f"{error.get('type')}: {excerpt(str(error.get('message')))}"
        else:
            message = UNPAID.get(kind, f"its batch says {excerpt(str(kind))}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"a result of a batch is malformed: {error!r:.200}"
        raise BrokenAnswerError("malformed_answer", text) from error
    return BatchResult(custom_id=custom_id, response=None, usage=None, failure=message)


def _answered(custom_id: str, message: Mapping[str, Any]) -> BatchResult:
    usage = attrs.evolve(counted(Usage(), message.get("usage")), service_tier=TIER)
    try:
        response = _response(message)
    except (BrokenAnswerError, ErrorEventError) as error:
        failure = f"its answer cannot be read: {error}"
        return BatchResult(custom_id=custom_id, response=None, usage=usage, failure=failure)
    response = attrs.evolve(response, usage=usage)
    return BatchResult(custom_id=custom_id, response=response, usage=usage, failure=None)


def _response(message: Mapping[str, Any]) -> ModelResponse:
    """Read a message by the rules for answers that came as one document."""
    decoder, answer = AnswerDecoder("application/json"), ModelAnswer()
    for event in decoder.feed(orjson.dumps(message)):
        answer.take(event)
    for event in decoder.finish():
        answer.take(event)
    answer.finish()
    return answer.response()
