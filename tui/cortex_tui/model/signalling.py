"""A question that asks for the name of a signal and its JSON, then for `y`."""

from enum import Enum, auto
from typing import Final

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.domain.signals import check_name, payload_of_text
from cortex_tui.model.question import CANCEL, CLEAR, YES, KeyAnswer

CHARS_MAX: Final = 4_000
"""Larger content comes from a file: cortex jobs signal --data @FILE."""
SHOWN_CHARS: Final = 40


class _Stage(Enum):
    NAME = auto()
    DATA = auto()
    CONFIRM = auto()


class SignalQuestion:
    """Words and Enter, JSON and Enter, then `y`; esc declines at any time."""

    def __init__(self, job: str, *, name: str = "") -> None:
        """`job` names the job; safe. `name`: the signal that it waits for, or ""."""
        self._job = job
        self._stage = _Stage.NAME
        self._typed = {_Stage.NAME: name, _Stage.DATA: ""}
        self._wrong = ""

    @property
    def text(self) -> str:
        what = "a signal" if self._stage is _Stage.NAME else f"signal {safe(self.name)}"
        return f"send {what} to {self._job}"

    @property
    def name(self) -> str:
        return self._typed[_Stage.NAME].strip()

    @property
    def data(self) -> str:
        """The content as it was typed: JSON text."""
        return self._typed[_Stage.DATA].strip() or "null"

    @property
    def payload(self) -> str:
        """The content as compact JSON. Raises `InvalidValueError`."""
        return payload_of_text(self.data, what="it")

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if self._stage is _Stage.CONFIRM:
            if key == "backspace":
                self._stage = _Stage.DATA
            return KeyAnswer.YES if character == YES else KeyAnswer.NONE
        self._wrong = ""
        if key == "enter":
            self._go_on()
        elif key == "backspace" and not self._typed[self._stage]:
            self._stage = _Stage.NAME
        elif key == "backspace":
            self._typed[self._stage] = self._typed[self._stage][:-1]
        elif key == CLEAR:
            self._typed[self._stage] = ""
        elif character is not None and character.isprintable():
            self._typed[self._stage] = (self._typed[self._stage] + character)[:CHARS_MAX]
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- any, once it is typed
        return self._stage is _Stage.CONFIRM

    def how(self) -> str:
        if self._stage is _Stage.CONFIRM:
            return f"  {_ending(self.data)}  {YES} yes   esc no "
        wanted = "name" if self._stage is _Stage.NAME else "JSON, or just"
        typed = self._typed[self._stage]
        label = "name" if self._stage is _Stage.NAME else "JSON"
        shown = f"{label}: {_ending(typed)}▏" if typed else f"{wanted}: ▏"
        return f"  {shown} {self._wrong or 'enter'}   esc no "

    def _go_on(self) -> None:
        """Take what was typed, or say what is wrong with it."""
        try:
            if self._stage is _Stage.NAME:
                check_name(self.name)
                self._stage = _Stage.DATA
            else:
                _ = self.payload
                self._stage = _Stage.CONFIRM
        except CortexError:
            is_name = self._stage is _Stage.NAME
            self._wrong = "a name such as payment" if is_name else 'no JSON: text needs its ""'


def _ending(text: str) -> str:
    """Return the end of a text, where the cursor is; safe."""
    shown = safe(text)
    return shown if len(shown) <= SHOWN_CHARS else f"…{shown[1 - SHOWN_CHARS :]}"
