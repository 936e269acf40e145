"""Reads request bodies, bounded in size and time regardless of their headers.

The total is bounded as well: a thousand anonymous connections cannot take a gigabyte.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from cortex.domain.errors import UnavailableError
from cortex.http.framework.problem import TooLargeError, TooSlowError

BYTES_MAX: Final = 1_048_576
BOUND_S: Final = 30.0
"""For the whole body: 35 kB a second at least."""
SMALL_BYTES: Final = 65_536
"""This much is always available per body, since connections are counted too."""
LARGE_BYTES_MAX: Final = 33_554_432
"""For all bodies of a room, beyond the small part of each."""


class Room:
    """The memory that some senders share for large bodies."""

    def __init__(self, bytes_max: int = LARGE_BYTES_MAX) -> None:
        self._left = bytes_max

    @contextmanager
    def entered(self) -> Iterator["Share"]:
        """Hold the body of one request during the block."""
        share = Share(self)
        try:
            yield share
        finally:
            self._left += share.taken

    def take(self, size: int) -> None:
        """Reserve memory. Raises `UnavailableError` if there is not enough."""
        if size > self._left:
            raise UnavailableError(
                "too many large bodies at once", hint="send it again in a moment"
            )
        self._left -= size


@attrs.define(eq=False)
class Share:
    """One body's part of a room."""

    _room: Room
    taken: int = 0
    size: int = 0
    """Bytes of the body received so far."""

    def grow(self, size: int) -> None:
        """Reserve memory for a body of this size. Raises `UnavailableError`."""
        self.size = size
        needed = max(0, size - SMALL_BYTES - self.taken)
        self._room.take(needed)
        self.taken += needed


async def read(
    receive: Receive, *, promised: str | None, share: Share, bytes_max: int = BYTES_MAX
) -> bytes:
    """Return the whole body; `promised` is its `Content-Length`, if any.

    Raises `TooLargeError`, `TooSlowError`, `UnavailableError` when its room is full, and
    `ClientDisconnect` when the client has left.
    """
    if promised is not None and promised.isdecimal() and int(promised[:20]) > bytes_max:
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = 0
    with trio.move_on_after(BOUND_S):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > bytes_max:
                raise _too_large(bytes_max)
            share.grow(size)
            if not message.get("more_body", False):
                return b"".join(pieces)
    raise TooSlowError(f"the body did not arrive within {BOUND_S:g} s")


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(
        f"the body is larger than {bytes_max:,} bytes",
        hint="keep large data in a file and pass its path" if bytes_max == BYTES_MAX else None,
    )
