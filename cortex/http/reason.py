"""Reasons for changes: stored with the change, and shown in lists."""

from typing import Any, Final

import attrs

from cortex.http.framework.shape import text
from cortex.view.verbs import Verb

REASON_MAX: Final = 500


def reason_field(verb: Verb) -> Any:
    """Declare the body field with the reason of a change, as its verb wants it."""
    return text(
        doc="reason, stored with the record",
        length_min=1 if verb.is_reason_required else 0,
        length_max=REASON_MAX,
        default=attrs.NOTHING if verb.is_reason_required else "",
    )
