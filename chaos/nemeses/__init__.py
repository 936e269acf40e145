"""The faults of a running cluster and their healing: one file each; `ALL` holds them."""

from typing import Final

from chaos.nemeses import clock, full_disk
from chaos.nemeses.blackhole import Blackhole
from chaos.nemeses.clock import Clock
from chaos.nemeses.deaf import Deaf
from chaos.nemeses.drain import Drain
from chaos.nemeses.end_session import EndSession
from chaos.nemeses.full_disk import FullDisk
from chaos.nemeses.kill import Kill
from chaos.nemeses.kill_at_point import KillAtPoint
from chaos.nemeses.kill_backend import KillBackend
from chaos.nemeses.kill_mid_query import KillMidQuery
from chaos.nemeses.kill_worker import KillWorker
from chaos.nemeses.long_snapshot import LongSnapshot
from chaos.nemeses.lose_reply import LoseReply
from chaos.nemeses.model import Model
from chaos.nemeses.nemesis import Nemesis
from chaos.nemeses.pause import Pause
from chaos.nemeses.pause_jobs import PauseJobs
from chaos.nemeses.refuse import Refuse
from chaos.nemeses.reset import Reset
from chaos.nemeses.restart import Restart
from chaos.nemeses.second_term import SecondTerm
from chaos.nemeses.slow import Slow
from chaos.nemeses.starve import Starve
from chaos.nemeses.stop_in_transaction import StopInTransaction
from chaos.nemeses.stop_worker import StopWorker
from chaos.nemeses.term_without_database import TermWithoutDatabase
from chaos.nemeses.tick import Tick
from chaos.nemeses.too_many import TooMany

ALL: Final[tuple[Nemesis, ...]] = (
    Kill(),
    KillAtPoint(),
    Pause(),
    StopInTransaction(),
    KillMidQuery(),
    EndSession(),
    KillBackend(),
    Restart(),
    LoseReply(),
    Blackhole(),
    Slow(),
    Refuse(),
    Reset(),
    Starve(),
    Deaf(),
    LongSnapshot(),
    TooMany(),
    FullDisk(),
    Model(),
    Clock(),
    Drain(),
    SecondTerm(),
    TermWithoutDatabase(),
    Tick(),
    PauseJobs(),
    KillWorker(),
    StopWorker(),
)
OF_WORKERS: Final = (KillWorker.name, StopWorker.name)
"""Those that need a pod of several processes."""
OF_ONE_PROCESS: Final = (KillAtPoint.name,)
"""Those that need a pod of one: its process stops or ends at the point."""


def absent(*, workers: int = 1) -> dict[str, str]:
    """The nemeses that do not work on this machine and such pods, by name, with the reasons."""
    here = {Clock.name: clock.missing(), FullDisk.name: full_disk.missing()}
    reasons = {name: why for name, why in here.items() if why is not None}
    if workers == 1:
        return reasons | dict.fromkeys(OF_WORKERS, "pods have one process: add --workers 2")
    return reasons | dict.fromkeys(OF_ONE_PROCESS, "it needs pods of one process")
