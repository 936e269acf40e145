"""A question before an action: only the full answer confirms, other keys leave it open."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

CANCEL: Final = "escape"
CLEAR: Final = "ctrl+u"
"""Clears the text, as in a shell."""
YES: Final = "y"


class KeyAnswer(Enum):
    """The meaning of a key."""

    NONE = "none"
    YES = "yes"
    NO = "no"


class Prompt(Protocol):
    """A question on the line at the bottom of a screen."""

    @property
    def text(self) -> str:
        """The text of the question; safe."""
        ...

    def press(self, key: str, character: str | None) -> KeyAnswer:
        """Take a key by its name and the character it writes."""
        ...

    def may_agree(self, character: str | None) -> bool:
        """Whether a key can confirm: such a key is dropped if typed before the question opened."""
        ...

    def how(self) -> str:
        """Return what to type, and what was typed so far."""
        ...


class TakesKeys(Protocol):
    """Receives all keys while it asks."""

    def leave(self) -> str:
        """Decline because the screen was left; return a safe message about that."""
        ...


class Question:
    """One line of text, and what to type to confirm; esc declines."""

    def __init__(self, text: str, *, wanted: str = YES) -> None:
        self.text = text
        self.wanted = wanted
        self.typed = ""

    def press(self, key: str, character: str | None) -> KeyAnswer:
        """Take a key by its name and the character it writes."""
        if key == CANCEL:
            return KeyAnswer.NO
        if key == "backspace":
            self.typed = self.typed[:-1]
        elif character is not None and self.wanted.startswith(self.typed + character):
            self.typed += character
        return KeyAnswer.YES if self.typed == self.wanted else KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- nothing else is typed
        return True

    def how(self) -> str:
        """Return what to type, and what was typed so far."""
        if len(self.wanted) == 1:
            return f"  {self.wanted} yes   esc no "
        typed = self.typed.ljust(len(self.wanted), "_")
        return f"  type {self.wanted} to agree: {typed}   esc no "


class Closed:
    """Replaces a withdrawn question and absorbs the keys of an operator who is still typing.

    Only esc leaves it: every other key was meant for the question.
    """

    def __init__(self, text: str) -> None:
        """`text`: why the question was withdrawn, and what was done; safe."""
        self.text = text

    def press(self, key: str, character: str | None) -> KeyAnswer:  # noqa: ARG002 -- as the others
        return KeyAnswer.NO if key == CANCEL else KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- nothing is agreed to
        return False

    def how(self) -> str:
        return "  esc continue "


class Choice:
    """One line of text and several answers, one key each; esc declines."""

    def __init__(self, text: str, answers: Mapping[str, str]) -> None:
        """`answers`: a few words for each key."""
        self.text = text
        self.answers = answers
        self.chosen = ""
        """The key of the chosen answer, or ""."""

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if character is None or character not in self.answers:
            return KeyAnswer.NONE
        self.chosen = character
        return KeyAnswer.YES

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- nothing else is typed
        return True

    def how(self) -> str:
        answers = " · ".join(f"{key} {text}" for key, text in self.answers.items())
        return f" {answers} · esc cancel "
