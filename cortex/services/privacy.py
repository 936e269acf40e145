"""Keeps what the process knows from others: the keys and passwords that it works with itself."""

import ctypes
import os
import sys
from typing import Final

import structlog

from cortex.domain import redaction
from cortex.domain.token import TOKEN_PREFIX
from cortex.store.dsn import password_of

PR_SET_DUMPABLE: Final = 4
OWN_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "PGPASSWORD")
TOKEN_PATTERN: Final = TOKEN_PREFIX + "[0-9a-f]{64}"

_log = structlog.get_logger(__name__)


def hide_memory() -> None:
    """Close this process's memory and environment to others of the same user; Linux only.

    A command that an agent runs has an environment without secrets, but could read ours in /proc.
    Against root nothing helps but running the pod as somebody else.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        _log.warning("other processes may read this one's environment", errno=ctypes.get_errno())


def hide_credentials(dsn: str | None) -> None:
    """Have the pod's own credentials redacted wherever text leaves it: see `domain.redaction`.

    Those that could stand in any text by chance are none: shorter than eight characters, or a
    password that is also the name of the user or of the database.
    """
    found = {name: os.environ.get(name, "") for name in OWN_VARIABLES}
    if dsn is not None:
        found["database password"] = password_of(dsn) or ""
    for name, value in found.items():
        if len(value) >= redaction.VALUE_CHARS_MIN:
            redaction.register(name, value)
    redaction.register_pattern("API token", TOKEN_PATTERN)
