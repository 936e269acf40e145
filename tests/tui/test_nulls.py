"""Every screen on real rows, with each nullable column of the schema null in turn."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from cortex.domain.job_filter import JobFilter
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex_tui.app import OPENED, SCREENS, CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.render.field_lines import field_lines
from cortex_tui.screens.frame import Frame
from cortex_tui.session import Session
from tests.support.people import user
from tests.support.records.nulls import (
    Answers,
    Asked,
    Column,
    Reading,
    at_each_null,
    empty_tables,
    fill,
    reading,
)
from tests.support.servers.postgres import SharedPostgres, sql
from tests.support.terminal.tui import ManualClock, Seat, calm, on_asyncio

SIZE: Final = (160, 50)
LOOKS: Final = 6
"""After this many polls each part of a screen had its turn."""
LATER_S: Final = 6.0
"""Between looks: longer than any part waits for its turn."""
_USED: Final = """
    INSERT INTO cortex_worker.limit_use (limit_id, key, began_at, used)
    SELECT id, 'acme', cortex.now(), 3 FROM cortex.job_limit
"""
ROWLESS: Final = {"fields", "help", "log"}
"""Screens that read nothing."""
MADE: Final[dict[str, Callable[..., Frame]]] = {**OPENED, **SCREENS}


@pytest.fixture(scope="module")
def everything(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database with one of each thing that a person can look at."""
    dsn = shared_postgres.create_migrated()
    with open_session(Profile(dsn=dsn, hot_path=True)) as call:
        fill(call, dsn)
    sql(dsn, _USED)
    yield dsn
    shared_postgres.drop(dsn)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MADE.keys() - ROWLESS))
@on_asyncio
async def test_a_screen_is_drawn_whichever_column_is_null(everything: str, name: str) -> None:
    async with reading(everything) as rows, seated(rows) as seat:
        read: set[str] = set()
        asked_before: set[str] = set()
        seen: set[str] = set()
        parts: list[tuple[int, Answers]] = []

        async def look(nth: int, column: Column, changed: list[Asked]) -> None:
            await show(seat, rows, name, nth, changed, because=f"{column} is null")

        for nth in range(len(await abouts(seat.app.context.backend, name))):
            await show(seat, rows, name, nth)
            # What all jobs ask is of the first one: the others need not be drawn for it again.
            asked = {k: v for k, v in rows.asked.items() if k not in asked_before}
            asked_before |= rows.asked.keys() if name == "job" else set()
            answers = await Answers.to(rows, everything, asked.values(), seen)
            read |= answers.tables
            parts.append((nth, answers))
        await at_each_null(rows, parts, look)
        of_callers = {"cortex.api_token", "cortex.api_session"}  # who looks, which no screen shows
        assert read & empty_tables(everything) <= of_callers, "the screen shows nothing of them"


@asynccontextmanager
async def seated(rows: Reading) -> AsyncIterator[Seat]:
    """Open the app; only the test's own looks read anything but the first screen's."""
    clock = ManualClock()
    backend = StoreBackend(rows, credential="os:7")  # type: ignore[arg-type]  # as much of it as screens ask of
    app = CortexApp(
        Session(identity=user("ana", label="ana"), clock=clock), backend, first="breakers"
    )
    async with app.run_test(size=SIZE) as pilot:
        seat = Seat(app, pilot, clock)
        await settle(seat, rows)
        yield seat


async def show(
    seat: Seat,
    rows: Reading,
    name: str,
    nth: int,
    until: Sequence[Asked] = (),
    *,
    because: str = "",
) -> None:
    """Open a screen on the nth thing that it can be opened on, until all of it was drawn.

    Or until it has drawn the answers to some statements.
    """
    app = seat.app
    try:
        rows.asked.clear()
        about = (await abouts(app.context.backend, name))[nth : nth + 1]
        if name == "job":
            rows.asked.clear()  # the list of jobs has a screen of its own
        for each in about:
            frame = MADE[name](app.context, *each)
            await app.push_screen(frame)
            for _ in range(LOOKS):
                seat.clock._now += LATER_S
                await frame.look()
                if until and all(one in rows.asked.values() for one in until):
                    break
            await app.refresher.read_head()
            frame.repaint()
            await settle(seat, rows)
            assert "cannot be shown" not in seat.text
            selected = frame.resource()
            if selected is not None and selected.shape is not None and selected.row is not None:
                _ = field_lines(selected.shape, selected.row, SIZE[0])
            await app.pop_screen()
    except Exception as error:
        error.add_note(because)
        raise


async def abouts(backend: Any, name: str) -> list[tuple[Any, ...]]:
    """Return what a screen can be opened on."""
    if name == "job":
        page = await backend.jobs.page(JobFilter(), before=None, limit=100)
        kinds = {(row.status, (row.waiting_on or "").partition(":")[0]): row for row in page.jobs}
        return [(row.id,) for row in kinds.values()]
    if name == "tree":
        page = await backend.jobs.page(JobFilter(), before=None, limit=100)
        looks = [await backend.job.look(row.id, after=None, limit=1) for row in page.jobs]
        return [(each.job.id,) for each in looks if each.job.has_children]
    if name == "logs":
        page = await backend.jobs.page(JobFilter(), before=None, limit=100)
        return [(row.id,) for row in page.jobs if await backend.logs.newest(row.id, limit=1)]
    if name == "letters":
        return [(row,) for row in await backend.dead.errors()]
    return [()]


async def settle(seat: Seat, rows: Reading) -> None:
    """Let what was read be drawn."""
    await calm()
    while rows.is_busy:
        await calm()
    await seat.settle()
