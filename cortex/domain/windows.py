"""How many tokens a model takes in one request, as its provider documents it."""

from typing import Final

_WINDOWS: Final = (
    ("claude-opus-5", 1_000_000),
    ("claude-sonnet-5", 1_000_000),
    ("claude-fable-5", 1_000_000),
    ("claude-opus-4-8", 1_000_000),
    ("claude-opus-4-7", 1_000_000),
    ("claude-opus-4-6", 1_000_000),
    ("claude-sonnet-4-6", 1_000_000),
    ("claude-", 200_000),
    ("gpt-5-chat", 128_000),
    ("gpt-5", 272_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini-", 1_048_576),
)
"""By the beginning of the model's name; the first one that fits."""


def window_of(model: str) -> int | None:
    """Return the window of a model, `PROVIDER:MODEL` or its name alone; None if it is unknown."""
    name = model.rpartition(":")[2].rpartition("/")[2]
    return next((tokens for begins, tokens in _WINDOWS if name.startswith(begins)), None)
