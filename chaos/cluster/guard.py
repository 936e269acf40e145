"""The directory of one run, and a process beside it that cleans up when the run cannot.

The guard is forked before anything else starts. It outlives the run by a moment: when the run's
process ends in any way, it stops the server that is left in the directory and removes it. At a
deadline it ends the run's process. Pods need no guard: they end with their fork server, which ends
with the run's process.
"""

import contextlib
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from chaos.cluster.disk import unmount_below
from cortex.postgres.embedded.account import account_for
from cortex.postgres.embedded.cluster import Cluster
from cortex.postgres.embedded.install import MAJOR, packaged

PREFIX: Final = "cortex-chaos-"
RAM_DISK: Final = Path("/dev/shm")  # noqa: S108  (directories in it get random names)
RAM_MIN_BYTES: Final = 4 * 1024**3
GRACE_S: Final = 20.0
"""Between SIGTERM and SIGKILL to the run."""


@contextlib.contextmanager
def guarded_folder(*, deadline_s: float) -> Iterator[Path]:
    """Make a run's directory on the fastest disk; removed on leaving the block, or soon after.

    To be called before there are threads or an event loop. A run that takes longer than
    `deadline_s` gets SIGTERM, and SIGKILL some seconds later.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_quickest_disk()))
    folder.chmod(0o711)  # the system user that runs Postgres for root has to pass through it
    watched, kept = os.pipe()
    run = os.getpid()
    guard = os.fork()
    if guard == 0:
        os.close(kept)
        _guard(watched, folder, run, deadline_s=deadline_s)
    os.close(watched)
    try:
        yield folder
    finally:
        clear(folder)
        os.close(kept)
        os.waitpid(guard, 0)


def clear(folder: Path) -> None:
    """Stop the servers that run below a directory, and remove the directory."""
    for lock in folder.rglob("server.lock"):
        home = lock.parent
        account = account_for(home / "pgdata")
        cluster = Cluster(home=home, install=packaged(), account=account, major=MAJOR)
        cluster.stop(signal.SIGQUIT)
    unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _guard(watched: int, folder: Path, run: int, *, deadline_s: float) -> NoReturn:
    """Wait for the end of the run's process; never returns."""
    os.setsid()  # Ctrl-C is for the run only
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        for grace_s, last in ((deadline_s, signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
            readable, _, _ = select.select([watched], [], [], grace_s)
            if readable:
                break
            # it is our parent as long as the pipe is open, so the pid is still its own
            os.kill(run, last)
        select.select([watched], [], [], GRACE_S)
        if folder.exists():
            _clear_stubbornly(folder)
    finally:
        os._exit(0)


def _clear_stubbornly(folder: Path) -> None:
    """Retry for a while: processes that are just ending may still write."""
    for _ in range(50):
        clear(folder)
        if not folder.exists():
            return
        time.sleep(0.1)


def _quickest_disk() -> Path:
    """Memory if there is plenty of it."""
    has_room = RAM_DISK.is_dir() and shutil.disk_usage(RAM_DISK).free >= RAM_MIN_BYTES
    if has_room and not os.statvfs(RAM_DISK).f_flag & os.ST_NOEXEC:
        return RAM_DISK
    return Path(tempfile.gettempdir())
