"""Responses that continue until their reader leaves: events, and files too large for memory."""

from collections.abc import Awaitable, Callable, Mapping

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cortex.http.framework.leaving import until_left
from cortex.http.framework.turns import Kind, Turns

Write = Callable[[bytes], Awaitable[None]]
Writer = Callable[[Write], Awaitable[None]]


class Streamed(Response):
    """Sends the output of a function, piece by piece; cancels it when the reader leaves.

    The route should have `bound_s=None`. A writer that waits should also end when the pod drains.
    An error before the first piece becomes a problem document; a later one cuts the response off. A
    slow reader blocks `write`: that is the backpressure.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        turns: Turns,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._writer = writer
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or until the reader leaves."""
        has_begun = False

        async def begin() -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})

        async def write(piece: bytes) -> None:
            await self._turns(Kind.STREAM)
            await begin()
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        async with trio.open_nursery() as nursery:

            async def end_when_left() -> None:
                await until_left(Request(scope, receive))
                nursery.cancel_scope.cancel(reason="the reader has left")

            nursery.start_soon(end_when_left)
            await self._writer(write)
            await begin()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel(reason="all is sent")
