"""Reasons for changes: stored with the change, and shown in lists."""

from typing import Any, Final

import attrs

from cortex.http.framework.shape import text

REASON_MAX: Final = 500


def reason_field(default: Any = attrs.NOTHING) -> Any:
    """Declare the body field with the reason; without a default it is required."""
    low = 1 if default is attrs.NOTHING else 0
    return text(
        doc="reason, stored with the record", length_min=low, length_max=REASON_MAX, default=default
    )
