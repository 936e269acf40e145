"""A tool's answer as JSON for the record and the model."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from cortex.domain.errors import InvalidValueError
from cortex.domain.file import File
from cortex.durable.files import decoded

SHOWN_BLOCKS_MAX: Final = 1_000


def output_of(result: Any) -> Any:
    """Return what the library's `CallToolResult` says: its structure, else its text.

    A tool that returns a structure also sends it as text, for clients that know none: then the
    structure is enough. Images are files. What is neither becomes a line that says what it was.
    """
    parts: list[str | File] = [_part(each) for each in result.content[:SHOWN_BLOCKS_MAX]]
    if (left_out := len(result.content) - len(parts)) > 0:
        parts.append(f"[{left_out} more parts left out]")
    structure = result.structured_content
    texts = [str(each.stored) if isinstance(each, File) else each for each in parts]
    has_files = any(isinstance(each, File) for each in parts)
    if structure is None:
        return parts if has_files else "\n".join(texts)
    if has_files:
        said = [each for each in parts if isinstance(each, File) or not _is_same(each, structure)]
        return [structure, *said]
    others = [each for each in texts if not _is_same(each, structure)]
    return {"structured": structure, "text": "\n".join(others)} if others else structure


def text_of(result: Any) -> str:
    """Return an answer as text, such as that of a tool that has failed."""
    output = output_of(result)
    return output if isinstance(output, str) else orjson.dumps(output, default=str).decode()


def _part(block: Any) -> str | File:
    if block.type == "image":
        with suppress(InvalidValueError):
            return decoded(block.data, name=None, what="the image")
    return _line(block)


def _line(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type} left out: {block.mime_type}, {_bytes(block.data)} bytes]"
        case "resource_link":
            return f"[resource {block.uri}: {block.name}]"
        case "resource" if (text := getattr(block.resource, "text", None)) is not None:
            return f"[resource {block.resource.uri}]\n{text}"
        case "resource":
            kind = block.resource.mime_type or "unknown type"
            size = _bytes(block.resource.blob)
            return f"[resource {block.resource.uri} left out: {kind}, {size} bytes]"
        case kind:
            return f"[{kind} left out]"


def _bytes(encoded: str) -> int:
    """The size of what base64 text stands for."""
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _is_same(text: str, structure: Mapping[str, Any]) -> bool:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return structure.keys() == {"result"} and text == structure["result"]
    return bool(
        value == structure or (structure.keys() == {"result"} and value == structure["result"])
    )
