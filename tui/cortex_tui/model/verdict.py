"""The questions by which people decide: what they type, and when it counts.

The first key counts after a quiet time, which a `Guard` measures and a screen's `Silence` shows. A
wrong key restarts it. Esc leaves at once. Keys that write nothing, such as arrows, scroll the
request.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from cortex.domain.approvals.vote import REASON_CHARS_MAX
from cortex.view.cells import Cell
from cortex_tui.model.question import CANCEL, KeyAnswer
from cortex_tui.model.reason import REASON_CHARS_MIN

QUIET_S: Final = 0.4
"""The time without any key."""
LONGER_S: Final = 0.1
"""Each key that comes too early adds to the quiet time: the operator is typing, not reading."""
QUIET_MAX_S: Final = 1.5
BAR_CELLS: Final = 8
FRAME_S: Final = 0.1

Now = Callable[[], float]
"""Returns the clock's time, or the arrival of the last key by it."""


class Guard:
    """The quiet time before a key may decide: nobody approves what just appeared under the cursor.

    Times are seconds of a monotonic clock, passed in by the caller.
    """

    def __init__(self, now: float) -> None:
        self._quiet_s = QUIET_S
        self._since = now

    def restart(self, now: float) -> None:
        """Start the quiet time: something else is in front of the operator."""
        self._quiet_s = QUIET_S
        self._since = now

    def skip(self, now: float) -> None:
        """Let the next key count: it belongs to the previous decision."""
        self._quiet_s = 0.0
        self._since = now

    def press(self, now: float, *, came_at: float) -> bool:
        """Take a key; return whether it counts. A key that comes too early restarts the quiet time.

        The time of arrival decides: while the app was suspended there was no quiet time.
        """
        if self.is_armed(came_at):
            return True
        self._quiet_s = min(QUIET_MAX_S, self._quiet_s + LONGER_S)
        self._since = now
        return False

    def is_armed(self, now: float) -> bool:
        """Whether the next key counts."""
        return now >= self.armed_at

    def filled(self, now: float) -> float:
        """The part of the quiet time that has passed, from 0 to 1."""
        if self.is_armed(now):
            return 1.0
        return max(0.0, min(1.0, (now - self._since) / self._quiet_s))

    @property
    def armed_at(self) -> float:
        """The time from which the next key counts, if none comes before."""
        return self._since + self._quiet_s


class Silence:
    """The quiet time of one screen; its questions share `guard`."""

    def __init__(
        self,
        *,
        now: Now,
        came: Now,
        wait: Callable[[float], Awaitable[None]],
        start: Callable[[Coroutine[Any, Any, None]], object],
        is_shown: Callable[[], bool],
        redraw: Callable[[], object],
    ) -> None:
        """`wait` waits until a time; `start` runs a coroutine alongside the app."""
        self._now, self._came, self._wait, self._start = now, came, wait, start
        self._is_shown, self._redraw = is_shown, redraw
        self.guard = Guard(now())
        self._is_filling = False

    @property
    def is_over(self) -> bool:
        """Whether the next key counts."""
        return self.guard.is_armed(self._now())

    @property
    def bar(self) -> Cell | None:
        """The bar of the quiet time; None once it has passed."""
        if self.is_over:
            return None
        full = int(self.guard.filled(self._now()) * BAR_CELLS)
        return Cell(f"{'█' * full}{'░' * (BAR_CELLS - full)} ", "dim")

    def restart(self) -> None:
        """Restart: something else is in front."""
        self.guard.restart(self._now())
        self.fill()

    def skip(self) -> None:
        """Let the next key count: see `Guard.skip`."""
        self.guard.skip(self._now())

    def press(self) -> None:
        """Take a key; one that is too early restarts the quiet time."""
        self.guard.press(self._now(), came_at=self._came())

    def fill(self) -> None:
        """Redraw the bar as time passes."""
        if not self._is_filling and self._is_shown():
            self._is_filling = True
            self._start(self._filling())

    async def _filling(self) -> None:
        try:
            while not self.is_over:
                await self._wait(min(self._now() + FRAME_S, self.guard.armed_at))
                self._redraw()
        finally:
            self._is_filling = False


