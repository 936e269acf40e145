"""The questions by which people decide: what they type, and when it counts.

The first key counts after a quiet time. A wrong key restarts it. Esc leaves at once. Keys that
write nothing, such as arrows, scroll the request.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cortex.domain.approvals.vote import REASON_CHARS_MAX
from cortex_tui.model.guard import Guard
from cortex_tui.model.question import CANCEL, KeyAnswer
from cortex_tui.model.reason import REASON_CHARS_MIN

BAR_CELLS: Final = 8

Now = Callable[[], float]
"""Returns the clock's time, or the arrival of the last key by it."""


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
