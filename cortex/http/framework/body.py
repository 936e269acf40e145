"""Reading the body of a request: bounded in size and in time, whatever its headers promise.

Bounded are also all bodies together: a stranger with a thousand connections gets no gigabyte.
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
"""For the whole body: 35 kB a second at the least."""
SMALL_BYTES: Final = 65_536
"""Of each body there is always room for so much: connections are counted, too."""
LARGE_BYTES_MAX: Final = 33_554_432
"""Of all bodies of a room, beyond what is small of each."""


class Room:
    """The memory for the large bodies of some senders, who share it."""

    def __init__(self, bytes_max: int = LARGE_BYTES_MAX) -> None:
        self._left = bytes_max

    @contextmanager
    def entered(self) -> Iterator["Share"]:
        """Hold the body of one request for as long as the block."""
        share = Share(self)
        try:
            yield share
        finally:
            self._left += share.taken

    def take(self, size: int) -> None:
        """Raises `UnavailableError` if there is not so much left."""
        if size > self._left:
            raise UnavailableError(
                "too many large bodies arrive at once", hint="send it again in a moment"
            )
        self._left -= size


@attrs.define(eq=False)
class Share:
    """What one body takes of a room."""

    _room: Room
    taken: int = 0
    size: int = 0
    """Bytes of the body that have come."""

    def grow(self, size: int) -> None:
        """Make room for a body of so many bytes. Raises `UnavailableError`."""
        self.size = size
        needed = max(0, size - SMALL_BYTES - self.taken)
        self._room.take(needed)
        self.taken += needed


async def read(
    receive: Receive, *, promised: str | None, share: Share, bytes_max: int = BYTES_MAX
) -> bytes:
    """Return the whole body; `promised` is its `Content-Length`, if it has one.

    Raises `TooLargeError`, `TooSlowError`, `UnavailableError` when there is no room for it in its
    share, and `ClientDisconnect` when the client has left.
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
