"""The state of a session: the user, their permissions, the theme, and the database's time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

from cortex.domain.people import Identity
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.beside import PodBeside
from cortex_tui.clock import Clock
from cortex_tui.desktop import Notify
from cortex_tui.link import Link

READ_ONLY = "read-only: start cortex tui without --read-only to act"
AS_READER = "read-only: as cortex_reader, a role that the database lets change nothing"
SET_SO = "read-only: by a setting of its sessions; this login may not become cortex_reader"


@attrs.define(kw_only=True)
class Session:
    """One run of `cortex tui`, shared by the app and its screens."""

    identity: Identity
    """Who acts, and the proof."""
    clock: Clock
    place: str = "local"
    """The database in a word, without a password."""
    is_read_only: bool = False
    is_reader: bool = False
    """Read-only by the database role; otherwise by a setting of the sessions."""
    is_ascii: bool = False
    theme: str = "dark"
    colors: str = "truecolor"
    """The colours of the terminal, see `palette.BY_COLORS`."""
    notify: Notify = Notify.OFF
    recall_s: float = 3.0
    """How long a decision can be undone before it is sent."""
    pictures: Path = attrs.Factory(Path.cwd)
    """The folder for screenshots."""
    reports: Path = attrs.Factory(Path.cwd)
    """The folder for crash reports of the UI."""
    link: Link = attrs.Factory(lambda self: Link(self.clock.now()), takes_self=True)
    pod: PodBeside | None = None
    """The pod started with the app, if any."""
    key_came_at: float = float("-inf")
    """The clock's time of the last key press: the key may have been handled later."""
    _offset: timedelta | None = None

    @property
    def actor(self) -> str:
        """The name that is recorded with every change."""
        return self.identity.name

    def set_time(self, database_now: datetime) -> None:
        """Take the database's time from a response; countdowns use it."""
        self._offset = database_now - self._mine()

    @property
    def now(self) -> datetime:
        """The best estimate of the database's time."""
        return self._mine() + (self._offset or timedelta())

    def why_not_act(self) -> str | None:
        """Return why nothing may be changed now; None if it may."""
        if self.is_read_only:
            return READ_ONLY
        if self.link.is_stale(self.clock.now()):
            return "the database does not answer: what is shown may have changed, nothing was done"
        return None

    def notes(self) -> Iterator[Cell]:
        """Yield notes on this session, one per line."""
        if self.is_read_only:
            yield Cell(AS_READER if self.is_reader else SET_SO, "warn")
        if self.pod is not None:
            ended = self.pod.ended()
            runs = f"runs with this screen{f', API at {self.pod.http}' if self.pod.http else ''}"
            state = f"pod {self.pod.name} {ended or runs}"
            yield Cell(safe(state), "dim" if ended is None else "fail")
            yield Cell(safe(f"its log: {self.pod.log}"), "dim")

    def _mine(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)
