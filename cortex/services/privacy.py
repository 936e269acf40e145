"""Keeps what the process knows from its children: keys and passwords in its environment."""

import ctypes
import sys
from typing import Final

import structlog

PR_SET_DUMPABLE: Final = 4

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
