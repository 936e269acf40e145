"""Names of worker queues as people read and type them: jobs without a queue are in `default`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from cortex.domain.errors import UsageError

NAME_MAX: Final = 100
DEFAULT: Final = "default"
TODAY: Final = timedelta(hours=20)
"""Of what is longer ago the day is told, too."""


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
    at, now = row["paused_at"].astimezone(), row["now"].astimezone()
    when = f"{at:%H:%M}" if now - at < TODAY else f"{at:%Y-%m-%d %H:%M}"
    return f'paused by {row["paused_by"]} {when} "{row["reason"]}"'
