"""`/mcp`: the tools over HTTP, for any number of assistants, each with a token.

Without sessions: each request brings its token and is served for itself, so that a restart, or
another server behind the same address, goes on. A page in a browser is refused, whatever its
origin, so that none can be made to call tools.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.http.framework.gate import TEMPLATE, WHO
from cortex.http.framework.live_tokens import LiveTokens
from cortex.http.framework.origin import address_of
from cortex.http.framework.problem import MethodNotAllowedError
from cortex.http.mcp.callers import Callers

PATH: Final = "/mcp"
BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""Above the largest payload of a job with its escapes."""


@attrs.frozen(kw_only=True)
class Endpoint:
    """The ASGI application."""

    callers: Callers
    live: LiveTokens
    manager: StreamableHTTPSessionManager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            raise NotFoundError(
                "there is nothing at this path", hint=f"assistants connect to {PATH}"
            )
        scope[TEMPLATE] = PATH
        headers = Headers(scope=scope)
        if "origin" in headers:  # its host proves nothing: names can be made to lead here
            raise ForbiddenError("pages in browsers may not call tools")
        if scope["method"] != "POST":
            raise MethodNotAllowedError("this path takes POST", headers={"Allow": "POST"})
        principal = await self.callers.by_token(
            headers.get("authorization"), address=address_of(scope), is_read_only=True
        )
        scope[WHO] = principal.name
        with self.live.read(principal):
            await self.manager.handle_request(scope, receive, send)


@asynccontextmanager
async def endpoint(
    server: Server[Any], *, callers: Callers, live: LiveTokens
) -> AsyncGenerator[Endpoint, None]:
    """Serve this server's tools as long as the block."""
    manager = StreamableHTTPSessionManager(
        server, stateless=True, max_request_body_size=BODY_BYTES_MAX
    )
    async with manager.run():
        yield Endpoint(callers=callers, live=live, manager=manager)
