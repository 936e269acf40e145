"""Default number of workers of a run of pytest; `-n` on the command line wins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

WORKERS_MAX: Final = 8
"""More only queue up at Postgres."""
FILES_ALONE_MAX: Final = 2
"""Test files for which starting workers costs more than they save."""
COMPUTING: Final = ("tests/unit",)
"""Folders whose tests wait for nothing."""


def worker_count(args: Sequence[str], *, cores: int) -> int:
    """Return the workers for the arguments of pytest: files, folders and ids of tests.

    Twice as many as there are cores, since tests wait half of their time; none for one or two
    files, which one process runs for a third less CPU.
    """
    files = {arg.partition("::")[0] for arg in args}
    if len(files) <= FILES_ALONE_MAX and all(Path(each).suffix == ".py" for each in files):
        return 0
    only_compute = all(any(each in file for each in COMPUTING) for file in files)
    return min(cores * (1 if only_compute else 2), WORKERS_MAX)
