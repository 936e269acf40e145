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
