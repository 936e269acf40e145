"""Answers that go on until their reader leaves: events, and files too large to hold."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cortex.http.leaving import until_left


class Streamed(Response):
    """Sends pieces as they come; when the reader leaves, the generator is closed, and not left.

    The route should have `bound_s=None`. A generator that waits should also end when the pod
    drains. What the generator raises cuts the answer off.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or as much as somebody wants."""
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        async with aclosing(self._pieces) as pieces, trio.open_nursery() as nursery:

            async def end_when_left() -> None:
                await until_left(Request(scope, receive))
                nursery.cancel_scope.cancel(reason="the reader has left")

            nursery.start_soon(end_when_left)
            await send(start)
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel(reason="all is sent")
