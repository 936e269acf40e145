"""Starts the embedded Postgres again when it dies, or loses its socket, under those who use it.

A thread of its own in each process that uses the server for long: its looks are a system call or
two while the server lives, and it does not depend on an event loop that waits for the database.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cortex.domain.errors import CortexError
from cortex.store.embedded import EmbeddedServer

LOOK_EVERY_S: Final = 0.5
AGAIN_MOST_S: Final = 15.0
"""Between attempts, of which each doubles the wait; why one failed stands in the server's log."""
END_BOUND_S: Final = 5.0


@contextmanager
def kept_running(server: EmbeddedServer) -> Iterator[None]:
    """Until the block ends, start the server when nobody can reach it any more.

    At the end an attempt that is under way is waited for, five seconds at most: a server that
    starts after that stays until its next user leaves.
    """
    is_over = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(server, is_over), name="embedded-postgres", daemon=True
    )
    keeper.start()
    try:
        yield
    finally:
        is_over.set()
        keeper.join(END_BOUND_S)


def _keep(server: EmbeddedServer, is_over: threading.Event) -> None:
    wait_s = LOOK_EVERY_S
    while not is_over.wait(wait_s):
        try:
            server.revive()
        except (CortexError, OSError):
            wait_s = min(AGAIN_MOST_S, 2 * wait_s)
        else:
            wait_s = LOOK_EVERY_S
