"""What a model may be asked for beside its prompt: the rules of `ModelOptions`.

Limits here are either Cortex's own, far above any sensible value, or what the provider's API always
refuses: that is reported when an agent or flow is applied, not by its first call.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from cortex.domain.errors import InvalidValueError
from cortex.domain.model import ModelOptions

Path = tuple[str | int, ...]
Refusal = tuple[Path, str]

ANTHROPIC: Final = "anthropic"
TEMPERATURE_MAX: Final = 2.0
STOP_SEQUENCES_MAX: Final = 64
STOP_SEQUENCE_CHARS_MAX: Final = 1_000
SERVER_TOOLS_MAX: Final = 32
METADATA_MAX: Final = 16
METADATA_CHARS_MAX: Final = 512
THINKING_MAX: Final = 1_000_000
JSON_BYTES_MAX: Final = 65_536
FALLBACKS_MAX: Final = 8
SHOWN_MAX: Final = 80

ANTHROPIC_THINKING_MIN: Final = 1_024
"""Anthropic: `budget_tokens` is at least this, and less than `max_tokens`."""
ANTHROPIC_USER_CHARS_MAX: Final = 256

NO_OPTIONS: Final = ModelOptions()
CHOICES: Final = frozenset({"auto", "any", "none"})
OWN: Final[Mapping[str, str]] = {
    "effort": "effort",
    "instructions": "system",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "metadata": "metadata",
    "output_config": "effort or output",
    "parallel_tool_calls": "parallel_calls",
    "reasoning": "effort",
    "reasoning_effort": "effort",
    "response_format": "output",
    "stop": "stop_sequences",
    "stop_sequences": "stop_sequences",
    "system": "system",
    "system_instruction": "system",
    "temperature": "temperature",
    "thinking": "thinking",
    "tool_choice": "tool_choice",
    "tool_config": "tool_choice",
    "tools": "tools or server_tools",
}
"""Fields of requests that have an option of their own, which `extra` would contradict."""
OWN_INSIDE: Final[Mapping[str, Mapping[str, str]]] = {
    "generation_config": {
        "max_output_tokens": "max_tokens",
        "response_json_schema": "output",
        "response_mime_type": "output",
        "response_schema": "output",
        "stop_sequences": "stop_sequences",
        "temperature": "temperature",
        "thinking_config": "thinking or effort",
    },
    "text": {"format": "output"},
}
"""The same of fields that have further ones inside: Google's, and those of the Responses API."""
CLOSED: Final = frozenset(
    {
        "api_key",
        "auth_token",
        "authorization",
        "base_url",
        "candidate_count",
        "contents",
        "extra_body",
        "extra_headers",
        "extra_query",
        "headers",
        "http_options",
        "input",
        "messages",
        "model",
        "n",
        "stream",
        "timeout",
        "x_api_key",
    }
)
"""What a call is, how it is made and with whose key, and one answer of it: never an option."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def provider_of(model: str) -> str:
    """Return the prefix of a model's name, a provider or an endpoint; Anthropic without one."""
    prefix, colon, _ = model.partition(":")
    return prefix if colon else ANTHROPIC


def is_forced(options: ModelOptions) -> bool:
    """Return whether the model must call a tool."""
    return options.tool_choice is not None and options.tool_choice not in ("auto", "none")


def refusal(
    options: ModelOptions, *, model: str, max_tokens: int, tools: Collection[str]
) -> Refusal | None:
    """Return the first option that is refused, and why; the reason continues after its path."""
    checks = (
        _of_numbers(options),
        _of_texts(options),
        _of_tools(options, tools),
        _of_json(options),
        _of_anthropic(options, max_tokens) if provider_of(model) == ANTHROPIC else iter(()),
    )
    return next((each for check in checks for each in check), None)


def check_options(
    options: ModelOptions, *, model: str, max_tokens: int, tools: Collection[str] = (), what: str
) -> None:
    """Raise `InvalidValueError` that names `what` for options that are refused."""
    if options == NO_OPTIONS:
        return
    wrong = refusal(options, model=model, max_tokens=max_tokens, tools=tools)
    if wrong is not None:
        path, reason = wrong
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        raise InvalidValueError(f"{what}: options{place} {reason}")


def fallback_refusal(fallback: Sequence[str], *, model: str) -> Refusal | None:
    """Return what is wrong with the models that are asked in the place of `model`."""
    if len(fallback) > FALLBACKS_MAX:
        return (), f"has {len(fallback)} models, at most {FALLBACKS_MAX}"
    for place, each in enumerate(fallback):
        if not each.strip():
            return (place,), "must not be empty"
        if each == model or each in fallback[:place]:
            return (place,), f'names "{each[:SHOWN_MAX]}" twice'
    return None


def checked_fallback(fallback: Sequence[str], *, model: str, what: str) -> tuple[str, ...]:
    """Return the models; raises `InvalidValueError` that names `what` for wrong ones."""
    if isinstance(fallback, str) or not all(isinstance(each, str) for each in fallback):
        raise InvalidValueError(f"{what}: fallback is not a list of models")
    if (wrong := fallback_refusal(fallback, model=model)) is not None:
        place = "".join(f"[{step}]" for step in wrong[0])
        raise InvalidValueError(f"{what}: fallback{place} {wrong[1]}")
    return tuple(fallback)


