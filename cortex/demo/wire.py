"""HTTP/1.1 for the scripted server: one client connection, h11 on a trio socket stream."""

import socket
import struct

import h11
import trio
from attrs import frozen

READ_BYTES = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger on, for 0 s: close() sends RST


@frozen
class HttpRequest:
    """A request, read to its end. `headers` are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection, request after request. Raises `trio.BrokenResourceError` when it breaks."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def next_request(self) -> HttpRequest | None:
        """Return the next request; None when there is none or it is not HTTP."""
        if self._http.our_state is h11.DONE:
            if self._http.their_state is not h11.DONE:
                return None
            self._http.start_next_cycle()
        try:
            head = await self._event()
            if not isinstance(head, h11.Request):
                return None
            body = bytearray()
            while isinstance(event := await self._event(), h11.Data):
                body += event.data
        except h11.RemoteProtocolError:
            return None
        return HttpRequest(
            method=head.method.decode(),
            path=head.target.decode("ascii", "replace").partition("?")[0],
            headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
        )

    async def open_answer(
        self, status: int, content_type: str, *, extra: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """Send the head of an answer; without a content-length its body is chunked."""
        headers = [("content-type", content_type), ("request-id", "req_scripted"), *extra]
        await self._send(h11.Response(status_code=status, headers=headers))

    async def send(self, data: bytes) -> None:
        """Send a part of the body, as one chunk."""
        await self._send(h11.Data(data=data))

    async def end_answer(self) -> None:
        """Mark the body as complete."""
        await self._send(h11.EndOfMessage())

    async def answer(
        self,
        status: int,
        content_type: str,
        body: bytes,
        *,
        extra: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Send a whole answer."""
        length = ("content-length", str(len(body)))
        await self.open_answer(status, content_type, extra=(length, *extra))
        await self.send(body)
        await self.end_answer()

    async def until_client_leaves(self) -> None:
        """Return when the client closes its side; data that it sends early is kept for later."""
        try:
            while data := await self._stream.receive_some(READ_BYTES):
                self._http.receive_data(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def reset(self) -> None:
        """Cut the connection hard: the client gets a reset."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # Closing wakes `until_client_leaves`, which would cancel the caller here. It never blocks.
        with trio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(READ_BYTES))
        return event

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            await self._stream.send_all(data)
