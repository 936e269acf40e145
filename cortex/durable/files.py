"""Files in the messages of model calls and in results: kept once, and referred to by digest."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from cortex.domain.errors import InvalidValueError
from cortex.domain.file import DOCUMENT, IMAGE, File, StoredFile

if TYPE_CHECKING:
    from cortex.durable.attempt import Attempt


def with_references(
    messages: Iterable[Mapping[str, Any]], *, what: str
) -> tuple[tuple[Mapping[str, Any], ...], tuple[File, ...]]:
    """Return messages with references in place of files, and the files.

    A file is a `File`, or an image or document block with its content in base64. Raises
    `InvalidValueError` that names `what`.
    """
    files: list[File] = []
    made = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) or not isinstance(content, Sequence):
            made.append(message)
        else:
            parts = [_referred(each, files, what) for each in content]
            made.append({**message, "content": parts})
    return tuple(made), tuple(files)


def _referred(block: Any, files: list[File], what: str) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, File):
        files.append(block)
        return block.stored.block()
    if isinstance(block, Mapping):
        if block.get("type") in (IMAGE, DOCUMENT) and (file := _inline(block, what)) is not None:
            files.append(file)
            return {**block, **file.stored.block()}
        content = block.get("content")
        if not isinstance(content, str) and isinstance(content, Sequence):  # of a tool result
            return {**block, "content": [_referred(each, files, what) for each in content]}
    return block


def _inline(block: Mapping[str, Any], what: str) -> File | None:
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("type") != "base64":
        return None
    return decoded(source.get("data"), name=block.get("title"), what=what)


def decoded(data: object, *, name: object, what: str) -> File:
    """Return the file of base64 text. Raises `InvalidValueError` that names `what`."""
    title = name if isinstance(name, str) else None
    try:
        content = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError) as error:
        shown = f" of {title!r:.80}" if title else ""
        raise InvalidValueError(f"{what}: the data{shown} is not base64: {error}") from error
    try:
        return File(content, name=title)
    except InvalidValueError as error:
        raise InvalidValueError(f"{what}: {error.message}", hint=error.hint) from error


async def keep_all(attempt: "Attempt", files: Iterable[File]) -> None:
    """Keep the contents of files; those of the record are kept already."""
    for file in files:
        if file.content is not None and file.stored.sha256 not in attempt.kept_files:
            await attempt.services.files.keep(attempt.lineage_id, file.stored, file.content)
            attempt.kept_files.add(file.stored.sha256)


def files_in(value: Any) -> list[File]:
    """Return the files in a tool's result: the result itself, or items of a list."""
    if isinstance(value, File):
        return [value]
    return [each for each in value if isinstance(each, File)] if isinstance(value, list) else []


def referred(value: Any) -> Any:
    """Return a tool's result with references in place of files."""
    if isinstance(value, list):
        return [each.stored.block() if isinstance(each, File) else each for each in value]
    return value.stored.block() if isinstance(value, File) else value


def without_forged(value: Any) -> Any:
    """Return a tool's result with text in place of what others wrote like a reference to a file.

    Else a web page, or an MCP server, could name files of the job, or some that it does not have.
    """
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    return _as_text(value)


def _as_text(value: Any) -> Any:
    return value if StoredFile.of(value) is None else orjson.dumps(value).decode()
