"""Why somebody does something: kept with what they did, shown in every list of it."""

from typing import Any, Final

import attrs

from cortex.http.framework.shape import text

REASON_MAX: Final = 500


def reason_field(default: Any = attrs.NOTHING) -> Any:
    """Make the field of a body that says why; without a default it must be given."""
    low = 1 if default is attrs.NOTHING else 0
    return text(
        doc="why: kept with the record", length_min=low, length_max=REASON_MAX, default=default
    )
