"""Spells out letters that a terminal without UTF-8 cannot show.

The last filter puts a `?` in their place, which is enough for a list. What a person decides on must
not look like something else: each of them becomes visible as `⟦U+0430⟧`.
"""

from typing import Any, TypeVar

import attrs

from cortex.domain.safe import safe

T = TypeVar("T")


def spelled(value: T) -> T:
    """Return a value whose texts, however deep, are spelled out."""
    return _spelled(value)  # type: ignore[no-any-return]


def _spelled(value: Any) -> Any:
    if type(value) is str:
        return value if value.isascii() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {_spelled(key): _spelled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_spelled, value))
    if attrs.has(type(value)):
        fields = attrs.fields(type(value))
        return attrs.evolve(value, **{f.alias: _spelled(getattr(value, f.name)) for f in fields})
    return value


def _shown(char: str) -> str:
    """Leave an invisible character to `safe`, which counts it."""
    return char if char.isascii() or safe(char) != char else f"⟦U+{ord(char):04X}⟧"
