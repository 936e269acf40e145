"""Reads a text file, piece by piece."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePath

from cortex.agent.tools.tool import ToolContext, tool
from cortex.agent.workspace.fitting import FOLDER as KEPT_OUTPUT
from cortex.agent.workspace.jail import open_file
from cortex.domain.errors import InvalidValueError, NotFoundError, RejectedError
from cortex.domain.file import DOCUMENT_BYTES_MAX, File
from cortex.domain.image_facts import sniffed
from cortex.domain.redaction import begun_in, ended_in, knows_any, redact

READ_BYTES_DEFAULT = 65_536
READ_BYTES_MAX = 262_144
# UTF-8 uses at most four bytes for a character, three of which are continuations.
CONTINUATION_MAX = 3
SNIFFED_BYTES = 4_096
OVERLAP_BYTES = 65_536
"""Read before a piece, to find the beginning of a secret."""
CONTINUATION_MASK, CONTINUATION = 0b1100_0000, 0b1000_0000


@tool(timeout=30, local=True)
def read_file(
    context: ToolContext, path: str, offset: int = 0, limit: int = READ_BYTES_DEFAULT
) -> str | File:
    """Read a text file and return its content, or look at an image or a PDF file.

    A longer text is returned in pieces: the last line then says with which offset to call again.
    Other binary files and symlinks are refused.

    Args:
        path: The file, relative to the working folder, such as "src/main.py".
        offset: The byte to start from, 0 for the beginning.
        limit: The most bytes to return, at most 262144.
    """
    if offset < 0 or limit < 1:
        raise InvalidValueError(
            f"read_file: offset {offset}, limit {limit}", hint="offset from 0, limit from 1"
        )
    with _opened(context, path) as file:
        size = os.fstat(file).st_size
        if offset > size:
            raise InvalidValueError(f"read_file: offset {offset}, but {path!r} has {size} bytes")
        wanted = min(limit, READ_BYTES_MAX)
        # A little more, so that no character is cut however small the limit.
        piece = os.pread(file, wanted + CONTINUATION_MAX, offset)
        before_bytes = min(offset, OVERLAP_BYTES) if knows_any() else 0
        before = os.pread(file, before_bytes, offset - before_bytes)
        if offset == 0 and sniffed(piece[:SNIFFED_BYTES]) is not None:
            return File(os.pread(file, DOCUMENT_BYTES_MAX + 1, 0), name=PurePath(path).name)
    if b"\0" in piece:
        raise RejectedError(
            f"{path!r} is a binary file of {size} bytes",
            hint="only text, images and PDF files are read",
        )
    start = _character_start(piece, 0)
    before += piece[:start]
    end = _character_start(piece, wanted) if len(piece) > wanted else len(piece)
    try:
        text = piece[start:end].decode()
    except UnicodeDecodeError as error:
        at = offset + start + error.start
        raise RejectedError(f"{path!r} is not UTF-8 text: see byte {at} of {size}") from error
    following = offset + end
    if following < size and (begun := begun_in(text)) < len(text):
        # A possible beginning of a secret comes as a whole with the next piece.
        text = text[: len(text) - begun]
        following = offset + start + len(text.encode())
    text = _without_end_of_secret(before.decode(errors="replace"), text)
    if following < size:
        text += f"\n[… truncated at byte {following} of {size}: continue with offset={following}]"
    return text


@contextmanager
def _opened(context: ToolContext, path: str) -> Iterator[int]:
    """Open a file of the folder, or an output that was kept in the workspace beside it."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open_file(context.folder, path))
        except NotFoundError:
            if not path.startswith(f"{KEPT_OUTPUT}/"):
                raise
            file = opened.enter_context(open_file(context.workspace, path))
        yield file


def _without_end_of_secret(before: str, text: str) -> str:
    """Remove the end of a secret that began before the text: it could not be redacted."""
    for ended in range(ended_in(text) if before else 0, 0, -1):
        if not redact(before + text[:ended]).endswith(text[:ended]):
            return text[ended:]
    return text


def _character_start(piece: bytes, at: int) -> int:
    """Return the first place from `at` on where a UTF-8 character can start."""
    for place in range(at, min(at + CONTINUATION_MAX, len(piece))):
        if piece[place] & CONTINUATION_MASK != CONTINUATION:
            return place
    return min(at + CONTINUATION_MAX, len(piece))
