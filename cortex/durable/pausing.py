"""Answers that a provider pauses while its own tools work: they go on in further steps."""

from collections.abc import Awaitable, Callable
from functools import reduce
from operator import add
from typing import Final, Protocol

import attrs

from cortex.domain.model import ModelRequest, ModelResponse
from cortex.durable.codec import StepInput, input_of

PAUSE: Final = "pause_turn"
PAUSES_MAX: Final = 50
"""Far more than the work of one answer takes; the next one is returned as it is."""


class Ask(Protocol):
    """Makes a model call as a step of this key."""

    def __call__(
        self, key: str, request: ModelRequest, given: StepInput, /
    ) -> Awaitable[ModelResponse]: ...


async def unpaused(
    ask: Ask,
    key: str,
    request: ModelRequest,
    given: StepInput,
    *,
    keyed: Callable[[str], str],
) -> ModelResponse:
    """Ask a model; while it pauses, send its answer back as it is. Return all parts as one answer.

    `key` is the step of the first part; `keyed` returns those of the others by their names.
    """
    response = await ask(key, request, given)
    if response.stop_reason != PAUSE:
        return response
    parts = [response]
    while parts[-1].stop_reason == PAUSE and len(parts) <= PAUSES_MAX:
        request = attrs.evolve(request, messages=(*request.messages, parts[-1].as_message()))
        given = input_of(request.to_json(), what=f"input of model call {key!r}, continued")
        parts.append(await ask(keyed(f"{key}, continued"), request, given))
    return attrs.evolve(
        parts[-1],
        content=tuple(block for part in parts for block in part.content),
        usage=reduce(add, (part.usage for part in parts)),
    )
