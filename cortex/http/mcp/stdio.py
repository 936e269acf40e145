"""Serves one client on stdin and stdout, one JSON message per line.

The transport of the `mcp` package reads stdin in a thread that nothing ends before the client sends
a line or leaves: this one waits in trio, and bounds a line.

On stop: when stdin ends the calls in progress are cancelled; nothing is written any more.
"""

import json
import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, cast

import trio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import INVALID_REQUEST, jsonrpc_message_adapter

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
READ_BYTES: Final = 65_536
ENDS_BYTES: Final = 1_024
"""Kept of the beginning and of the end of a line that is too long: clients write the id there."""
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")'
_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*|"method"\s*:\s*"[^"\\]*"\s*,\s*)*' + _ID + rb"\s*,"
)
_LAST: Final = re.compile(_ID + rb"\s*\}\s*\Z")


class _Lines:
    """Messages from a file, each a line. One that cannot be read gets an error, if its id can."""

    def __init__(self, stream: trio.lowlevel.FdStream, writer: "_Writer") -> None:
        self._stream = stream
        self._writer = writer
        self._held = bytearray()
        self._beginning: bytes | None = None
        """Of a line that is too long; of the rest of it only the end is held."""
        self._whole: deque[tuple[bytes, str | None]] = deque()
        """Lines, each with what is wrong."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            while not self._whole:
                piece = await self._stream.receive_some(READ_BYTES)
                if not piece:
                    raise StopAsyncIteration
                self._take(piece)
            line, fault = self._whole.popleft()
            if fault is None and (fault := _fault(line)) is None:
                return line.decode(errors="replace")
            if (number := _id_of(line)) is not None:
                error = json.dumps({"code": INVALID_REQUEST, "message": fault})
                await self._writer.write(f'{{"jsonrpc":"2.0","id":{number},"error":{error}}}\n')

    def _take(self, piece: bytes | bytearray) -> None:
        first, *others = piece.split(b"\n")
        self._held += first
        for each in others:
            self._end_line()
            self._held = bytearray(each)
        if self._beginning is None and len(self._held) > LINE_BYTES_MAX:
            self._beginning = bytes(self._held[:ENDS_BYTES])
        if self._beginning is not None:
            del self._held[:-ENDS_BYTES]

    def _end_line(self) -> None:
        if self._beginning is not None:
            fault = f"the message has more than {LINE_BYTES_MAX:,} bytes: send less at once"
            self._whole.append((self._beginning + self._held, fault))
            self._beginning = None
        elif self._held.strip():
            self._whole.append((bytes(self._held), None))


def _fault(line: bytes) -> str | None:
    """Return what is wrong with a line that the `mcp` package would drop without an answer."""
    try:
        jsonrpc_message_adapter.validate_json(line.decode(errors="replace"), by_name=False)
    except ValueError:
        return "the message cannot be read: it is no JSON-RPC, not UTF-8, or nested too deep"
    return None


def _id_of(line: bytes) -> str | None:
    found = _FIRST.match(line) or _LAST.search(line)
    return None if found is None else found[1].decode(errors="replace")


class _Writer:
    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream
        self._one = trio.Lock()

    async def write(self, text: str) -> None:
        async with self._one:
            await self._stream.send_all(text.encode())

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


async def serve(server: Server[Any]) -> None:
    """Serve until stdin ends or nobody reads stdout; cancel it to end before."""
    async with _standard_streams() as (source, sink):
        try:
            writer = _Writer(sink)
            lines = _Lines(source, writer)
            async with stdio_server(cast("Any", lines), cast("Any", writer)) as (
                incoming,
                outgoing,
            ):
                await server.run(incoming, outgoing, server.create_initialization_options())
        except* (trio.BrokenResourceError, BrokenPipeError):
            pass  # the client has left


@asynccontextmanager
async def _standard_streams() -> AsyncGenerator[
    tuple[trio.lowlevel.FdStream, trio.lowlevel.FdStream], None
]:
    """Take stdin and stdout; for everybody else they are empty, and stderr, from then on."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    async with trio.lowlevel.FdStream(source) as reader, trio.lowlevel.FdStream(sink) as writer:
        yield reader, writer
