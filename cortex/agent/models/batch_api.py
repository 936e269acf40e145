"""The interface of a provider's batches: many calls at once, answered within a day."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import attrs

from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage


@attrs.frozen(kw_only=True)
class RemoteBatch:
    """A batch as its provider describes it."""

    id: str
    created_at: datetime
    call_count: int
    has_ended: bool


@attrs.frozen(kw_only=True)
class BatchResult:
    """What became of one call of a batch."""

    custom_id: str
    response: ModelResponse | None
    usage: Usage | None
    """What is billed, also if the answer cannot be read; None: nothing."""
    failure: str | None
    """Why there is no response."""


class BatchApi(Protocol):
    """The batches of one endpoint.

    Methods raise `ModelUnavailableError`, `ModelRejectedError` and, without a usable key or
    address, `UsageError`.
    """

    async def prepared(self, request: ModelRequest) -> Any:
        """Return a request as the API takes it in a batch."""
        ...

    async def create(self, prepared: Mapping[str, Any], *, within_s: float) -> RemoteBatch:
        """Create a batch of prepared requests, by their custom ids."""
        ...

    async def retrieve(self, batch_id: str) -> RemoteBatch: ...

    async def results(self, batch_id: str, take: Callable[[BatchResult], Awaitable[None]]) -> None:
        """Pass on the results of a batch that has ended."""
        ...

    async def since(self, instant: datetime) -> list[RemoteBatch]:
        """Return the batches that were created after an instant of the provider's clock."""
        ...

    async def cancel(self, batch_id: str) -> None:
        """Ask that what has not begun does not begin."""
        ...


class BatchModels(Protocol):
    """The models of a process, as far as their calls can be made in batches."""

    def endpoint_of(self, model: str) -> str:
        """Return the name of the endpoint that gets calls of a model. Raises `UsageError`."""
        ...

    def named_there(self, model: str) -> str:
        """Return a model's name at its endpoint."""
        ...

    def batch_endpoints(self) -> tuple[str, ...]:
        """Return the endpoints whose batches this process may use: those with a key."""
        ...

    def batches(self, endpoint: str) -> BatchApi:
        """Return the batches of one of `batch_endpoints`."""
        ...
