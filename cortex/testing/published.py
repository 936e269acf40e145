"""What one job publishes, in memory; `tests/first/test_state_in_memory.py` compares it with SQL."""

from typing import Any

import attrs
import orjson

from cortex.domain.job import Publish
from cortex.domain.published import COUNTS_MAX, JobProgress


@attrs.define
class PublishedRecord:
    """What a database would keep of it."""

    state: dict[str, Any] = attrs.field(factory=dict)
    progress: JobProgress | None = None
    counts: dict[str, int] = attrs.field(factory=dict)
    """How often its handler had assigned each key; the empty one stands for its progress."""
    _last: tuple[int, int] = (0, 0)
    """The attempt that published last, and the number of its change."""

    async def publish(self, change: Publish) -> None:
        self.take(change)

    def take(self, change: Publish) -> None:
        """Publish what the job has assigned, once."""
        place = change.lease.attempt, change.number
        if place <= self._last:
            return
        self._last = place
        counts: dict[str, int] = orjson.loads(change.counts)
        changes: dict[str, Any] = orjson.loads(change.changes)
        defaults: dict[str, Any] = orjson.loads(change.defaults)
        newer = {key for key, count in counts.items() if count > self.counts.get(key, 0)}
        self.state |= {key: value for key, value in defaults.items() if key in newer} | changes
        for key in (*change.removed, *(each for each in change.removed_again if each in newer)):
            self.state.pop(key, None)
        if change.progress is not None and (not change.is_default or "" in newer):
            self.progress = change.progress
        certain = {*changes, *change.removed, *(() if change.is_default else ("",))}
        self.counts |= {key: count for key, count in counts.items() if key in certain | newer}
        if len(self.counts) > COUNTS_MAX:
            self.counts = {k: v for k, v in self.counts.items() if k in self.state or not k}
