"""Questions that change nothing: a key picks an answer, esc leaves."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from cortex_tui.model.question import CANCEL, KeyAnswer

TAKEN: Final = "enter"


class Pick:
    """Picks one of several answers, each with its own key."""

    def __init__(self, text: str, choices: Mapping[str, str]) -> None:
        """`choices`: what each key stands for, in a word or two."""
        self.text = text
        self.picked = ""
        """The key; "": none yet."""
        self._choices = choices

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            return KeyAnswer.NO
        if character is not None and character in self._choices:
            self.picked = character
            return KeyAnswer.YES
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- nothing follows from it
        return False

    def how(self) -> str:
        return "  ".join(f"{key} {what}" for key, what in self._choices.items()) + "   esc no "


class PickSome:
    """Picks any of up to nine answers by number; Enter accepts, esc restores the former picks."""

    def __init__(
        self,
        text: str,
        names: Sequence[str],
        shown: AbstractSet[str],
        *,
        changed: Callable[[frozenset[str]], None],
    ) -> None:
        """`changed` is called at each key with the current picks."""
        self.text = text
        self._names = names[:9]
        self._before = self.shown = frozenset(shown)
        self._changed = changed

    def press(self, key: str, character: str | None) -> KeyAnswer:
        if key == CANCEL:
            self._show(self._before)
            return KeyAnswer.NO
        if key == TAKEN:
            return KeyAnswer.YES
        places = {str(number): name for number, name in enumerate(self._names, start=1)}
        if character in places:
            self._show(self.shown ^ {places[character]})
        return KeyAnswer.NONE

    def may_agree(self, character: str | None) -> bool:  # noqa: ARG002 -- nothing follows from it
        return False

    def how(self) -> str:
        """Say which there are, and which are picked."""
        each = (
            f"{number}{'+' if name in self.shown else '-'}{name}"
            for number, name in enumerate(self._names, start=1)
        )
        return f" {' '.join(each)}  enter "

    def _show(self, shown: frozenset[str]) -> None:
        self.shown = shown
        self._changed(shown)
