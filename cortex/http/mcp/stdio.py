"""Serves one client on stdin and stdout, one JSON message per line.

The transport of the `mcp` package reads stdin in a thread that nothing ends before the client sends
a line or leaves: this one waits in trio, and bounds a line.

On stop: when stdin ends the calls in progress are cancelled; nothing is written any more.
"""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import trio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
READ_BYTES: Final = 65_536


class _Lines:
    """Lines from a file, as text; one that is too long is passed on cut: no JSON, so refused."""

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[str]:
        held = bytearray()
        is_skipping = False
        async for piece in self._stream:
            held += piece
            *whole, rest = held.split(b"\n")
            for line in whole:
                if not is_skipping and line.strip():
                    yield bytes(line[:LINE_BYTES_MAX]).decode(errors="replace")
                is_skipping = False
            held = bytearray(rest)
            if len(held) > LINE_BYTES_MAX:
                if not is_skipping:
                    yield bytes(held[:READ_BYTES]).decode(errors="replace")
                is_skipping = True
                held.clear()


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
