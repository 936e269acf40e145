"""Serves one client on stdin and stdout, one JSON message per line.

The transport of the `mcp` package reads stdin in a thread that nothing ends before the client sends
a line or leaves: this one waits in trio, and bounds a line.

On stop: when stdin ends the calls in progress are cancelled; nothing is written any more.
"""

import os
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, cast

import trio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
READ_BYTES: Final = 65_536


class _Lines:
    """Lines from a file, as text; of one that is too long only the beginning: it is no JSON."""

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream
        self._held = bytearray()
        self._whole: deque[bytes] = deque()
        self._is_skipping = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while not self._whole:
            piece = await self._stream.receive_some(READ_BYTES)
            if not piece:
                raise StopAsyncIteration
            self._take(piece)
        return self._whole.popleft().decode(errors="replace")

    def _take(self, piece: bytes | bytearray) -> None:
        first, *others = piece.split(b"\n")
        self._held += first
        for each in others:
            if not self._is_skipping and self._held.strip():
                self._whole.append(bytes(self._held))
            self._is_skipping = False
            self._held = bytearray(each)
        if len(self._held) > LINE_BYTES_MAX:
            if not self._is_skipping:
                self._whole.append(bytes(self._held[:READ_BYTES]))
            self._is_skipping = True
            self._held.clear()


class _Writer:
    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream

    async def write(self, text: str) -> None:
        await self._stream.send_all(text.encode())

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


async def serve(server: Server[Any]) -> None:
    """Serve until stdin ends or nobody reads stdout; cancel it to end before."""
    async with _standard_streams() as (source, sink):
        try:
            async with stdio_server(cast("Any", _Lines(source)), cast("Any", _Writer(sink))) as (
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
