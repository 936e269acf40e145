"""Answers as the Messages API takes them back.

The API refuses some of what it, or a gateway in front of another model, has sent: blank text beside
other blocks, names and ids outside their patterns, an id used twice, calls of a server's own tools
without their result, unsigned thinking, thinking at the end. The record keeps each answer as it
came; it is repaired whenever a request is made from it, so that a recorded answer never makes its
job fail.

All is a function of the answers in their order: a replay sends what was sent before.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from cortex.domain.model import PROVIDER
from cortex.domain.redaction import was_redacted

NAME_CHARS_MAX: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,4096}")
_SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]{1,4096}")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("type", "text", "citations"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input", "caller"),
    "server_tool_use": ("type", "id", "name", "input", "caller"),
}
"""What the API takes of these blocks; gateways add fields. Other blocks go back unchanged."""
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_RESULT: Final = "_tool_result"
"""End of the type of a block with the result of a server's own tool."""


@attrs.frozen
class RepairedAnswer:
    """The content of one answer, fit to go back."""

    content: tuple[dict[str, Any], ...]
    """Empty if nothing of the answer can go back."""
    call_ids: tuple[str, ...]
    """The ids of its tool calls, in order: of all of them."""

    @property
    def is_paused(self) -> bool:
        """The answer ends with a call of a server's tool, or its result: it goes on by itself."""
        return bool(self.content) and (
            self.content[-1]["type"] == "server_tool_use" or _is_result(self.content[-1])
        )


class AnswerRepairs:
    """Repairs the answers of one conversation, one after another."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._server_ids: dict[str, str] = {}

    def repaired(
        self, content: Sequence[Mapping[str, Any]], *, turn: int, may_pause: bool = False
    ) -> RepairedAnswer:
        """Return the content of the answer of a turn as the API takes it.

        `may_pause`: it is the last message, so it may end with a server's call that has no result.
        """
        answered = {each.get("tool_use_id") for each in content if _is_result(each)}
        paused = content[-1] if content and may_pause else None
        is_mixed = any(each.get("type") == "tool_use" for each in content)
        blocks: list[dict[str, Any]] = []
        for place, block in enumerate(content):
            is_open = block.get("id") not in answered and block is not paused
            # Beside calls of others the API runs it once it has their results; a pause may leave
            # code open, and after that the calls which it makes.
            waits = (is_mixed or may_pause) and bool(_SERVER_ID.fullmatch(str(block.get("id"))))
            if block.get("type") == "server_tool_use" and is_open and not waits:
                continue
            if (fresh := self._repaired(block, f"{turn}_{place}")) is not None:
                blocks.append(fresh)
        call_ids = tuple(each["id"] for each in blocks if each["type"] == "tool_use")
        while blocks and blocks[-1]["type"] in _THINKING:
            blocks.pop()
        return RepairedAnswer(tuple(blocks), call_ids)

    def _repaired(self, block: Mapping[str, Any], place: str) -> dict[str, Any] | None:
        """Return one block as the API takes it; None if it cannot go back."""
        kind = str(block.get("type"))
        fields = (*_FIELDS[kind], PROVIDER) if kind in _FIELDS else tuple(block)
        fresh = {name: block[name] for name in fields if name in block}
        if kind == "tool_use":
            use_id = self._id(block, f"toolu_{place}", _ID)
            return {**fresh, "id": use_id, "name": tool_name(block), "input": _input(block)}
        if kind == "server_tool_use":
            use_id = self._id(block, f"srvtoolu_{place}", _SERVER_ID)
            self._server_ids[str(block.get("id"))] = use_id
            return {**fresh, "id": use_id, "name": tool_name(block), "input": _input(block)}
        if _is_result(block):
            known = self._server_ids.get(str(block.get("tool_use_id")))
            return None if known is None else {**fresh, "tool_use_id": known}
        if kind in _THINKING and not _is_signed(block):
            return None
        if kind == "text":
            if not fresh.get("citations"):
                fresh.pop("citations", None)
            return fresh if _has_text(block) else None
        return fresh

    def _id(self, block: Mapping[str, Any], own: str, pattern: re.Pattern[str]) -> str:
        """Return the block's id if it can be used, else one by its place."""
        given = block.get("id")
        is_usable = isinstance(given, str) and pattern.fullmatch(given) and given not in self._used
        chosen = str(given) if is_usable else own
        while chosen in self._used:
            chosen += "_"
        self._used.add(chosen)
        return chosen


def tool_name(block: Mapping[str, Any]) -> str:
    """Return the name in a call as the API takes it; it may be of no tool."""
    return _NOT_IN_NAMES.sub("_", str(block.get("name") or ""))[:NAME_CHARS_MAX] or "unnamed"


def _input(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("input")
    return given if isinstance(given, dict) else {}


def _has_text(block: Mapping[str, Any]) -> bool:
    text = block.get("text")
    return isinstance(text, str) and bool(text.strip())


def _is_signed(block: Mapping[str, Any]) -> bool:
    """Return whether the API takes thinking back: signed, and without a secret's marker in it."""
    texts = [block.get(name) for name in ("thinking", "signature", "data")]
    has_proof = bool(block.get("signature") or block.get("data"))
    return has_proof and not any(isinstance(each, str) and was_redacted(each) for each in texts)


def _is_result(block: Mapping[str, Any]) -> bool:
    return str(block.get("type")).endswith(_RESULT)
