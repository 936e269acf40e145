"""Places in a JSON value: as people write them to find one, and as they read them."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from cortex.domain.safe import safe

Path: TypeAlias = tuple[str | int, ...]

MISSING: Final = object()
"""What is found where there is nothing."""
WHOLE: Final = "(all)"
"""How the empty path is read: the value itself."""

_INDEX_DIGITS_MAX: Final = 9


def find(value: Any, dotted: str) -> Any:
    """Return what stands at a dotted path (`order.lines.0.price`), or `MISSING`."""
    for step in dotted.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def field_of(path: Path) -> str:
    """A path as people read it, with nothing hidden in it: `order.lines[0].price`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("-", "_").isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return safe(text) or WHOLE


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal() and len(step) <= _INDEX_DIGITS_MAX
