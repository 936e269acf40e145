"""A web server on threads of its own: it serves while the run's event loop waits."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Final, Self

SHUTDOWN_POLL_S: Final = 0.05


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class ThreadedServer:
    """Listens on a free port of this machine; serves between `start` and `close`."""

    LISTENER: ClassVar[type[Listener]] = Listener

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._listener = self.LISTENER(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(SHUTDOWN_POLL_S,)
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
