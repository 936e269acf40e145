"""A server that replays its log: it answers each start of a session by SQLSTATE 57P03."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SSL_REQUEST = 80877103
ANSWER = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"


class Recovering:
    """Listens on loopback, and counts who was turned away."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.turned_away = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop listening: the port is free for the server that has recovered."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, suppress(OSError, struct.error):
                peer.settimeout(5)
                if struct.unpack("!ii", peer.recv(8))[1] == SSL_REQUEST:
                    peer.sendall(b"N")
                    peer.recv(8)
                peer.sendall(b"E" + struct.pack("!i", len(ANSWER) + 4) + ANSWER)
                self.turned_away += 1


@contextmanager
def recovering() -> Iterator[Recovering]:
    """One that runs until the block ends, or it is closed."""
    server = Recovering()
    try:
        yield server
    finally:
        server.close()
