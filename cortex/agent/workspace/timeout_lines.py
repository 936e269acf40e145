"""`timeouts.jsonl` in the workspace of a flow's job: one line for each limit that has fired.

The record is the receipts in the database; this file is for people and programs that look at a
run's folder. Blocking: call it in a thread.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import orjson

NAME: Final = "timeouts.jsonl"
SIZE_MAX: Final = 1_048_576
"""Bytes after which no line is added: a loop of time-outs must not fill a disk."""


@attrs.frozen(kw_only=True)
class TimeoutLine:
    """One limit that has fired. Times are in milliseconds."""

    flow: str
    """Name and version: `invoices v3`."""
    job_id: str
    attempt: int
    step: str | None
    scope: str
    limit_ms: int | None
    elapsed_ms: int
    recovery: str
    """How it goes on: the next try, the outcome `failed` of the step, or a choice of `jobs
    resume`."""
    final_action: str
    at: str


def append_line(workspace: Path, line: TimeoutLine) -> None:
    """Add a line to the file of a run. Raises `OSError`."""
    with suppress(FileExistsError):
        workspace.mkdir(mode=0o700, parents=True)
    # A tool may have put a link in its place: it is not followed.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(workspace / NAME, flags, 0o600)
    try:
        if os.fstat(file).st_size < SIZE_MAX:
            os.write(file, orjson.dumps(attrs.asdict(line), option=orjson.OPT_APPEND_NEWLINE))
    finally:
        os.close(file)
