"""What one sitting knows: who acts, whether they may, the theme, and the database's time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

from cortex_tui.clock import Clock
from cortex_tui.link import Link

READ_ONLY = "read-only: start cortex tui without --read-only to act"


@attrs.define(kw_only=True)
class Session:
    """One `cortex tui`; the app and its screens share it."""

    actor: str
    """Recorded with everything that is done."""
    clock: Clock
    place: str = "local"
    """Which database, in a word, without a password."""
    is_read_only: bool = False
    is_ascii: bool = False
    theme: str = "dark"
    recall_s: float = 3.0
    """So long a decision can be taken back before it is sent."""
    pictures: Path = attrs.Factory(Path.cwd)
    """The folder that screenshots are saved in."""
    link: Link = attrs.Factory(lambda self: Link(self.clock.now()), takes_self=True)
    _offset: timedelta | None = None

    def tell_time(self, database_now: datetime) -> None:
        """Take the database's time from an answer: countdowns go by it."""
        self._offset = database_now - self._mine()

    @property
    def now(self) -> datetime:
        """The database's time, as well as it is known."""
        return self._mine() + (self._offset or timedelta())

    def why_not_act(self) -> str | None:
        """Say why nothing may be done now; None: it may."""
        if self.is_read_only:
            return READ_ONLY
        if self.link.is_stale(self.clock.now()):
            return "the database does not answer: what is shown may have changed, nothing was done"
        return None

    def _mine(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)