def _of_numbers(options: ModelOptions) -> Iterator[Refusal]:
    temperature, thinking = options.temperature, options.thinking
    if temperature is not None and not 0 <= temperature <= TEMPERATURE_MAX:
        yield ("temperature",), f"must be from 0 to {TEMPERATURE_MAX:g}, got {temperature:g}"
    if isinstance(thinking, int) and not 1 <= thinking <= THINKING_MAX:
        yield ("thinking",), f"must be from 1 to {THINKING_MAX} tokens, got {thinking}"


def _of_texts(options: ModelOptions) -> Iterator[Refusal]:
    if len(options.stop_sequences) > STOP_SEQUENCES_MAX:
        count = len(options.stop_sequences)
        yield ("stop_sequences",), f"has {count} sequences, at most {STOP_SEQUENCES_MAX}"
    for place, each in enumerate(options.stop_sequences):
        if not each.strip():
            yield ("stop_sequences", place), "must have more than blanks in it"
        yield from _too_long(each, STOP_SEQUENCE_CHARS_MAX, ("stop_sequences", place))
    if len(options.metadata) > METADATA_MAX:
        yield ("metadata",), f"has {len(options.metadata)} values, at most {METADATA_MAX}"
    for name, value in options.metadata.items():
        if isinstance(value, str):
            yield from _too_long(value, METADATA_CHARS_MAX, ("metadata", name))
        else:
            yield ("metadata", name), f"must be text, got {value!r:.80}"


def _too_long(text: str, chars_max: int, path: Path) -> Iterator[Refusal]:
    if len(text) > chars_max:
        yield path, f"has {len(text)} characters, at most {chars_max}"


def _of_tools(options: ModelOptions, tools: Collection[str]) -> Iterator[Refusal]:
    if len(options.server_tools) > SERVER_TOOLS_MAX:
        count = len(options.server_tools)
        yield ("server_tools",), f"has {count} tools, at most {SERVER_TOOLS_MAX}"
    own = [each.get("name") for each in options.server_tools]
    for place, each in enumerate(options.server_tools):
        if not each:
            yield ("server_tools", place), "is empty: write the tool as the provider defines it"
        name = each.get("name")
        if name is not None and (name in tools or own.count(name) > 1):
            yield ("server_tools", place, "name"), f"{name!r:.80} is taken by another tool"
    choice = options.tool_choice
    if choice is None or choice in CHOICES:
        if choice == "any" and not tools and not options.server_tools:
            yield ("tool_choice",), "is any, but there is no tool to call"
    elif choice not in tools and choice not in own:
        known = ", ".join(["auto", "any", "none", *tools])
        yield ("tool_choice",), f"names no tool, got {choice!r:.80}; known: {known}"


def _of_json(options: ModelOptions) -> Iterator[Refusal]:
    for name, value in (("server_tools", options.server_tools), ("extra", options.extra)):
        try:
            size = len(json.dumps(value, allow_nan=False, default=_plain))
        except (TypeError, ValueError, RecursionError) as error:
            yield (name,), f"is not JSON: {error}"
        else:
            if size > JSON_BYTES_MAX:
                yield (name,), f"has {size:,} bytes, at most {JSON_BYTES_MAX:,}"
    yield from _of_extra(options.extra)


def _of_extra(extra: Mapping[str, Any]) -> Iterator[Refusal]:
    for name, value in extra.items():
        plain = _snake(name)
        path = ("extra", name)
        if plain in CLOSED:
            yield path, "may not be changed: extra is for fields that Cortex lacks"
        elif plain in OWN:
            yield path, f"is no extra field: use {OWN[plain]}"
        for inner in value if plain in OWN_INSIDE and isinstance(value, Mapping) else ():
            if (own := OWN_INSIDE[plain].get(_snake(inner))) is not None:
                yield (*path, inner), f"is no extra field: use {own}"
            elif _snake(inner) in CLOSED:
                yield (*path, inner), "may not be changed: extra is for fields that Cortex lacks"


def _snake(name: str) -> str:
    """Return a field's name in one spelling: Google takes two."""
    return _HUMP.sub("_", str(name)).lower().replace("-", "_")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} {value!s:.80} must be written as text")


def _of_anthropic(options: ModelOptions, max_tokens: int) -> Iterator[Refusal]:
    """Yield what the Messages API always answers with 400.

    See its pages on extended thinking (budget_tokens, temperature, forced tool use) and the
    reference of POST /v1/messages (temperature, metadata).
    """
    temperature = options.temperature
    if temperature is not None and temperature > 1:
        yield ("temperature",), f"must be from 0 to 1 for this model, got {temperature:g}"
    yield from _of_thinking(options, max_tokens)
    for name, value in options.metadata.items():
        if name != "user_id":
            yield ("metadata", name), "is unknown to this model's API, which takes user_id only"
        yield from _too_long(value, ANTHROPIC_USER_CHARS_MAX, ("metadata", name))


def _of_thinking(options: ModelOptions, max_tokens: int) -> Iterator[Refusal]:
    thinking, temperature = options.thinking, options.temperature
    if thinking is None or thinking == "off":
        return
    if isinstance(thinking, int):
        if thinking < ANTHROPIC_THINKING_MIN:
            yield ("thinking",), f"must be at least {ANTHROPIC_THINKING_MIN} tokens, got {thinking}"
        if thinking >= max_tokens:
            reason = f"must be less than max_tokens, which is {max_tokens}, got {thinking}"
            yield ("thinking",), f"{reason}: raise max_tokens"
    if temperature is not None and temperature != 1:
        yield ("temperature",), "does not go with thinking: leave one of them out"
    if is_forced(options):
        reason = "forces a call, which does not go with thinking: use auto, or thinking: off"
        yield ("tool_choice",), reason
