"""Formats commands so that they work when copied into another terminal."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from cortex.cli.target import data_dir
from cortex.config import Settings
from cortex.postgres.dsn import redact
from cortex.postgres.embedded.server import default_data_dir

UNDER_UV = "UV_RUN_RECURSION_DEPTH"
"""Set by `uv run`: without it `cortex` is not found in another terminal."""


def typed(
    *words: str,
    settings: Settings,
    program: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return a command as typed here, for the database that these settings name.

    A password in its address is shown as `***`.
    """
    is_module = Path(program or sys.argv[0]).name == "__main__.py"
    own = "python -m cortex" if is_module else "cortex"
    start = "uv run cortex" if UNDER_UV in environ else own
    return shlex.join((*start.split(), *words, *_target(settings)))


def _target(settings: Settings) -> tuple[str, ...]:
    if settings.dsn is not None:
        return "--dsn", redact(settings.dsn)
    folder = data_dir(settings)
    return () if folder == default_data_dir() else ("--data", str(folder.resolve()))
