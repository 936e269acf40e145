"""Names of tools: `github.create_issue` for people, `github__create_issue` for models."""

import hashlib
import re
from typing import Final

DIVIDER: Final = "__"
MODEL_CHARS_MAX: Final = 64
DIGEST_CHARS: Final = 8
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")


def dotted(server: str, tool: str) -> str:
    return f"{server}.{tool}"


def divided(name: str) -> tuple[str, str] | None:
    """Return the server and the tool of a dotted name; None for any other name."""
    server, dot, tool = name.partition(".")
    return (server, tool) if server and dot and tool else None


def model_name(server: str, tool: str) -> str:
    """Return the name by which models call a tool: their APIs refuse dots and over 64 characters.

    A name that had to be changed ends with a part of its digest, so that it stays one of a kind.
    """
    whole = f"{server}{DIVIDER}{tool}"
    name = _REFUSED.sub("_", whole)
    if name == whole and len(name) <= MODEL_CHARS_MAX:
        return name
    suffix = hashlib.sha256(dotted(server, tool).encode()).hexdigest()[:DIGEST_CHARS]
    return f"{name[: MODEL_CHARS_MAX - DIGEST_CHARS - 1]}_{suffix}"
