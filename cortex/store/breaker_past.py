"""What happened to circuit breakers lately, from the facts: bounded, however many there are."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from cortex.domain.breaker_past import ERRORS_MAX, PAST_S
from cortex.store.database import Database

CHANGES_MAX: Final = 50_000
"""That are read, of all breakers together."""
CHANGES_EACH_MAX: Final = 500
"""Of one, the newest: it is tried every half minute, which changes it twice."""


async def past(db: Database, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return by name the `turns` of the last hour, `known_since` and the last `errors`.

    Of `turns`, the oldest first, and `known_since` see `cortex.domain.breaker_past`. Errors have
    `at`, `code` and `message`, the newest first; those that say nothing of what was called are not
    among them.
    """
    if not names:
        return {}
    changes = max(1, min(CHANGES_EACH_MAX, CHANGES_MAX // len(names)))
    rows = await db.fetch("breakers.past", list(names), PAST_S, changes, ERRORS_MAX)
    return {
        row["name"]: {
            "turns": _timed(row["turns"]),
            "known_since": row["known_since"],
            "errors": _timed(row["errors"]),
        }
        for row in rows
    }


async def with_past(db: Database, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return breakers with what happened to them lately."""
    known = await past(db, [row["name"] for row in rows])
    return [{**row, **known[row["name"]]} for row in rows]


def _timed(document: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = orjson.loads(document)
    return [row | {"at": datetime.fromisoformat(row["at"])} for row in rows]
