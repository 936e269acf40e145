"""Log lines of jobs in words: levels and their colours, a line with its fields."""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.log_line import Level
from cortex.domain.safe import safe
from cortex.view.phrases import exact

STYLES: Final[Mapping[Level, str]] = {
    Level.DEBUG: "dim",
    Level.INFO: "",
    Level.WARNING: "warn",
    Level.ERROR: "fail",
    Level.CRITICAL: "alarm",
}
LEVEL_CELLS: Final = len("critical")


def message_lines(message: str) -> list[str]:
    """Return a message as lines that are safe on a terminal; a traceback has several."""
    return safe(message.rstrip(), newline="\n").split("\n")


def fields_text(fields: Mapping[str, Any] | None) -> str:
    """Return the fields of a line as `name=value`, safe on a terminal; "" without any."""
    return safe(" ".join(f"{name}={_value(value)}" for name, value in (fields or {}).items()))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else exact(value)
    return f'"{text}"' if isinstance(value, str) and (not text or " " in text) else text
