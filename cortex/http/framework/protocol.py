"""HTTP/1.1 on one connection, stricter than Hypercorn is by itself.

Owns: one connection. HTTP/2 and WebSockets are not supported: each would need limits of its own.
Invariants: a request with an ambiguous end is refused and ends the connection; a head must arrive
within the time of an idle connection; the client must read each send within `SEND_BOUND_S`, and no
send delays the pod's end.

On failure: the connection is closed. On stop: an idle connection is closed at once, but not
one whose first request has yet to come, or on which bytes have arrived.
"""

import re
import select
from typing import Any, Final

import h11
import structlog
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from cortex.http.framework import problem
from cortex.http.framework.turns import Kind, Turns

HEAD_BYTES_MAX: Final = 16_384
HEADERS_MAX: Final = 100
IDLE_S: Final = 15.0
"""Until the whole head of the next request has arrived; also how long a connection is kept."""
SEND_BOUND_S: Final = 60.0
READ_BYTES: Final = 65_536
REQUESTS_MAX: Final = 1000
"""Per connection; then the client reconnects, perhaps to another pod."""

_PROBE: Final = re.compile(rb"(?:GET|HEAD) /(?:healthz|readyz)[ ?]")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_VERSION: Final = re.compile(rb"[^\r\n]* HTTP/1\.[01]\r\n")
_FRAMING: Final = re.compile(
    rb"\n(?:content-length|transfer-encoding)[ \t]*:([^\r\n]*)", re.IGNORECASE
)
_FRAMING_VALUE: Final = re.compile(rb"[ \t]*(?:[0-9]+|chunked)[ \t]*", re.IGNORECASE)
_BARE_END_OR_FOLD: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|\x00")
_log = structlog.get_logger(__name__)


class QuietLogger:
    """Hypercorn's logger: only faults, in the pod's log, without the request."""

    def __init__(self, config: Config) -> None:
        """Ignore the configuration."""

    async def access(self, *_: object) -> None:
        """Log nothing: `cortex.http.framework.gate` logs requests, without secrets."""

    async def exception(self, message: str, *_: object, **__: object) -> None:
        _log.exception(message.lower())

    async def warning(self, message: str, *_: object, **__: object) -> None:
        _log.warning(message.lower())

    async def info(self, *_: object, **__: object) -> None:
        """Ignore the message."""


def config() -> Config:
    """Return Hypercorn's configuration."""
    made = Config()
    made.h11_max_incomplete_size = HEAD_BYTES_MAX
    made.keep_alive_timeout = IDLE_S
    made.keep_alive_max_requests = REQUESTS_MAX
    made.include_server_header = False
    made.logger_class = QuietLogger  # type: ignore[assignment]
    return made


class _StrictH11(h11.Connection):
    """Refuses ambiguous heads that h11 would normalise."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            received = self.trailing_data[0]
            end = _HEAD_END.search(received)
            if end is not None:
                _refuse_ambiguous(received[: end.end()])
        return super().next_event()


def _refuse_ambiguous(head: bytes) -> None:
    """Raise `h11.RemoteProtocolError` for a head that other servers may read differently."""
    if len(head) > HEAD_BYTES_MAX or head.count(b"\n") > HEADERS_MAX + 2:
        raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
    if _BARE_END_OR_FOLD.search(head):
        raise h11.RemoteProtocolError("a line end that is not CR LF, or none")
    if not _VERSION.match(head):
        raise h11.RemoteProtocolError("not HTTP/1.0 or HTTP/1.1", error_status_hint=505)
    framing = _FRAMING.findall(head)
    if len(framing) > 1 or not all(_FRAMING_VALUE.fullmatch(value) for value in framing):
        raise h11.RemoteProtocolError("unclear where the body ends")


class _Protocol(H11Protocol):
    """HTTP/1.1 and nothing else."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connection = _StrictH11(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Ignore requests to upgrade the protocol."""

    async def _create_stream(self, request: h11.Request) -> None:
        kept = [pair for pair in request.headers if pair[0] != b"upgrade"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                headers=kept,
                http_version=request.http_version,
            )
        )

    async def _send_error_response(self, status_code: int) -> None:
        document = problem.bare(status_code)
        headers = [
            (b"content-type", problem.MEDIA_TYPE.encode()),
            (b"content-length", str(len(document)).encode()),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.Data(data=document))
        await self._send_h11_event(h11.EndOfMessage())


class Connection(TCPServer):
    """One connection, from its first byte to its end; `await connection.run()`."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        turns: Turns,
    ) -> None:
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]
        self._turns = turns
        self._is_over = False
        self._is_waiting = False
        """Bytes were read, and are not handled yet."""
        self._is_kept = False
        """A request was answered, and the connection is open for the next one."""

    async def run(self) -> None:
        """Serve until one side ends; a failing connection raises nothing."""
        socket = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = _Protocol(  # type: ignore[assignment]
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState({}),
                    False,  # noqa: FBT003 -- Hypercorn's: no TLS
                    client,
                    server,
                    self.protocol_send,
                )
                await self.idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
                # The client has left: nothing is kept for its next request.
                self._is_over = True
                await self.idle_task.stop()
        except OSError:
            pass  # it was reset: there is no reader for an error
        finally:
            await trio.aclose_forcefully(self.stream)

    async def _read_data(self) -> None:
        """Handle incoming pieces in turn, until the client has left."""
        data = b"not yet"
        while data:
            try:
                data = bytes(await self.stream.receive_some(READ_BYTES))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if data:
                self._is_waiting = True
                await self._turns(Kind.PROBE if _PROBE.match(data) else Kind.REQUEST)
            await self.protocol.handle(RawData(data))
            self._is_waiting = False  # not before: a request that begins stops the idle timer
        await self.protocol.handle(Closed())

    async def _idle_timeout(self) -> None:
        """Close the connection after `IDLE_S`, or when the pod ends; not while bytes wait in it."""
        await trio.lowlevel.checkpoint()
        while not self.context.terminated.is_set():
            with trio.move_on_after(self.config.keep_alive_timeout):
                await self.context.terminated.wait()
            if not self._has_bytes():
                break
        if self.context.terminated.is_set() and (not self._is_kept or self._has_bytes()):
            return  # it was accepted, so its request is answered: `Server.close` bounds the wait
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()

    def _has_bytes(self) -> bool:
        number = self.stream.socket.fileno()
        if self._is_waiting or number < 0:
            return self._is_waiting
        arrived = select.poll()
        arrived.register(number, select.POLLIN)
        return bool(arrived.poll(0))

    async def protocol_send(self, event: Any) -> None:
        """Send within a bound, and not under a shield as Hypercorn does."""
        if isinstance(event, Updated):
            self._is_kept = event.idle
        if not isinstance(event, RawData):
            if not (self._is_over and isinstance(event, Updated)):
                await super().protocol_send(event)
            return
        async with self.send_lock:
            try:
                with trio.fail_after(SEND_BOUND_S):
                    await self.stream.send_all(event.data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                await trio.aclose_forcefully(self.stream)
                await self.protocol.handle(Closed())
