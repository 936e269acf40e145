"""`llm_generate`: one model response, as a job of its own."""

from typing import Any, Final

import attrs

from cortex.domain.errors import InvalidOutputError, UsageError
from cortex.domain.model import ModelResponse
from cortex.durable.context import Context
from cortex.durable.registry import job

NAME: Final = "llm_generate"


@attrs.frozen(kw_only=True)
class Generated:
    """A model's complete response."""

    text: str
    model: str
    stop_reason: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: str


@job(NAME)
async def llm_generate(
    ctx: Context,
    model: str,
    *,
    prompt: str | None = None,
    messages: list[dict[str, Any]] | None = None,
    system: str = "",
    max_tokens: int = 4096,
    timeout_s: float | None = None,
) -> Generated:
    """Ask a model once, with a prompt or with messages, and return what it says.

    Raises `InvalidOutputError` if it stops before it is done.
    """
    response = await ctx.llm(
        "generate",
        model=model,
        messages=conversation(prompt, messages, what=NAME),
        system=system,
        max_tokens=max_tokens,
        timeout=timeout_s,
    )
    return Generated(
        text=text_of(response, what=NAME),
        model=response.model,
        stop_reason=response.stop_reason,
        input_tokens=response.usage.prompt_tokens,
        output_tokens=response.usage.output_tokens,
        cost_usd=str(ctx.cost_usd),
    )


def conversation(
    prompt: str | None, messages: list[dict[str, Any]] | None, *, what: str
) -> list[dict[str, Any]]:
    """Return the messages of a request. Raises `UsageError` unless one of the two is given."""
    if (prompt is None) == (not messages):
        raise UsageError(f"{what}: give either prompt or messages")
    return messages or [{"role": "user", "content": prompt}]


def text_of(response: ModelResponse, *, what: str) -> str:
    """Return a complete response's text; raises `InvalidOutputError` for another one."""
    text = response.text
    if response.stop_reason not in ("end_turn", "stop_sequence"):
        hint = "raise max_tokens" if response.stop_reason == "max_tokens" else None
        message = f"{what}: the model stopped with {response.stop_reason!r}"
        raise InvalidOutputError(message, raw=text, hint=hint)
    if not text.strip():
        raise InvalidOutputError(f"{what}: the model gave an empty answer", raw=text)
    return text
