"""A long act in batches: its progress in the strip, esc pauses it, and what it came to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from cortex.domain.errors import ConflictError, CortexError, OutcomeUnknownError
from cortex.domain.safe import safe
from cortex.store.dead_letters import Settled
from cortex_tui.desk import Desk
from cortex_tui.model.question import Question
from cortex_tui.widgets.strip_line import StripLine

BATCH_MAX: Final = 100
_BAR_CELLS: Final = 20

T = TypeVar("T")


class Batch(Generic[T]):
    """Does all of it once it was agreed to; each batch is a transaction of its own, or some."""

    def __init__(
        self,
        desk: Desk,
        strip: StripLine,
        wanted: Sequence[T],
        *,
        work: Callable[[Sequence[T]], Awaitable[Sequence[Settled]]],
        done: str,
    ) -> None:
        """`done`: what became of those that it did, such as "retried"."""
        self._desk, self._strip = desk, strip
        self._work, self._done = work, done
        self._left = list(wanted)
        self._total = len(self._left)
        self._done_count = 0
        self._refused: list[CortexError] = []
        self._is_running = False
        self._is_pausing = False

    def pause(self) -> bool:
        """Pause after the batch that is under way; return whether there is one."""
        if self._is_running:
            self._is_pausing = True
            self._strip.tell(f"pausing · {self._told()}", "warn")
        return self._is_running

    async def run(self) -> str:
        """Do it; return what it came to. Raises `CortexError` when not all of it was begun."""
        self._is_running = True
        try:
            while self._left:
                if self._is_pausing and not await self._goes_on():
                    break
                await self._one()
                if self._left and not self._is_pausing:
                    self._strip.tell(f"{self._bar()}  {self._told()} · esc pauses", "accent")
        finally:
            self._is_running = False
        if self._left:
            raise ConflictError(self._told())
        return self._told()

    async def _one(self) -> None:
        if (refusal := self._desk.session.why_not_act()) is not None:
            raise ConflictError(f"{self._told()}; {refusal}")
        batch = self._left[:BATCH_MAX]
        try:
            settled = await self._work(batch)
        except OutcomeUnknownError as error:
            raise OutcomeUnknownError(f"{self._told()}; then: {error.message}") from error
        except CortexError as error:
            raise ConflictError(f"{self._told()}; then: {error.message}") from error
        del self._left[: len(batch)]
        self._refused += [each.error for each in settled if each.error is not None]
        self._done_count += sum(each.error is None for each in settled)

    async def _goes_on(self) -> bool:
        """Ask whether to go on with what is left."""
        self._is_pausing = False
        agreed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
            if not agreed.done():
                agreed.set_result(is_agreed)

        if not self._strip.is_attached:
            return False
        self._strip.ask(Question(f"paused: {safe(self._told())}; go on"), answered)
        return await agreed

    def _told(self) -> str:
        """Say how far it is."""
        told = f"{self._done} {self._done_count:,}"
        if self._refused:
            such = " such as" if len(self._refused) > 1 else ""
            told += f", {len(self._refused):,} not,{such} {self._refused[0].message}"
        return told + (f", {len(self._left):,} not begun" if self._left else "")

    def _bar(self) -> str:
        full = _BAR_CELLS * (self._total - len(self._left)) // self._total
        return "█" * full + "░" * (_BAR_CELLS - full)
