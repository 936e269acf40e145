"""Waits that job code has made, so that `ctx.first` can look at them again and again."""

from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

import attrs


class WaitKind(StrEnum):
    """What can be the first of several."""

    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    APPROVAL = "approval"
    STEP = "step"


@attrs.frozen
class Contender:
    """A wait that job code has made."""

    kind: WaitKind
    look: Callable[[], Coroutine[Any, Any, Any]]
    """Returns its value; raises `Suspended` while there is none. May be called again then."""
    ends: str | None = None
    """Key of the step that records its end; None: its own."""
    withdraws: str | None = None
    """Key of the step whose children are cancelled if it loses; None: its own."""
