"""Delays a decision for a moment before sending it, so that the operator can undo it.

Until then it exists only in memory: a client that is killed has decided nothing. It is sent at once
when the next decision is made, when its screen is left, and when the operator quits or goes to the
shell or an editor, because this process then stands still.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.safe import safe
from cortex.view.cells import Cell, bar
from cortex_tui.actions import BUSY, Action, ActionResult, Actions, Asker
from cortex_tui.session import Session

FRAME_S: Final = 0.1
BAR_CELLS: Final = 8
_PARTS: Final = 1_000


@attrs.frozen(kw_only=True, eq=False)
class Held:
    """A decision, and the time until which it can be undone."""

    action: Action
    asker: Asker
    ids: tuple[UUID, ...]
    """The requests that it decides."""
    since: float
    until: float
    changed: Callable[[], object]
    is_over: asyncio.Event = attrs.Factory(asyncio.Event)


class Recall:
    """Holds at most one decision."""

    def __init__(
        self,
        session: Session,
        actions: Actions,
        *,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`start` runs a coroutine alongside the app."""
        self._session, self._actions, self._start = session, actions, start
        self._held: Held | None = None

    @property
    def ids(self) -> frozenset[UUID]:
        """The requests that are decided but not sent."""
        return frozenset(self._held.ids if self._held else ())

    @property
    def bar(self) -> Cell | None:
        """The time left to undo it; None if nothing is held."""
        held, now = self._held, self._session.clock.now()
        if held is None:
            return None
        left = max(0.0, (held.until - now) / (held.until - held.since))
        return Cell(f"u recalls {bar(round(left * _PARTS), _PARTS, BAR_CELLS)} ", "warn")

    def hold(
        self,
        asker: Asker,
        action: Action,
        ids: tuple[UUID, ...],
        *,
        for_s: float,
        changed: Callable[[], object],
    ) -> None:
        """Send it after a delay, and the previous one at once; `changed` is called to redraw."""
        self.send()
        asker.show(f"{safe(action.question)} …", "dim")
        now = self._session.clock.now()
        self._held = held = Held(
            action=action, asker=asker, ids=ids, since=now, until=now + for_s, changed=changed
        )
        changed()
        self._start(self._wait(held))

    def send(self) -> None:
        """Send the held decision now, if there is one."""
        if (held := self._take()) is not None:
            self._actions.agreed(held.asker, held.action, waits=True)

    def take_back(self) -> Held | None:
        """Drop the held decision and return it; None if it is already sent."""
        return self._take()

    async def leave(self) -> ActionResult | None:
        """Send the held decision and wait for its outcome; None if nothing was held."""
        held = self._take()
        return None if held is None else await self._actions.finish(held.asker, held.action)

    async def is_clear(self, asker: Asker) -> bool:
        """Send the held decision before this process is suspended; False: do not suspend now.

        The reason was shown: sending failed, or an action is running and would be left half done.
        """
        if self._actions.is_busy:
            asker.show(BUSY, "warn")
            return False
        while (done := await self.leave()) is not None:
            if not done.is_done:
                return False
        return True

    def _take(self) -> Held | None:
        held, self._held = self._held, None
        if held is not None:
            held.is_over.set()
            held.changed()
        return held

    async def _wait(self, held: Held) -> None:
        clock = self._session.clock
        while not held.is_over.is_set() and (now := clock.now()) < held.until:
            await clock.wait(held.is_over, until=min(now + FRAME_S, held.until))
            held.changed()
        if self._held is held:
            self.send()
