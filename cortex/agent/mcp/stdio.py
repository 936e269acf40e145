"""The protocol over a program's standard streams: one JSON message a line, each of bounded size.

The library's own transport starts programs unconfined and reads lines of any length, so this one
takes its place. On failure: a line that is no message is dropped and counted, an answer that is too
long becomes an error for the call that it answers, and a server that floods is left.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from cortex.agent.mcp.rate import Rate
from cortex.domain.errors import UnavailableError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams

MESSAGE_MAX: Final = 8 << 20
"""Bytes of one message."""
READ_BYTES: Final = 65_536
GARBAGE_MAX: Final = 100
"""Lines that are no messages; many programs greet on their standard output."""
ENDS_BYTES: Final = 512
"""Of a message that is too long, where its id is looked for."""
TOO_LONG: Final = -32_099
"""The code of the error that stands for an answer that is too long."""
ENDED: Final = "closed its output"
_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')


@attrs.define
class Lines:
    """Cuts a stream into lines, and drops the middle of those that are too long."""

    _whole: bytearray = attrs.field(factory=bytearray)
    _head: bytes = b""
    """Of a line that is too long; empty while none is read."""

    def add(self, chunk: bytes) -> list["bytes | TooLong"]:
        """Return the lines that end in a chunk."""
        found: list[bytes | TooLong] = []
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._whole += part
            found.append(self._line())
        self._whole += rest
        if len(self._whole) > MESSAGE_MAX:
            self._head = self._head or bytes(self._whole[:ENDS_BYTES])
            del self._whole[:-ENDS_BYTES]
        return found

    def _line(self) -> "bytes | TooLong":
        line, head = bytes(self._whole), self._head
        self._whole.clear()
        self._head = b""
        if head or len(line) > MESSAGE_MAX:
            return TooLong(head or line[:ENDS_BYTES], line[-ENDS_BYTES:])
        return line


@attrs.frozen
class TooLong:
    """The two ends of a line that is too long."""

    head: bytes
    tail: bytes

    @property
    def answers(self) -> int | None:
        """The id of the request that it answers, which stands first or last; None: unknown."""
        if b'"method"' in self.head:
            return None
        inside = self.head.partition(b'"result"')[0]
        outside = self.tail.rpartition(b"}")[0] + b"}"
        found = _ID.search(inside) or next(iter(reversed(list(_ID.finditer(outside)))), None)
        return None if found is None else int(found[1])


@asynccontextmanager
async def message_streams(
    stdin: trio.abc.SendStream,
    stdout: trio.abc.ReceiveStream,
    *,
    on_end: Callable[[str], None],
) -> "AsyncIterator[TransportStreams]":
    """Lend the streams that a session of the library works on.

    `on_end` gets the reason when the server itself ends the conversation, or has to be left.
    """
    import anyio  # noqa: PLC0415 -- with the library only

    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, stdout, to_session, on_end)
        nursery.start_soon(_write, stdin, from_session)
        try:
            yield from_server, to_server
        finally:
            nursery.cancel_scope.cancel()
            for each in (to_session, from_server, to_server, from_session):
                each.close()


async def _read(
    stdout: trio.abc.ReceiveStream,
    to_session: "MemoryObjectSendStream[Any]",
    on_end: Callable[[str], None],
) -> None:
    lines, rate, garbage = Lines(), Rate(), 0
    reason = ENDED
    with to_session:
        try:
            while chunk := await stdout.receive_some(READ_BYTES):
                rate.add(0, size=len(chunk))
                for line in lines.add(bytes(chunk)):
                    message = _message(line)
                    rate.add()
                    if message is not None:
                        await to_session.send(message)
                    elif isinstance(line, TooLong) or line.strip():
                        garbage = _counted(garbage)
        except UnavailableError as error:
            reason = error.message
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        on_end(reason)


def _counted(garbage: int) -> int:
    if garbage >= GARBAGE_MAX:
        raise UnavailableError(f"sent over {GARBAGE_MAX} lines that are no messages")
    return garbage + 1


def _message(line: bytes | TooLong) -> Any:
    """Return a line's message for the session; None if it is none."""
    import mcp_types as types  # noqa: PLC0415 -- with the library only
    from mcp.shared.message import SessionMessage  # noqa: PLC0415

    if isinstance(line, TooLong):
        if line.answers is None:
            return None
        text = f"answered with more than {MESSAGE_MAX >> 20} MiB"
        error = types.ErrorData(code=TOO_LONG, message=text)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=line.answers, error=error))
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write(
    stdin: trio.abc.SendStream, from_session: "MemoryObjectReceiveStream[Any]"
) -> None:
    try:
        with from_session:
            async for each in from_session:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send_all(text.encode() + b"\n")
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return  # its output ends, too
