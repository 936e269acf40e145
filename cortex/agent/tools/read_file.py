"""Reading a text file, piece by piece."""

import os

from cortex.agent.jail import open_file
from cortex.agent.tool import ToolContext, tool
from cortex.domain.errors import InvalidValueError, RejectedError

READ_BYTES_DEFAULT = 65_536
READ_BYTES_MAX = 262_144
# UTF-8 spreads a character over at most four bytes, three of which continue it.
CONTINUATION_MAX = 3
CONTINUATION_MASK, CONTINUATION = 0b1100_0000, 0b1000_0000


@tool(timeout=30, local=True)
def read_file(
    context: ToolContext, path: str, offset: int = 0, limit: int = READ_BYTES_DEFAULT
) -> str:
    """Read a text file and return its content.

    A longer file is returned in pieces: the last line then says with which offset to call again.
    Binary files and symlinks are refused.

    Args:
        path: The file, relative to the working folder, such as "src/main.py".
        offset: The byte to start from, 0 for the beginning.
        limit: The most bytes to return, at most 262144.
    """
    if offset < 0 or limit < 1:
        raise InvalidValueError(
            f"read_file: offset {offset}, limit {limit}", hint="offset from 0, limit from 1"
        )
    with open_file(context.folder, path) as file:
        size = os.fstat(file).st_size
        if offset > size:
            raise InvalidValueError(f"read_file: offset {offset}, but {path!r} has {size} bytes")
        wanted = min(limit, READ_BYTES_MAX)
        # A little more, so that no character is cut however small the limit.
        piece = os.pread(file, wanted + CONTINUATION_MAX, offset)
    if b"\0" in piece:
        raise RejectedError(f"{path!r} is a binary file of {size} bytes", hint="only text is read")
    start = _character_start(piece, 0)
    end = _character_start(piece, wanted) if len(piece) > wanted else len(piece)
    try:
        text = piece[start:end].decode()
    except UnicodeDecodeError as error:
        at = offset + start + error.start
        raise RejectedError(f"{path!r} is not UTF-8 text: see byte {at} of {size}") from error
    following = offset + end
    if following < size:
        text += f"\n[… truncated at byte {following} of {size}: continue with offset={following}]"
    return text


def _character_start(piece: bytes, at: int) -> int:
    """The first place from `at` on where a UTF-8 character can start."""
    for place in range(at, min(at + CONTINUATION_MAX, len(piece))):
        if piece[place] & CONTINUATION_MASK != CONTINUATION:
            return place
    return min(at + CONTINUATION_MAX, len(piece))
