"""Store rows in the form that screens compare: equal rows look the same."""

from collections.abc import Mapping
from typing import Any


def without_now(row: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the database time, which differs at every poll; the screen's head shows it."""
    return {key: value for key, value in row.items() if key != "now"}