class Scroll(Protocol):
    """Scrolls the request by the name of a key."""

    def __call__(self, key: str, /) -> None: ...


class _Guarded:
    """A question whose first key counts after the quiet time."""

    def __init__(self, text: str, *, guard: Guard, now: Now, came: Now, scroll: Scroll) -> None:
        """`text` names the request; safe. `guard`: its quiet time starts with the question."""
        self.text = text
        self.typed = ""
        self._guard, self._now, self._came, self._scroll = guard, now, came, scroll
        guard.restart(now())

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- the silence has begun
        return False

    def _is_early(self) -> bool:
        return not self.typed and not self._guard.press(self._now(), came_at=self._came())

    def _other(self, key: str) -> KeyAnswer:
        """Handle a key that the question does not expect."""
        self._guard.restart(self._now())
        self._scroll(key)
        return KeyAnswer.NONE

    def _bar(self) -> str:
        """Show the progress of the quiet time; blank at the same width once a key counts."""
        filled = self._guard.filled(self._now())
        if self.typed or filled >= 1:
            return " " * (2 + BAR_CELLS)  # keep the keys in place
        full = int(filled * BAR_CELLS)
        return f"  {'█' * full}{'░' * (BAR_CELLS - full)}"


class ApproveQuestion(_Guarded):
    """The operator types `wanted`: y, or the end of an id."""

    def __init__(
        self, text: str, *, wanted: str, guard: Guard, now: Now, came: Now, scroll: Scroll
    ) -> None:
        super().__init__(text, guard=guard, now=now, came=came, scroll=scroll)
        self.wanted = wanted

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if not character or not self.wanted.startswith(self.typed + character):
            self.typed = ""
            return self._other(key)
        if self._is_early():
            return KeyAnswer.NONE
        self.typed += character
        return KeyAnswer.YES if self.typed == self.wanted else KeyAnswer.NONE

    def how(self) -> str:
        if len(self.wanted) == 1:
            return f"{self._bar()}  {self.wanted} yes   esc no "
        typed = self.typed.ljust(len(self.wanted), "_")
        return f"{self._bar()}  type {self.wanted}: {typed}   esc no "


class DenyQuestion(_Guarded):
    """The operator picks the number of a canned reason, or types a reason and Enter."""

    def __init__(
        self,
        text: str,
        *,
        reasons: Sequence[str],
        guard: Guard,
        now: Now,
        came: Now,
        scroll: Scroll,
    ) -> None:
        super().__init__(text, guard=guard, now=now, came=came, scroll=scroll)
        self._reasons = {str(number): reason for number, reason in enumerate(reasons, 1)}
        self.reason = ""
        """The reason, once given."""

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if key == "enter":
            return self._entered()
        if key == "backspace":
            self.typed = self.typed[:-1]
            return self._other(key)
        if not character or not character.isprintable():
            return self._other(key)
        return KeyAnswer.NONE if self._is_early() else self._written(character)

    def _written(self, character: str) -> KeyAnswer:
        if not self.typed and character in self._reasons:
            self.reason = self._reasons[character]
            return KeyAnswer.YES
        self.typed = (self.typed + character)[:REASON_CHARS_MAX]
        return KeyAnswer.NONE

    def _entered(self) -> KeyAnswer:
        reason = self.typed.strip()
        if len(reason) < REASON_CHARS_MIN:
            return self._other("enter")
        self.reason = reason
        return KeyAnswer.YES

    def how(self) -> str:
        if self.typed:
            return f"  {self.typed[-40:]}▏  enter denies   esc no "
        return f"{self._bar()}  1 to {len(self._reasons)}, or words and enter   esc no "
