"""Posts messages over kept connections, thousands in a second: for webhooks alone.

A post is one request and its status. Redirects are not followed, and of an answer only the
beginning is read. A name is resolved for each new connection, its addresses are checked, and the
connection goes to the checked address.

Built on h11, beside the general client, because that takes 725 µs of CPU for a post, its own
transport 424 µs, this 121 µs: 2,000 messages a second would take one and a half cores for the
requests alone. The general client is not built on this, since jobs need redirects, bodies of half
a megabyte and every method, for which a post of a message has no use.
"""

import select
from collections.abc import Sequence
from typing import Final, Self
from urllib.parse import urlsplit

import attrs
import h11
import trio

from cortex.domain.classification import class_of_status, code_of_status
from cortex.domain.effect import NotSentError
from cortex.domain.errors import InvalidValueError, TimedOutError, UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.redaction import excerpt
from cortex.domain.retry import retry_after_of
from cortex.http_client.addresses import AllowedAddresses, looked_up, resolve
from cortex.http_client.proxies import PORTS, Origin, Proxies, Proxy, require_public
from cortex.http_client.redirects import not_followed
from cortex.http_client.tunnel import encrypted, tunnelled

CONNECT_S: Final = 10.0
READ_MAX_BYTES: Final = 65_536
"""Of an answer; the connection of a longer one is closed."""
SHOWN_FROM_BYTES: Final = 4_096
"""Of a refusal: an error message quotes its beginning."""
IDLE_MAX: Final = 20
"""Connections kept to one origin."""
IDLE_S: Final = 30.0
"""Servers close theirs after a while: an older one is not used again."""
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
CHUNK_BYTES: Final = 16_384

Headers = Sequence[tuple[str, str]]


@attrs.frozen(kw_only=True)
class Target:
    """A URL to post to, taken apart once."""

    url: str = attrs.field(repr=False)
    origin: Origin
    netloc: str
    path: str

    @property
    def whole(self) -> str:
        """The URL as a proxy gets it."""
        return f"{self.origin[0]}://{self.netloc}{self.path}"

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `InvalidValueError` without the URL, which may be a secret."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
            parts = urlsplit("")
        if parts.scheme not in PORTS or not host or not url.isascii() or "@" in parts.netloc:
            raise InvalidValueError("the URL is not one", hint="such as https://example.org/hook")
        query = f"?{parts.query}" if parts.query else ""
        return cls(
            url=url,
            origin=(parts.scheme, host, port or PORTS[parts.scheme]),
            netloc=parts.netloc,
            path=(parts.path or "/") + query,
        )


@attrs.frozen(kw_only=True)
class Answer:
    """What the server answered to a post."""

    status: int
    beginning: bytes
    retry_after_s: float | None
    location: str = attrs.field(default="", repr=False)
    """Where it redirects to, as the server gave it."""

    def failure(self, target: Target) -> Failure | None:
        """Return why the server did not take the message; None: it did."""
        code = code_of_status(self.status)
        if code is None:
            return None
        host = target.origin[1]
        text = excerpt(self.beginning[:SHOWN_FROM_BYTES].decode(errors="replace"))
        if self.status in REDIRECTS and self.location:
            text = not_followed(target.url, self.location)
        return Failure(
            cls=class_of_status(self.status),
            code=code,
            message=f"{host} answered with status {self.status}{text and f': {text}'}",
            retry_after_s=self.retry_after_s,
        )


@attrs.define(eq=False)
class _Connection:
    stream: trio.abc.Stream
    transport: trio.SocketStream
    protocol: h11.Connection
    used_at: float
    proxy: Proxy | None = None
    """It forwards requests, which name their target in full."""

    @property
    def is_usable(self) -> bool:
        """Nothing has arrived since its last answer, not even its end."""
        if trio.current_time() - self.used_at > IDLE_S:
            return False
        poll = select.poll()
        poll.register(self.transport.socket.fileno(), select.POLLIN)
        return not poll.poll(0)


