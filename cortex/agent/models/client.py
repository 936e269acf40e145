"""The interface of a model client, independent of the SDK."""

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.usage import Usage


@frozen(kw_only=True)
class CallLimits:
    """How long one call may take, in seconds.

    `idle_s` is the longest time without content once the answer has begun; pings are no content.
    """

    total_s: float = 300.0
    idle_s: float = 60.0
    connect_s: float = 30.0


DEFAULT_LIMITS = CallLimits()


class ModelClient(Protocol):
    """Anything that answers model requests."""

    def provider_of(self, model: str) -> str:
        """Return the provider's name as the semantic conventions for generative AI spell it."""
        ...

    def capabilities(self, model: str) -> Capabilities:
        """Return what a model can take, as far as this process knows; makes no call."""
        ...

    async def respond(
        self,
        request: ModelRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> ModelResponse:
        """Return the model's complete answer; `on_text` gets each piece of text as it arrives.

        `on_open` is called once, when the answer begins. `on_usage` gets the call's usage so far
        whenever that changes: a cancelled call has no other way to report it. Cancelling closes the
        stream at once and leaves nothing behind.

        Raises:
            ModelUnavailableError: the same call may succeed later (overload, network, time-out).
            ModelRejectedError: it never will (bad key, unknown model, request refused).
            UsageError: there is no usable API key or address, or the request asks for something
                that the provider does not have.
        """
        ...
