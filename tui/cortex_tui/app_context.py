"""What every screen and widget of a session works with."""

from collections.abc import Callable
from uuid import UUID

import attrs

from cortex.store.screen_head import Head
from cortex_tui.actions import Actions
from cortex_tui.backend.store import StoreBackend
from cortex_tui.key_table import KeyTable
from cortex_tui.model.bell import Bell
from cortex_tui.model.question import TakesKeys
from cortex_tui.palette import Palette, palette_of
from cortex_tui.recall import Recall
from cortex_tui.render.job_rows import SHOWN_COLUMNS
from cortex_tui.session import Session


@attrs.define(kw_only=True)
class AppContext:
    """Created by the app and passed to every screen."""

    session: Session
    backend: StoreBackend
    keys: KeyTable
    actions: Actions
    recall: Recall
    wake: Callable[[], None]
    """Request a poll as soon as the pace allows."""
    open: Callable[..., None]
    """Open a screen by name on top of this one, with its arguments."""
    take_head: Callable[[Head], bool]
    """Take a head that came with a poll; returns whether it differs."""
    seek: Callable[[UUID], None]
    """Go to a request for approval."""
    arrived: Callable[[], None]
    """A screen came to the front."""
    asking: TakesKeys | None = None
    """The line that has the keys: its question is open, or was withdrawn."""
    bell: Bell = attrs.Factory(Bell)
    job_columns: frozenset[str] = SHOWN_COLUMNS
    """Titles of the optional columns in lists of jobs."""
    is_side_hidden: bool = False
    """The operator hid the panes beside lists."""
    head: Head | None = None
    """The head of every screen; None: not read yet."""

    @property
    def palette(self) -> Palette:
        """The current colours."""
        return palette_of(self.session.theme, self.session.colors)
