"""Text that Postgres can hold: no NUL, no half of a surrogate pair, not too long."""

import re
from typing import Final

from cortex.domain.redaction import redact

TEXT_MAX: Final = 2_000
"""Characters of an error message that are kept."""

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text with what Postgres cannot hold made visible."""
    return LONE_SURROGATE.sub("\ufffd", text.replace("\x00", "\ufffd"))


def clean_text(text: str, *, limit: int = TEXT_MAX) -> str:
    """Return text that Postgres can hold, cut at `limit` characters; no secret is cut in half."""
    visible = storable(redact(text))
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"
