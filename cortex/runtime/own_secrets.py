"""Hides the secrets of this process, its keys and passwords, from other processes and from text."""

import ctypes
import os
import sys
from collections.abc import Iterable
from typing import Final

import structlog

from cortex.agent.models.providers import CREDENTIALS
from cortex.domain import redaction
from cortex.domain.token import SECRET_PATTERN
from cortex.postgres.dsn import password_of

PR_SET_DUMPABLE: Final = 4
OWN_VARIABLES: Final = (*CREDENTIALS, "PGPASSWORD")

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


def hide_credentials(
    dsn: str | None, *, variables: Iterable[str] = (), secrets: Iterable[str] = ()
) -> None:
    """Have the pod's own credentials redacted wherever text leaves it: see `domain.redaction`.

    `variables`: those of the environment that hold keys besides the well-known ones. `secrets`:
    those that sign callback URLs.

    Credentials that could occur in any text are skipped: shorter than eight characters, or a
    password that is also the name of the user or of the database.
    """
    credentials = {name: os.environ.get(name, "") for name in (*OWN_VARIABLES, *variables)}
    if dsn is not None:
        credentials["database password"] = password_of(dsn) or ""
    for name, value in credentials.items():
        if len(value) >= redaction.VALUE_CHARS_MIN:
            redaction.register(name, value)
    for secret in secrets:
        redaction.register("callback secret", secret)
    redaction.register_pattern("API token", SECRET_PATTERN)
