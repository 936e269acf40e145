"""A listener on loopback before a Postgres on a socket: offers TLS, or refuses it as Postgres does.

The packaged server is built without TLS.
"""

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import attrs

SSL_REQUEST = (8).to_bytes(4) + (80877103).to_bytes(4)


@attrs.define(eq=False)
class TlsFront:
    """Notes of each session whether it was encrypted."""

    socket_path: Path
    certificate: Path | None
    """None: it offers no TLS."""
    port: int = 0
    sessions: list[bool] = attrs.field(factory=list)


class _Handler(socketserver.BaseRequestHandler):
    request: socket.socket
    front: TlsFront

    def handle(self) -> None:
        client, is_encrypted = self.request, False
        begin = client.recv(8, socket.MSG_WAITALL)
        if begin == SSL_REQUEST:
            client.sendall(b"S" if self.front.certificate else b"N")
            if self.front.certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.front.certificate)
                with suppress(OSError):
                    client = context.wrap_socket(client, server_side=True)
                    is_encrypted = True
                if not is_encrypted:
                    return
            begin = b""
            client.settimeout(60.0)
            begin = client.recv(8)
            if not begin:
                return
        self.front.sessions.append(is_encrypted)
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self.front.socket_path))
            server.sendall(begin)
            back = threading.Thread(target=_pass, args=(server, client))
            back.start()
            _pass(client, server)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join()
            client.close()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def tls_front(dsn: str, *, certificate: Path | None) -> Iterator[TlsFront]:
    """Run one before the server of a unix-socket DSN until the block is left."""
    place = parse_qs(urlsplit(dsn).query)
    path = Path(place["host"][0], f".s.PGSQL.{place['port'][0]}")
    front = TlsFront(path, certificate)
    handler = type("Handler", (_Handler,), {"front": front})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        front.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield front
        finally:
            server.shutdown()
            thread.join()
