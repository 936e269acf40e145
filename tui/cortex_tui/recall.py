"""A decision that waits a moment before it is sent, so that who made it can take it back.

Until then nothing of it is anywhere but here: a client that is killed has decided nothing. It is
sent at once when the next one is made, when its screen is left, and when the operator leaves or
goes to the shell or an editor: this process stands still then.
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
    """One decision, and until when it can be taken back."""

    act: Action
    asker: Asker
    ids: tuple[UUID, ...]
    """What it is about."""
    since: float
    until: float
    changed: Callable[[], object]
    is_over: asyncio.Event = attrs.Factory(asyncio.Event)


class Recall:
    """Holds one decision at most."""

    def __init__(
        self,
        session: Session,
        acts: Actions,
        *,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`start` runs a coroutine beside the app."""
        self._session, self._acts, self._start = session, acts, start
        self._held: Held | None = None

    @property
    def ids(self) -> frozenset[UUID]:
        """What is decided and not sent."""
        return frozenset(self._held.ids if self._held else ())

    @property
    def bar(self) -> Cell | None:
        """How much time is left to take it back; None: there is nothing to be taken back."""
        held, now = self._held, self._session.clock.now()
        if held is None:
            return None
        left = max(0.0, (held.until - now) / (held.until - held.since))
        return Cell(f"u recalls {bar(round(left * _PARTS), _PARTS, BAR_CELLS)} ", "warn")

    def hold(
        self,
        asker: Asker,
        act: Action,
        ids: tuple[UUID, ...],
        *,
        for_s: float,
        changed: Callable[[], object],
    ) -> None:
        """Send it after so many seconds, the one before at once; `changed`: it is drawn anew."""
        self.send()
        asker.tell(f"{safe(act.question)} …", "dim")
        now = self._session.clock.now()
        self._held = held = Held(
            act=act, asker=asker, ids=ids, since=now, until=now + for_s, changed=changed
        )
        changed()
        self._start(self._wait(held))

    def send(self) -> None:
        """Send what is held, if anything is, at once."""
        if (held := self._take()) is not None:
            self._acts.agreed(held.asker, held.act, waits=True)

    def take_back(self) -> Held | None:
        """Forget what is held; None: there was nothing any more."""
        return self._take()

    async def leave(self) -> ActionResult | None:
        """Send what is held, and wait until that is done; None: nothing was."""
        held = self._take()
        return None if held is None else await self._acts.finish(held.asker, held.act)

    async def is_clear(self, asker: Asker) -> bool:
        """Send what is held before this process stands still; False: it had better not yet.

        Why not was told: that failed, or an act is under way, of which half would be done.
        """
        if self._acts.is_busy:
            asker.tell(BUSY, "warn")
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
