"""The request to end a pod, by whoever makes it."""

import trio


class Shutdown:
    """`stop` drains, `abort` hands back at once. To be asked for by `request`."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.abort = trio.Event()
        self.starting = trio.CancelScope()
        """Around a pod that has nothing to drain yet: a request ends it at once."""
        self.has_started = False

    def request(self) -> None:
        """Drain; when asked again, abort."""
        if self.stop.is_set():
            self.abort.set()
        self.stop.set()
        if not self.has_started:
            self.starting.cancel(reason="asked to end during its start")
