"""What a pod needs of its own process: an end by force, privacy, and the lag of its event loop.

The deadman ends the process when its shutdown does not: code that ignores cancellation cannot hold
a pod.

A thread, not a trio task, since it guards against a blocked event loop. One thread serves all
requests: the earliest one strikes.
"""

import _thread
import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs
import structlog
import trio

from cortex.domain import redaction
from cortex.domain.token import TOKEN_PREFIX
from cortex.postgres.dsn import password_of

EXIT_CODE: Final = 1
GOODBYE_S: Final = 2.0
"""How long the process may take to end by itself once its pod is gone."""
LOOK_S: Final = 0.1
"""How often it checks for an earlier request; no lock announces one, see `arm`."""


@attrs.frozen(order=True)
class _Strike:
    """When to strike, by the monotonic clock, and how."""

    at: float
    exit_code: int = attrs.field(order=False)
    message: str = attrs.field(order=False)


_strikes: list[_Strike] = []


def arm(after_s: float, *, exit_code: int = EXIT_CODE, message: str | None = None) -> None:
    """End the process hard after `after_s` seconds, if it still runs then.

    Safe at any moment, in a signal handler too: other pods take over what was not committed.
    `message`: the line that it prints then, instead of the default about a slow shutdown.
    """
    late = f"shutdown took longer than {after_s:g} s: exiting hard"
    is_first = not _strikes
    _strikes.append(_Strike(time.monotonic() + after_s, exit_code, message or late))
    if is_first:
        # Not threading.Thread: the interrupted code may hold its locks.
        _thread.start_new_thread(_watch, ())


def _watch() -> None:
    never = threading.Event()
    while True:
        strike = min(tuple(_strikes))
        left_s = strike.at - time.monotonic()
        if left_s <= 0:
            break
        never.wait(min(left_s, LOOK_S))
    try:
        # The reader may be gone, or read no more: that must not keep the process alive.
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"cortex: {strike.message}\n".encode())
    finally:
        os._exit(strike.exit_code)


# --- Measures the lag of the event loop: how a busy loop delays heartbeats and streams.


EVERY_S: Final = 0.1


class LoopLag:
    """The actor."""

    name = "loop lag"

    def __init__(self, on_lag: Callable[[float], None] = lambda _: None) -> None:
        """`on_lag` gets each delay in seconds."""
        self._worst_s = 0.0
        self._on_lag = on_lag

    def take_ms(self) -> float:
        """Return the worst delay in milliseconds since the last call."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return 1000 * worst_s

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure until cancelled."""
        task_status.started()
        while True:
            due = trio.current_time() + EVERY_S
            await trio.sleep_until(due)
            late_s = trio.current_time() - due
            self._worst_s = max(self._worst_s, late_s)
            self._on_lag(late_s)


# --- Hides the process's own secrets from other processes: the keys and passwords that it uses.


PR_SET_DUMPABLE: Final = 4
OWN_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "PGPASSWORD")
TOKEN_PATTERN: Final = TOKEN_PREFIX + "[0-9a-f]{64}"

_log = structlog.get_logger(__name__)


def hide_memory() -> None:
    """Close this process's memory and environment to others of the same user; Linux only.

    A command that an agent runs has an environment without secrets, but could read ours in /proc.
    Against root only running the pod as another user helps.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        _log.warning("other processes may read this one's environment", errno=ctypes.get_errno())


def hide_credentials(dsn: str | None) -> None:
    """Have the pod's own credentials redacted wherever text leaves it: see `domain.redaction`.

    Credentials that could occur in any text are skipped: shorter than eight characters, or a
    password that is also the name of the user or of the database.
    """
    credentials = {name: os.environ.get(name, "") for name in OWN_VARIABLES}
    if dsn is not None:
        credentials["database password"] = password_of(dsn) or ""
    for name, value in credentials.items():
        if len(value) >= redaction.VALUE_CHARS_MIN:
            redaction.register(name, value)
    redaction.register_pattern("API token", TOKEN_PATTERN)
