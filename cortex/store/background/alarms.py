"""Alarms: what lasts is announced once, when it has lasted for a while or grown much."""

from typing import Final

import attrs

from cortex.domain.phrases import span
from cortex.postgres.database import Connection, Database

STRANDED_S: Final = 3.0
"""A job that is handed from one pod to the next is no alarm."""
FAILED_MAX: Final = 200
"""How many jobs that waited too long for code fail in one pass."""
JOBS_MAX: Final = 1_000
"""How many stranded jobs of one kind are counted, and how many tasks move in one pass."""
LETTERS_MANY: Final = 100
LETTERS_MAX: Final = 10_000
QUIET_S: Final = 3_600.0
"""Credentials that were not refused for so long work again."""


@attrs.frozen(kw_only=True)
class Checked:
    """The result of one pass."""

    announced: tuple[str, ...]
    """The new alarms, in words."""
    is_more_due: bool
    """More tasks must make way, or go back to their places."""


async def check(db: Database, *, code_wait_s: float) -> Checked | None:
    """Announce what is new. None: another process is doing it.

    Jobs fail that no code has taken for `code_wait_s`.
    """

    async def work(connection: Connection) -> Checked | None:
        inside = db.bound(connection)
        turn = await inside.fetch_one("runners.alarms_turn")
        if turn is None or not turn["is_mine"]:
            return None
        stranded = await inside.fetch("runners.stranded", STRANDED_S, JOBS_MAX)
        late = await inside.fetch_one(
            "tasks.fail_unfit", code_wait_s, span(code_wait_s), FAILED_MAX
        )
        letters = await inside.fetch("runners.dead_letters", LETTERS_MANY, LETTERS_MAX)
        await inside.fetch("runners.forget_refusals", QUIET_S)
        announced = (
            *(f"no living pod takes {row['key'].split()[0]}" for row in stranded if row["key"]),
            *([f"{late['count']} jobs waited too long for code"] if late and late["count"] else []),
            *(f"{row['n']} dead letters are unresolved" for row in letters),
        )
        return Checked(announced=announced, is_more_due=stranded[0]["is_more_due"])

    return await db.transact(work)