class Poster:
    """Posts to permitted addresses; keeps idle connections until it is closed."""

    def __init__(self, allowed: AllowedAddresses, *, proxies: Proxies | None = None) -> None:
        """Without `proxies` every post goes directly."""
        self._allowed = allowed
        self._proxies = Proxies() if proxies is None else proxies
        self._idle: dict[Origin, list[_Connection]] = {}

    async def post(self, target: Target, headers: Headers, body: bytes) -> Answer:
        """Post once, or once more if a kept connection turns out to be closed.

        The caller limits the time of all of it. Raises `ForbiddenError` for an address that is off
        limits, `NotSentError`, `TimedOutError`, `UnavailableError` or `OSError`.
        """
        kept = self._take(target.origin)
        if kept is not None:
            try:
                return await self._exchange(kept, target, headers, body)
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                pass  # closed at the same moment; the receiver knows the message by its id
        try:
            return await self._exchange(await self._connect(target), target, headers, body)
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise UnavailableError(
                f"{target.origin[1]} closed the connection, or broke the protocol"
            ) from error

    async def aclose(self) -> None:
        """Close all idle connections."""
        with trio.CancelScope(shield=True):
            for connections in self._idle.values():
                for each in connections:
                    await trio.aclose_forcefully(each.stream)
        self._idle.clear()

    def _take(self, origin: Origin) -> _Connection | None:
        idle = self._idle.get(origin, [])
        while idle:
            kept = idle.pop()
            if kept.is_usable:
                return kept
            kept.transport.socket.close()
        return None

    async def _connect(self, target: Target) -> _Connection:
        scheme, host, port = target.origin
        proxy = self._proxies.of(target.origin)
        with trio.move_on_after(CONNECT_S):
            if proxy is not None:
                await require_public(host, port, self._allowed)
                return await _through(proxy, target)
            transport = await _dialled(await resolve(host, port, self._allowed), port)
            stream = transport if scheme == "http" else await encrypted(transport, host)
            return _connection(stream, transport)
        raise TimedOutError(
            f"no connection to {host}:{port} within {CONNECT_S:g} s",
            scope="connect",
            limit_s=CONNECT_S,
        )

    async def _exchange(
        self, connection: _Connection, target: Target, headers: Headers, body: bytes
    ) -> Answer:
        protocol = connection.protocol
        is_reusable = False
        try:
            request = h11.Request(
                method="POST",
                target=target.path if connection.proxy is None else target.whole,
                headers=[
                    ("Host", target.netloc),
                    ("Content-Length", str(len(body))),
                    *_proxy_headers(connection.proxy),
                    *headers,
                ],
            )
            sent = (protocol.send(request), protocol.send(h11.Data(body)))
            end = protocol.send(h11.EndOfMessage())
            await connection.stream.send_all(b"".join(each or b"" for each in (*sent, end)))
            answer = await _read(connection)
            is_reusable = protocol.our_state is protocol.their_state is h11.DONE
            return answer
        finally:
            if is_reusable:
                protocol.start_next_cycle()
                self._keep(target.origin, connection)
            else:
                await trio.aclose_forcefully(connection.stream)

    def _keep(self, origin: Origin, connection: _Connection) -> None:
        idle = self._idle.setdefault(origin, [])
        connection.used_at = trio.current_time()
        idle.append(connection)
        if len(idle) > IDLE_MAX:
            idle.pop(0).transport.socket.close()


def _connection(
    stream: trio.abc.Stream, transport: trio.SocketStream, proxy: Proxy | None = None
) -> _Connection:
    return _Connection(
        stream, transport, h11.Connection(h11.CLIENT), trio.current_time(), proxy=proxy
    )


async def _through(proxy: Proxy, target: Target) -> _Connection:
    """Connect through a proxy, whose own address the operator has chosen."""
    proxy_scheme, proxy_host, proxy_port = proxy.origin
    try:
        transport = await _dialled(await looked_up(proxy_host, proxy_port), proxy_port)
    except OSError as error:
        raise NotSentError(f"{proxy} cannot be reached: {error}") from error
    stream: trio.abc.Stream = transport
    if proxy_scheme == "https":
        stream = await encrypted(transport, proxy_host)
    scheme, host, port = target.origin
    if scheme == "http":
        return _connection(stream, transport, proxy)
    try:
        await tunnelled(stream, proxy, host, port)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return _connection(await encrypted(stream, host), transport)


def _proxy_headers(proxy: Proxy | None) -> Headers:
    if proxy is None or proxy.authorization is None:
        return ()
    return (("Proxy-Authorization", proxy.authorization),)


async def _dialled(addresses: Sequence[str], port: int) -> trio.SocketStream:
    """Connect to the first of these numeric addresses that answers."""
    last: OSError | None = None
    for address in addresses:
        family = trio.socket.AF_INET6 if ":" in address else trio.socket.AF_INET
        socket = trio.socket.socket(family, trio.socket.SOCK_STREAM)
        try:
            await socket.connect((address, port))
        except OSError as error:
            socket.close()
            last = error
        except BaseException:
            socket.close()
            raise
        else:
            return trio.SocketStream(socket)
    raise last or UnavailableError("the host has no address")


async def _read(connection: _Connection) -> Answer:
    """Read a status and the beginning of its body."""
    protocol, stream = connection.protocol, connection.stream
    status, body, location, retry_after_s = 0, b"", "", None
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            protocol.receive_data(bytes(await stream.receive_some(CHUNK_BYTES)))
        elif isinstance(event, h11.Response):
            status = event.status_code
            named = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            retry_after_s = retry_after_of(named, now=None)
            location = named.get("location", "")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > READ_MAX_BYTES:
                break
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            break
    return Answer(status=status, beginning=body, retry_after_s=retry_after_s, location=location)
