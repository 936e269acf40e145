"""Names of worker queues as people read and type them: jobs without a queue are in `default`."""

from datetime import datetime
from typing import Final

from cortex.domain.errors import UsageError
from cortex.domain.job import BULK
from cortex.store.queues import QueueRow
from cortex.view.phrases import time_of_day

NAME_MAX: Final = 100
DEFAULT: Final = "default"


def queue_shown(queue: str | None) -> str:
    """Return a queue's name for display; one that is really named `default` is quoted."""
    if queue is None:
        return DEFAULT
    return f'"{queue}"' if queue.strip('"') == DEFAULT else queue


def parse_queue(text: str) -> str | None:
    """Return the queue that a typed name means, or None for the default. Raises `UsageError`."""
    if text == DEFAULT:
        return None
    name = text[1:-1] if text.strip('"') == DEFAULT else text
    if not 1 <= len(name) <= NAME_MAX:
        raise UsageError(f"a queue's name has 1 to {NAME_MAX} characters, not {len(name)}")
    return name


def parse_named_queue(text: str) -> str:
    """Return the named queue whose order a person changes. Raises `UsageError` for others."""
    queue = parse_queue(text)
    if queue is None:
        raise UsageError(
            "jobs of the default queue run in no order",
            hint="submit them to a named queue: --queue NAME",
        )
    if queue == BULK:
        raise UsageError("bulk operations take turns: their queue stays relaxed")
    return queue


def pause_text(row: QueueRow, now: datetime) -> str:
    """Describe who paused a queue, when and why: `paused by ana 12:02 "deploy"`.

    Pass the result through `safe`.
    """
    when = "" if row.paused_at is None else f" {time_of_day(row.paused_at, now)}"
    return f'paused by {row.paused_by}{when} "{row.reason}"'
