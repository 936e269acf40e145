"""Rows of the store as screens compare them: two that are equal look the same."""

from collections.abc import Mapping
from typing import Any


def without_now(row: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what would make every look a change; the head of the screen tells the time."""
    return {key: value for key, value in row.items() if key != "now"}
