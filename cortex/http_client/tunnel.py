"""The way to a server through an HTTP proxy, for requests that are written by hand."""

import ssl

import h11
import trio

from cortex.domain.effect import NotSentError
from cortex.domain.errors import UnavailableError
from cortex.http_client.proxies import Proxy
from cortex.http_client.tls import trusted

ANSWER_MAX_BYTES = 65_536
OK_FAMILY = 2


async def encrypted(stream: trio.abc.Stream, host: str) -> trio.abc.Stream:
    """Agree on TLS with `host`. Raises `UnavailableError` after closing the stream."""
    secure = trio.SSLStream(stream, trusted(), server_hostname=host, https_compatible=True)
    try:
        await secure.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(stream)
        if isinstance(error.__cause__, ssl.SSLError):
            raise UnavailableError(f"{host}: {error.__cause__}") from error  # noqa: ASYNC104 -- no cancellation has this cause
        raise
    return secure


async def tunnelled(stream: trio.abc.Stream, proxy: Proxy, host: str, port: int) -> None:
    """Have the proxy connect to a server by its name. Raises `NotSentError` if it refuses."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = [("Host", authority)]
    if proxy.authorization is not None:
        headers.append(("Proxy-Authorization", proxy.authorization))
    protocol = h11.Connection(h11.CLIENT)
    request = h11.Request(method="CONNECT", target=authority, headers=headers)
    received = 0
    try:
        await stream.send_all(
            (protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b"")
        )
        while (event := protocol.next_event()) is h11.NEED_DATA:
            data = bytes(await stream.receive_some())
            received += len(data)
            if received > ANSWER_MAX_BYTES:
                raise NotSentError(f"{proxy} answered with too much")
            protocol.receive_data(data)
    except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
        raise NotSentError(f"{proxy} closed the connection, or is no HTTP proxy") from error
    if not isinstance(event, h11.Response) or event.status_code // 100 != OK_FAMILY:
        status = getattr(event, "status_code", "no status")
        raise NotSentError(f"{proxy} does not connect to {authority}: status {status}")
