"""A question that asks for a reason before it is confirmed: words and Enter, then `y`."""

from typing import Final

from cortex_tui.model.question import CANCEL, CLEAR, YES, KeyAnswer

REASON_CHARS_MIN: Final = 3
"""Shorter reasons are slips."""
REASON_CHARS_MAX: Final = 500
SHOWN_CHARS: Final = 24
"""Characters of the text shown, to leave room for the question."""


class ReasonQuestion:
    """One line of text, and a reason; esc declines at any time."""

    def __init__(self, text: str, *, is_required: bool, wanted: str = YES) -> None:
        """`text` names the object; safe. If the reason is optional, Enter alone leaves it empty.

        `wanted`: what to type to confirm.
        """
        self.text = text
        self.typed = ""
        self._is_required = is_required
        self._wanted = wanted
        self._agreed = ""
        """The part of `wanted` typed so far."""
        self._is_typed = False
        """Enter was pressed: `y` confirms now."""
        self._is_short = False
        """Enter was pressed too early."""

    @property
    def reason(self) -> str:
        """The reason; "" if there is none."""
        return self.typed.strip()

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if self._is_typed:
            return self._confirmed(key, character)
        self._is_short = key == "enter" and not self._is_enough
        if key == "enter":
            self._is_typed = self._is_enough
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif key == CLEAR:
            self.typed = ""
        elif character is not None and character.isprintable():
            self.typed = (self.typed + character)[:REASON_CHARS_MAX]
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- any, once it is typed
        return self._is_typed

    def how(self) -> str:
        if self._is_typed:
            said = f'  "{_ending(self.reason)}"' if self.reason else ""
            if len(self._wanted) > 1:
                typed = self._agreed.ljust(len(self._wanted), "_")
                return f"{said}  type {self._wanted}: {typed}   esc no "
            return f"{said}  {self._wanted} yes   esc no "
        if self._is_short:
            return f"  why: {_ending(self.typed)}▏ {REASON_CHARS_MIN} letters at least   esc no "
        if self.typed:
            return f"  why: {_ending(self.typed)}▏ enter   esc no "
        return f"  why{'' if self._is_required else ', or just'}: ▏ enter   esc no "

    def _confirmed(self, key: str, character: str | None) -> KeyAnswer:
        if key == "backspace":
            self._is_typed = bool(self._agreed)
            self._agreed = self._agreed[:-1]
        elif character is not None and self._wanted.startswith(self._agreed + character):
            self._agreed += character
        return KeyAnswer.YES if self._agreed == self._wanted else KeyAnswer.NONE

    @property
    def _is_enough(self) -> bool:
        return len(self.reason) >= REASON_CHARS_MIN or not (self._is_required or self.reason)


def _ending(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"…{text[1 - SHOWN_CHARS :]}"
