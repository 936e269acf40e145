"""One model response as the result of a job or of a flow's step: complete, or an error."""

from typing import Any, Final

import attrs

from cortex.domain.errors import InvalidOutputError, RejectedError, UsageError
from cortex.domain.model import ModelResponse

WAYS_OUT: Final = {
    "max_tokens": "raise max_tokens",
    "model_context_window_exceeded": "shorten the conversation",
}


@attrs.frozen(kw_only=True)
class Generated:
    """A model's complete response."""

    text: str
    model: str
    stop_reason: str | None
    input_tokens: int
    output_tokens: int
    output: Any = None
    """What the answer says, if a schema was given for it."""

    @classmethod
    def of(cls, response: ModelResponse, *, what: str, output: Any = None) -> "Generated":
        """Return a complete response; raises `InvalidOutputError` for another one."""
        text = response.text
        if response.stop_reason not in ("end_turn", "stop_sequence"):
            way_out = WAYS_OUT.get(response.stop_reason)
            message = f"{what}: the model stopped with {response.stop_reason!r}"
            raise InvalidOutputError(f"{message}: {way_out}" if way_out else message, raw=text)
        if not text.strip():
            raise InvalidOutputError(f"{what}: the model gave an empty answer", raw=text)
        return cls(
            text=text,
            model=response.model,
            stop_reason=response.stop_reason,
            input_tokens=response.usage.prompt_tokens,
            output_tokens=response.usage.output_tokens,
            output=output,
        )


def check_max_tokens(max_tokens: int) -> None:
    """Raise `RejectedError` for a limit that no response can keep."""
    if max_tokens < 1:
        raise RejectedError(f"max_tokens must be at least 1, got {max_tokens}")


def conversation(
    prompt: str | None, messages: list[dict[str, Any]] | None, *, what: str
) -> list[dict[str, Any]]:
    """Return the messages of a request. Raises `UsageError` unless one of the two is given."""
    if (prompt is None) == (not messages):
        raise UsageError(f"{what}: give either prompt or messages")
    return messages or [{"role": "user", "content": prompt}]
