"""Crash reports of the terminal UI: one line on stderr, the details in a private file.

Reports never contain values of variables: those may hold the arguments and secrets of a job.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from textual.worker import WorkerFailed

from cortex.domain.safe import safe

EXIT_CODE: Final = 1
REPORTS_MAX: Final = 20
"""Reports kept; the oldest are deleted."""
OURS: Final = "cortex_tui"


def report(errors: Sequence[Exception], *, folder: Path, at: datetime, is_debug: bool) -> int:
    """Write a crash report and one line about it to stderr; return the exit code.

    Errors with one cause are reported once. Only the report has the text of an error. `is_debug`:
    show tracebacks on stderr, too.
    """
    causes = list(dict.fromkeys(_cause(each) for each in errors))
    text = "\n".join("".join(traceback.format_exception(each)) for each in causes)
    if is_debug:
        _write(text)
    first = causes[0]
    where = place_of(first)
    what = type(first).__name__ + (f" in {where}" if where else "")
    _write(
        f"error: a fault in cortex tui ended it: {what}; {_kept(text, folder, at)}; "
        "nothing else is touched by it: start cortex tui again\n"
    )
    return EXIT_CODE


def keep(errors: Sequence[Exception], *, folder: Path, at: datetime) -> str:
    """Write a report of faults that broke only part of a screen; return where it is."""
    first = errors[0]
    text = "\n".join("".join(traceback.format_exception(each)) for each in errors)
    return f"{type(first).__name__} in {place_of(first)}; {_kept(text, folder, at)}"


def _cause(error: BaseException) -> BaseException:
    """Unwrap the error of a worker."""
    return error.error if isinstance(error, WorkerFailed) else error


def place_of(error: BaseException) -> str:
    """Return the innermost line of the project's code in the traceback."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if OURS in Path(f.filename).parts
    ]
    if not frames:
        return ""
    parts = Path(frames[-1].filename).parts
    inside = parts[len(parts) - parts[::-1].index(OURS) - 1 :]
    return f"{'/'.join(inside)}:{frames[-1].lineno}"


def _kept(text: str, folder: Path, at: datetime) -> str:
    """Write a report that only its user may read; return its path, or why there is none."""
    report = folder / f"tui-{at:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for old in _too_old(folder):
            old.unlink(missing_ok=True)
        number = os.open(report, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        return f"no report could be written to {folder} ({error.strerror}): --debug shows it"
    return f"report: {report}"


def _too_old(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("tui-*.log"))[: 1 - REPORTS_MAX]


def _write(text: str) -> None:
    sys.stderr.write(safe(text, newline="\n"))
    sys.stderr.flush()
