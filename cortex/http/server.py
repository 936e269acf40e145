"""Serves the API: listens, bounds the connections, and ends in time whatever they do.

Owns: the listening socket and every connection.
Invariants: without a token, the server listens only on this machine; at most `connections_max`
connections are open, further ones get an error and are closed; a failing connection does not affect
others.

On failure: a crash of the actor closes all connections; it listens on the same port again.
On stop: `close` stops listening, ends idle connections at once, gives the others `GRACE_S` (also
those whose first request has yet to come) and cuts them off. Before that, while the pod drains,
they have had time: see `cortex.http.framework.gate`. On a service manager's socket, connections
that were not accepted wait for the next pod.
"""

import ipaddress
import resource
import socket
from collections import Counter
from functools import partial
from typing import Final

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp

from cortex.domain.clock import Chance
from cortex.domain.errors import UsageError
from cortex.http.framework.api import Api, PodView
from cortex.http.framework.auth import Authenticator
from cortex.http.framework.dispatch import application
from cortex.http.framework.live_tokens import LiveTokens
from cortex.http.framework.protocol import Connection, config
from cortex.http.framework.turns import Turns
from cortex.http.routes import ALL
from cortex.postgres.bridge import Lane, Port
from cortex.store import tokens

CONNECTIONS_MAX: Final = 2048
"""Over a thousand clients may wait for results at once, each on its own connection."""
FILES_WANTED: Final = 8192
FILES_SHARE: Final = 2
"""The database, the jobs' tools and their files get the other half."""
CALLS_MAX: Final = 2
"""Concurrent database calls, half of the pod's: its jobs must not wait for readers."""
BACKLOG: Final = 256
GRACE_S: Final = 1.0
REFUSAL_BOUND_S: Final = 1.0

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_log = structlog.get_logger(__name__)


class Server:
    """The actor that serves the API."""

    name = "http"

    def __init__(
        self,
        port: Port,
        app: ASGIApp,
        *,
        host: str,
        number: int,
        turns: Turns,
        live: LiveTokens,
        connections_max: int | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """`number` is the TCP port; 0 picks a free one. `listening` listens there already."""
        self._port = port
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]
        self._host = host
        self._number = number
        self._turns = turns
        self._live = live
        self._connections_max = connections_max
        self._listening = listening
        self._open_count = 0
        self._open_by_peer: Counter[str] = Counter()
        self._has_ended = trio.Event()
        """Nothing is accepted, and every connection has ended."""
        self._context = WorkerContext(None)
        self._accepting = trio.CancelScope()
        self._serving = trio.CancelScope()

    @property
    def url(self) -> str:
        """The listening address, with the actual port once it is ready."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._number}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; ready when it listens.

        Raises `UsageError` for an address that cannot be bound, or that is reachable from other
        machines while there is no token.
        """
        listener = await self._listen()
        most = self._connections_max or _connections_max()
        self._open_count = 0
        self._open_by_peer = Counter()
        self._has_ended = trio.Event()
        self._context = WorkerContext(None)
        self._accepting, self._serving = trio.CancelScope(), trio.CancelScope()
        _log.info("listening", url=self.url, connections_max=most)
        async with trio.open_nursery() as beside:
            beside.start_soon(self._live.run)
            try:
                with self._serving:
                    async with trio.open_nursery() as connections:
                        task_status.started()
                        with self._accepting:
                            await trio.serve_listeners(
                                partial(self._serve, most=most),
                                [listener],
                                handler_nursery=connections,
                            )
            finally:
                self._has_ended.set()
            await trio.sleep_forever()

    async def close(self) -> None:
        """Stop listening and end every connection, within little more than `GRACE_S`."""
        self._accepting.cancel(reason="the pod ends")
        await self._context.terminated.set()
        with trio.move_on_after(GRACE_S):
            await self._has_ended.wait()
        if self._open_count:
            _log.warning("connections cut off", connections=self._open_count)
        self._serving.cancel(reason="the pod ends")

    async def _serve(self, stream: trio.SocketStream, *, most: int) -> None:
        peer = _peer(stream)
        # A quarter is reserved for others: one peer with all its connections cannot exclude them.
        if self._open_count >= most or self._open_by_peer[peer] >= most - most // 4:
            await _refuse(stream)
            return
        self._open_count += 1
        self._open_by_peer[peer] += 1
        try:
            await Connection(self._app, config(), self._context, stream, self._turns).run()
        except Exception:  # noqa: BLE001 -- one connection must not end the others
            _log.exception("connection failed")
        finally:
            self._open_count -= 1
            self._open_by_peer[peer] -= 1
            if not self._open_by_peer[peer]:
                del self._open_by_peer[peer]

    async def _listen(self) -> trio.SocketListener:
        try:
            found = await trio.socket.getaddrinfo(
                self._host, self._number, type=trio.socket.SOCK_STREAM
            )
            address = str(found[0][4][0])
            if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
                await self._refuse_without_token()
            if self._listening is not None:
                # A duplicate: connections that come when this server is closed wait for the next.
                return trio.SocketListener(trio.socket.from_stdlib_socket(self._listening.dup()))
            (listener,) = await trio.open_tcp_listeners(self._number, host=address, backlog=BACKLOG)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {self.url}: {error.strerror or error}",
                hint="give another address: --http HOST:PORT; port 0 picks a free one",
            ) from error
        self._number = listener.socket.getsockname()[1]
        return listener

    async def _refuse_without_token(self) -> None:
        if not await self._port(tokens.exist):
            raise UsageError(
                (f"{self.url} can be reached from other machines, but there is no token yet"),
                hint=(
                    "create one first: cortex tokens create --name NAME --role admin; or "
                    "listen on 127.0.0.1"
                ),
            )


def api_server(
    port: Port,
    *,
    chance: Chance,
    pod: PodView,
    host: str,
    number: int,
    listening: socket.socket | None = None,
) -> Server:
    """Return the server of all routes, not listening yet."""
    live = LiveTokens(port)  # beside the lane: readers must not hold up its looks
    port = Lane(port, calls_max=CALLS_MAX)
    api = Api(port=port, chance=chance, pod=pod, auth=Authenticator(port), live=live)
    return Server(
        port,
        application(ALL, api),
        host=host,
        number=number,
        turns=api.turns,
        live=live,
        listening=listening,
    )


def _peer(stream: trio.SocketStream) -> str:
    """Return the peer's address; "" if it has disconnected."""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return ""


async def _refuse(stream: trio.SocketStream) -> None:
    try:
        with trio.move_on_after(REFUSAL_BOUND_S):
            await stream.send_all(_FULL)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # it has disconnected
    finally:
        await trio.aclose_forcefully(stream)


def _connections_max() -> int:
    """Return how many connections the process can hold, after raising its file limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return (
        CONNECTIONS_MAX
        if soft == resource.RLIM_INFINITY
        else min(CONNECTIONS_MAX, soft // FILES_SHARE)
    )
