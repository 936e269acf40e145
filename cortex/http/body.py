"""Reading the body of a request: bounded in size and in time, whatever its headers promise."""

from typing import Final

import trio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from cortex.http.problem import TooLargeError, TooSlowError

BYTES_MAX: Final = 1_048_576
BOUND_S: Final = 30.0
"""For the whole body: 35 kB a second at the least."""


async def read(receive: Receive, *, promised: str | None) -> bytes:
    """Return the whole body; `promised` is its `Content-Length`, if it has one.

    Raises `TooLargeError`, `TooSlowError`, and `ClientDisconnect` when the client has left.
    """
    if promised is not None and promised.isdecimal() and int(promised[:20]) > BYTES_MAX:
        raise _too_large()
    pieces: list[bytes] = []
    size = 0
    with trio.move_on_after(BOUND_S):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > BYTES_MAX:
                raise _too_large()
            if not message.get("more_body", False):
                return b"".join(pieces)
    raise TooSlowError(f"the body did not arrive within {BOUND_S:g} s")


def _too_large() -> TooLargeError:
    return TooLargeError(
        f"the body is larger than {BYTES_MAX:,} bytes",
        hint="keep large data in a file and pass its path",
    )
