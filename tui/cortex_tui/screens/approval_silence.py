"""The quiet time that the inbox requires before a key counts, and the bar that shows it."""

import asyncio
from typing import Final

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.guard import Guard
from cortex_tui.model.verdict import BAR_CELLS
from cortex_tui.screens.frame import Frame

FRAME_S: Final = 0.1


class Silence:
    """The quiet time of one screen; its questions share `guard`."""

    def __init__(self, context: AppContext, screen: Frame) -> None:
        self._session, self._clock, self._screen = context.session, context.session.clock, screen
        self.guard = Guard(self._clock.now())
        self._is_filling = False

    @property
    def is_over(self) -> bool:
        """Whether the next key counts."""
        return self.guard.is_armed(self._clock.now())

    @property
    def bar(self) -> Cell | None:
        """The bar of the quiet time; None once it has passed."""
        if self.is_over:
            return None
        full = int(self.guard.filled(self._clock.now()) * BAR_CELLS)
        return Cell(f"{'█' * full}{'░' * (BAR_CELLS - full)} ", "dim")

    def restart(self) -> None:
        """Restart: something else is in front."""
        self.guard.restart(self._clock.now())
        self.fill()

    def skip(self) -> None:
        """Let the next key count: see `Guard.skip`."""
        self.guard.skip(self._clock.now())

    def press(self) -> None:
        """Take a key; one that is too early restarts the quiet time."""
        self.guard.press(self._clock.now(), came_at=self._session.key_came_at)

    def fill(self) -> None:
        """Redraw the bar as time passes."""
        if not self._is_filling and self._screen.is_attached:
            self._is_filling = True
            self._screen.run_worker(self._filling(), exit_on_error=True)

    async def _filling(self) -> None:
        clock = self._clock
        try:
            while not self.is_over:
                until = min(clock.now() + FRAME_S, self.guard.armed_at)
                await clock.wait(asyncio.Event(), until=until)
                self._screen.strip.redraw()
        finally:
            self._is_filling = False
