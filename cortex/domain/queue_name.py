"""Names of worker queues as people read and type them: jobs without a queue are in `default`."""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.errors import UsageError
from cortex.domain.phrases import time_of_day

NAME_MAX: Final = 100
DEFAULT: Final = "default"


def queue_shown(queue: str | None) -> str:
    """Return a queue's name for people; one that is really named `default` stands in quotes."""
    if queue is None:
        return DEFAULT
    return f'"{queue}"' if queue.strip('"') == DEFAULT else queue


def parse_queue(text: str) -> str | None:
    """Return the queue that such a name means; None: the default one. Raises `UsageError`."""
    if text == DEFAULT:
        return None
    name = text[1:-1] if text.strip('"') == DEFAULT else text
    if not 1 <= len(name) <= NAME_MAX:
        raise UsageError(f"a queue's name has 1 to {NAME_MAX} characters, not {len(name)}")
    return name


def pause_told(row: Mapping[str, Any]) -> str:
    """Say who paused a queue, when and why: `paused by ana 12:02 "deploy"`.

    `row` has `paused_by`, `paused_at`, `reason` and `now`; text of people, to be made safe.
    """
    when = time_of_day(row["paused_at"], row["now"])
    return f'paused by {row["paused_by"]} {when} "{row["reason"]}"'
