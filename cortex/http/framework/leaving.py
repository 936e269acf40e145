"""Notices that a client leaves, for handlers that wait."""

from starlette.requests import Request


async def until_left(request: Request) -> None:
    """Return when the client has left. The body has been read, so no other message arrives."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
