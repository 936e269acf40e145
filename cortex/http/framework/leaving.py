"""Seeing a client leave, for handlers that wait."""

from starlette.requests import Request


async def until_left(request: Request) -> None:
    """Return when the client has gone. The body has been read before, so nothing else comes."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
