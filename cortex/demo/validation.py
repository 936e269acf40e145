"""Refuses the requests that the Messages API refuses, with the API's own kind of message.

Only rules that a conversation can break once it is under way: content, roles, names and ids, calls
and their results. Values in other fields of a request are not checked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from cortex.demo.cache_marks import mark_problems

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_CALL_FIELDS: Final = frozenset({"type", "id", "name", "input", "cache_control", "caller"})
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def refusal_of(request: Mapping[str, Any]) -> str | None:
    """Return the first reason to refuse a request; None if it is valid.

    Raises KeyError, TypeError and the like for JSON that is no request at all.
    """
    return next(_problems(request), None)


def _problems(request: Mapping[str, Any]) -> Iterator[str]:
    max_tokens, messages = request["max_tokens"], request["messages"]
    if not isinstance(max_tokens, int) or max_tokens < 1:
        yield "max_tokens: must be a whole number from 1"
    for place, tool in enumerate(request.get("tools", ())):
        if not NAME.fullmatch(tool["name"]):
            yield f"tools.{place}.name: {tool['name']!r:.80} should match {NAME.pattern}"
    if not messages:
        yield "messages: at least one message is required"
    elif messages[0]["role"] != "user":
        yield "messages: the first message must have the role user"
    conversation = _Conversation()
    for place, message in enumerate(messages):
        is_last = place == len(messages) - 1
        yield from conversation.problems(f"messages.{place}", message, is_last=is_last)
    if (request.get("thinking") or {}).get("type") == "enabled":
        yield from _unthought(messages)
    yield from mark_problems(request)


def _unthought(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with calls that do not begin with thinking, although it is enabled."""
    first: int | None = None
    for place in reversed(range(len(messages))):
        message = messages[place]
        content = message["content"]
        kinds = {"text"} if isinstance(content, str) else {each["type"] for each in content}
        if message["role"] == "assistant":
            first = place
        elif "tool_result" not in kinds:
            break
    if first is None:
        return
    content = messages[first]["content"]
    kind = "text" if isinstance(content, str) else content[0]["type"]
    if kind not in _THINKING:
        yield (
            f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{kind}`. When `thinking` is enabled, a final `assistant` message must start "
            "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` "
            "blocks)"
        )


@define
class _Conversation:
    """The tool calls of the messages so far, by their ids."""

    _waiting: list[str] = field(factory=list, init=False)
    """Ids of the calls in the message before: this one must answer them."""
    _used: set[str] = field(factory=set, init=False)

    def problems(self, where: str, message: Mapping[str, Any], *, is_last: bool) -> Iterator[str]:
        role, content = message["role"], message["content"]
        if role not in ("user", "assistant"):
            yield f"{where}.role: {role!r} is neither user nor assistant"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        may_be_empty = role == "assistant" and is_last
        if not blocks and not may_be_empty:
            yield f"{where}: all messages must have non-empty content"
        yield from self._results(where, blocks)
        for place, block in enumerate(blocks):
            yield from self._block(f"{where}.content.{place}", block)
        if role == "assistant" and blocks:
            yield from _end(where, blocks, is_last=is_last)
            self._waiting = [each["id"] for each in blocks if each["type"] == "tool_use"]

    def _results(self, where: str, blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        results = [each for each in blocks if each["type"] == "tool_result"]
        answered = [each["tool_use_id"] for each in results]
        if missing := [each for each in self._waiting if each not in answered]:
            yield f"{where}: tool_use ids without tool_result blocks: {', '.join(missing)}"
        for each in answered:
            if each not in self._waiting:
                yield f"{where}: tool_result of an unexpected tool_use_id: {each}"
        if len(set(answered)) < len(answered):
            yield f"{where}: each tool_use must have a single result"
        if any(each["type"] != "tool_result" for each in blocks[: len(results)]):
            yield f"{where}: tool_result blocks must come first"
        self._waiting = []

    def _block(self, where: str, block: Mapping[str, Any]) -> Iterator[str]:
        match block["type"]:
            case "text":
                yield from _text(f"{where}.text", block["text"])
            case "thinking":
                if not block.get("signature"):
                    yield f"{where}.thinking.signature: field required"
            case "tool_use" | "server_tool_use":
                yield from self._call(where, block)
            case "tool_result":
                yield from _result(where, block)
            case "container":
                yield f"{where}: input tag 'container' matches none of the expected tags"
            case _:
                pass

    def _call(self, where: str, block: Mapping[str, Any]) -> Iterator[str]:
        for name, pattern in (("name", NAME), ("id", ID)):
            if not pattern.fullmatch(block[name]):
                shown = repr(block[name])[:80]
                yield f"{where}.{block['type']}.{name}: {shown} should match {pattern.pattern}"
        if block["id"] in self._used:
            yield f"{where}: tool_use ids must be unique: {block['id']}"
        self._used.add(block["id"])
        if not isinstance(block["input"], dict):
            yield f"{where}.{block['type']}.input: should be an object"
        if extra := sorted(block.keys() - _CALL_FIELDS):
            yield f"{where}.{block['type']}: extra inputs are not permitted: {', '.join(extra)}"


def _text(where: str, text: str) -> Iterator[str]:
    if not text:
        yield f"{where}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{where}: text content blocks must contain non-whitespace text"


def _result(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content")
    if block.get("is_error") and not content:
        yield f"{where}.tool_result: content cannot be empty if is_error is true"
    for place, each in enumerate(content if isinstance(content, list) else ()):
        if each["type"] == "text":
            yield from _text(f"{where}.tool_result.content.{place}.text", each["text"])


def _end(where: str, blocks: Sequence[Mapping[str, Any]], *, is_last: bool) -> Iterator[str]:
    last = blocks[-1]
    if last["type"] in _THINKING:
        yield f"{where}: the final block of an assistant message cannot be {last['type']}"
    if is_last and last["type"] == "text" and last["text"] != last["text"].rstrip():
        yield f"{where}: final assistant content cannot end with trailing whitespace"
