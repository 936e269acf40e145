"""Lets calls that begin at once go in growing rounds: an outage must not meet them all.

A breaker opens after a few failures, but hundreds of jobs may begin a call before the first of
them has failed. So only a few calls may be on their way without an answer; each first answer lets
more go. Those that wait do so in order of their coming, and are turned away when there is no sense
in waiting. No I/O; trio's clock.
"""

from typing import Final

import attrs
import trio

START: Final = 4
GROWTH: Final = 3
"""Each answer lets one call in its own place and so many more: a round is four times the last."""
UNBOUNDED_FROM: Final = 1000
"""More than a pod has jobs: from here on nobody waits."""
COLD_AFTER_S: Final = 60.0
"""Without an answer for so long, what was known of the other side is forgotten."""


@attrs.define(eq=False)
class Place:
    """A call's place in the ramp, from its asking to its first answer or its end."""

    is_decided: trio.Event = attrs.field(factory=trio.Event)
    is_inside: bool = False

    def decide(self, *, is_inside: bool) -> None:
        """Let it go, or turn it away."""
        self.is_inside = is_inside
        self.is_decided.set()


class Ramp:
    """The calls of one pod to one other side."""

    def __init__(self) -> None:
        self._size = START
        self._inside_count = 0
        self._waiting: dict[Place, None] = {}  # an ordered set
        self._answered_at = trio.current_time()

    @property
    def is_idle(self) -> bool:
        """Nobody is on the way, nobody waits, and it starts anew."""
        return not (self._inside_count or self._waiting) and self._is_cold

    async def enter(self) -> Place | None:
        """Wait for a place; None if turned away. After `trio.Cancelled` no place is taken."""
        if self._is_cold:
            self._size = START
        place = Place()
        if self._has_room and not self._waiting:
            self._inside_count += 1
            place.decide(is_inside=True)
            return place
        self._waiting[place] = None
        try:
            await place.is_decided.wait()
        except trio.Cancelled:
            self._waiting.pop(place, None)
            self.leave(place)  # given by one who was cancelled with it, and left first
            raise
        return place if place.is_inside else None

    def answer(self, place: Place) -> None:
        """The other side has begun to answer this call; told again, it changes nothing."""
        if place.is_inside:
            self._answered_at = trio.current_time()
            self._size = min(self._size + GROWTH, UNBOUNDED_FROM)
            self.leave(place)

    def leave(self, place: Place) -> None:
        """The call has ended, answered or not."""
        if place.is_inside:
            place.is_inside = False
            self._inside_count -= 1
            self._let_in()

    def restart(self) -> None:
        """A call has failed: begin with a few again."""
        self._size = START

    def turn_away(self) -> None:
        """Let nobody wait any more: all of them get None."""
        waiting, self._waiting = self._waiting, {}
        for place in waiting:
            place.decide(is_inside=False)

    @property
    def _is_cold(self) -> bool:
        return trio.current_time() - self._answered_at > COLD_AFTER_S

    @property
    def _has_room(self) -> bool:
        return self._size >= UNBOUNDED_FROM or self._inside_count < self._size

    def _let_in(self) -> None:
        while self._waiting and self._has_room:
            place = next(iter(self._waiting))
            del self._waiting[place]
            self._inside_count += 1
            place.decide(is_inside=True)
