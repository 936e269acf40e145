"""`llm_generate`: one model response, as a job of its own."""

from typing import Any, Final

from cortex.domain.errors import RejectedError
from cortex.domain.model import ModelOptions, ModelRequest
from cortex.domain.model_options import NO_OPTIONS, check_options, checked_fallback
from cortex.domain.timeouts import check_timeout
from cortex.durable.context import Context
from cortex.durable.files import with_references
from cortex.durable.generation import Generated, check_max_tokens, conversation
from cortex.durable.outputs import output_of
from cortex.durable.registry import job

NAME: Final = "llm_generate"


def check(
    model: str,
    *,
    prompt: str | None = None,
    messages: list[dict[str, Any]] | None = None,
    system: str = "",  # noqa: ARG001
    max_tokens: int = 4096,
    options: ModelOptions = NO_OPTIONS,
    output: dict[str, Any] | None = None,
    fallback: list[str] | None = None,
    timeout_s: float | None = None,
) -> None:
    """Raise for a request that no model takes."""
    if not model:
        raise RejectedError("model is empty", hint="name a model")
    with_references(conversation(prompt, messages, what=NAME), what=NAME)
    check_max_tokens(max_tokens)
    if output is not None:
        output_of(output, what=NAME)
    for each in (model, *checked_fallback(fallback or (), model=model, what=NAME)):
        what = NAME if each == model else f"{NAME} with fallback {each!r}"
        check_options(options, model=each, max_tokens=max_tokens, what=what)
    if timeout_s is not None:
        check_timeout("llm_call", timeout_s, source="timeout_s")


@job(NAME, check=check)
async def llm_generate(
    ctx: Context,
    model: str,
    *,
    prompt: str | None = None,
    messages: list[dict[str, Any]] | None = None,
    system: str = "",
    max_tokens: int = 4096,
    options: ModelOptions = NO_OPTIONS,
    output: dict[str, Any] | None = None,
    fallback: list[str] | None = None,
    timeout_s: float | None = None,
) -> Generated:
    """Ask a model once, with a prompt or with messages, and return what it says.

    With a JSON schema as `output`, the result's `output` is what the answer says. Raises
    `InvalidOutputError` if it stops before it is done. The models of `fallback` are asked in this
    order while the first one cannot answer.
    """
    request = ModelRequest(
        model=model,
        messages=tuple(conversation(prompt, messages, what=NAME)),
        system=system,
        max_tokens=max_tokens,
        options=options,
        fallback=tuple(fallback or ()),
    )
    return await ctx.generate("generate", request, output=output, timeout=timeout_s, what=NAME)
