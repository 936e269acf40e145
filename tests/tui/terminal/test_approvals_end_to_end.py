"""The inbox on a real Postgres: two people at two terminals, and one request."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from textual.widgets import TextArea

from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import open_session
from cortex_tui.app import CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.clock import SystemClock
from cortex_tui.screens.approvals import ApprovalsScreen
from cortex_tui.session import Session
from tests.support.eventually import eventually_asyncio
from tests.support.people import user
from tests.support.records.approvals import Askers, facts
from tests.support.terminal.tui import Seat, on_asyncio

QUIET_S = 0.5
"""Two apps and a server on one busy machine."""
aside = asyncio.to_thread
"""The store of the test has a loop of its own."""
PEOPLE = ("ana", "li")


@pytest.fixture
def askers(database: str) -> Iterator[Askers]:
    with open_session(Profile(dsn=database, hot_path=True)) as store:
        yield Askers(store, database)


@on_asyncio
async def test_one_of_two_simultaneous_deciders_wins(askers: Askers) -> None:
    request = await aside(askers.asked)
    async with at_terminal(askers.dsn, "ana") as ana, at_terminal(askers.dsn, "li") as li:
        for seat in (ana, li):
            await ready(seat, "a")
            await shows(seat, "y yes")
            seat.clock.move(QUIET_S)
        await asyncio.gather(ana.pilot.press("y"), li.pilot.press("y"))
        both = (ana, li)
        await eventually_asyncio(
            lambda: all("✓" in s.lines[-2] or "already" in s.lines[-2] for s in both),
            what="an answer",
        )
        lines = [seat.lines[-2] for seat in both]
        (winner,) = [name for name, line in zip(PEOPLE, lines, strict=True) if "✓" in line]
        (lost,) = [line for line in lines if "already" in line]
        row = await aside(askers.row, request)
        assert f"already approved by {winner}, {row.decided_at:%H:%M:%SZ}, tui" in lost
        assert (row.status, row.decided_by, row.channel) == ("APPROVED", winner, "tui")
        output = [subtype for subtype, _ in await aside(facts, askers.dsn, request.id)]
        assert output.count("approval_approved") == 1


@on_asyncio
async def test_denial_by_another_person_is_shown(askers: Askers) -> None:
    request = await aside(askers.asked, risk="HIGH")
    async with at_terminal(askers.dsn, "ana") as ana:
        await ready(ana, "a")
        await shows(ana, "type ")
        await aside(askers.decide, request, is_approved=False, by="li", reason="no", channel="page")
        await shows(ana, "already denied by li")
        await ana.pilot.press("y")
        assert (await aside(askers.row, request)).decided_by == "li"


@on_asyncio
async def test_edited_arguments_run_as_edited(askers: Askers) -> None:
    request = await aside(askers.asked)
    async with at_terminal(askers.dsn, "ana") as ana:
        await ready(ana, "E")
        await shows(ana, '"amount": 12.4')
        area = ana.app.screen.query_one(TextArea)
        area.load_text('{"customer": "cus_88", "amount": 9}')
        await ana.pilot.press("ctrl+s")
        await shows(ana, "y yes")
        ana.clock.move(QUIET_S)
        await ana.pilot.press("y")
        await shows(ana, "✓ approved")
        row = await aside(askers.row, request)
        assert (row.status, row.edited_by) == ("APPROVED", "ana")
        assert row.arguments == {"customer": "cus_88", "amount": 9}


@on_asyncio
async def test_an_edit_that_crosses_a_rules_threshold_is_refused(askers: Askers) -> None:
    request = await aside(askers.asked_below, 500)
    async with at_terminal(askers.dsn, "ana") as ana:
        await ready(ana, "E")
        await shows(ana, '"amount": 12.4')
        area = ana.app.screen.query_one(TextArea)
        area.load_text('{"customer": "cus_88", "amount": 500}')
        await ana.pilot.press("ctrl+s")
        await shows(ana, "y yes")
        ana.clock.move(QUIET_S)
        await ana.pilot.press("y")
        await shows(ana, "✗ the edit makes refund CRITICAL, for which 2 people must be asked")
        row = await aside(askers.row, request)
        assert (row.status, row.edited_by) == ("PENDING", None)


@on_asyncio
async def test_large_arguments_are_read_only_under_the_cursor(askers: Askers) -> None:
    await aside(askers.asked, arguments={"memo": "x" * 900_000}, risk="LOW", schema=None)
    for number in range(3):
        await aside(askers.asked, arguments={"customer": f"cus_{number}", "amount": 1})
    async with at_terminal(askers.dsn, "ana") as ana:
        await ready(ana, "G")
        await shows(ana, "more lines")
        await shows(ana, "xxxx")


async def shows(seat: Seat, text: str) -> None:
    """Wait until the screen shows a text."""
    try:
        await eventually_asyncio(lambda: text in seat.text, what=text)
    except BaseException as error:
        error.add_note(seat.text)
        raise


async def ready(seat: Seat, key: str) -> None:
    """Go to the inbox; press a key as soon as it counts."""
    await seat.pilot.press("A")
    await shows(seat, "EXPIRES")
    inbox = seat.app.screen
    assert isinstance(inbox, ApprovalsScreen)
    await eventually_asyncio(lambda: not inbox.state.is_seeking, what="the first one")
    seat.clock.move(QUIET_S)
    await seat.pilot.press(key)


@asynccontextmanager
async def at_terminal(dsn: str, actor: str) -> AsyncIterator[Seat]:
    """One person at one terminal. The silence passes when the test says so, the rest by itself."""
    clock = PushedClock()
    profile = Profile(dsn=dsn, connections_max=2, bound_s=5.0)
    db = await open_database(profile, rng=random.Random(1))
    try:
        app = CortexApp(
            Session(identity=user(actor), clock=clock), StoreBackend(db, credential="os:7")
        )
        async with app.run_test(size=(120, 40)) as pilot:
            yield Seat(app, pilot, clock)  # type: ignore[arg-type]
    finally:
        await db.close()


class PushedClock(SystemClock):
    """The real one, which a test may put forward."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self._ahead_s

    def move(self, seconds: float) -> None:
        self._ahead_s += seconds
