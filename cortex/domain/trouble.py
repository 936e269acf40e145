"""What may be wrong with the database, as a pod sees it by its own calls."""

from enum import StrEnum
from typing import Final

import attrs


class Trouble(StrEnum):
    """Why the database does not serve a call that it served before, or would any other day."""

    UNREACHABLE = "unreachable"
    """Nobody answers there, or connections were cut: it restarts, or it has gone."""
    SILENT = "silent"
    """Connections stand, but no answer comes in time."""
    READ_ONLY = "read_only"
    """It takes no writes: a standby, or one that was the primary."""
    DISK_FULL = "disk_full"
    OUT_OF_MEMORY = "out_of_memory"
    """Or of another resource of its machine, such as open files."""
    NO_CONNECTIONS = "no_connections"
    """All that it may have are taken."""

    @property
    def is_shortage(self) -> bool:
        """It answers, but it lacks something: asking again and again would make that worse."""
        return self in _SHORTAGES


_SHORTAGES: Final = frozenset({Trouble.DISK_FULL, Trouble.OUT_OF_MEMORY, Trouble.NO_CONNECTIONS})


@attrs.frozen
class TroubleSeen:
    """What a pod suffers from, and for how long by now."""

    trouble: Trouble
    for_s: float
