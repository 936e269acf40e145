"""Files inside JSON text, such as those of a payload: a line of facts in place of their content."""

import base64
import re
from typing import Final

from cortex.domain.file import StoredFile
from cortex.domain.image_facts import sniffed

_DATA: Final = re.compile(r'("data"\s*:\s*")([A-Za-z0-9+/]{64,}={0,2})("?)')
"""A long base64 text under the key `data`; without a closing quote the JSON text is cut there."""


def without_content(text: str) -> str:
    """Return JSON text with the facts about each image or PDF in place of its base64 content."""
    return _DATA.sub(_facts, text)


def _facts(found: re.Match[str]) -> str:
    opening, data, closing = found.groups()
    content = base64.b64decode(data[: len(data) // 4 * 4])
    kind = sniffed(content)
    if kind is None:
        return found[0]
    stored = StoredFile(
        sha256="",
        media_type=kind.media_type,
        bytes=len(content),
        width=kind.width,
        height=kind.height,
        pages=kind.pages,
    )
    facts = str(stored) if closing else f"{str(stored)[:-1]} or more]"
    return f"{opening}{facts}{closing}"
