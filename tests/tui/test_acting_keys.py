"""Every key that acts, on every screen that has it: when it does something, and when it does not.

The cases are held against the table of keys: a new acting key without one fails here.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs
import pytest

from cortex.domain.errors import OutcomeUnknownError
from cortex.domain.messages.message import MessageStatus
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex_tui.keys import KEYS
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_pods import a_pause
from tests.tui.conftest import OpenSession

QUIET_S: Final = 0.5
LOOKS_S: Final = 5.0
"""In which all that is in sight is looked at again, and the head of the screen."""
GUARD_BAR: Final = " █░"
"""The text at the right while keys do not count yet."""
ONE: Final = UUID(int=1)
JOB: Final = Pausable(PauseKind.JOB, str(ONE))
BREAKER: Final = "llm:gpt"
BUDGET: Final = "agent:bot:usd:run"
EDITED: Final = "EDITED"
PAYLOAD: Final = "PAYLOAD"
"""No key: the arguments are edited."""
WHY: Final = (*"try", "enter")
WRONG: Final = (
    "Y",
    "enter",
    "space",
    "n",
    "N",
    "q",
    "j",
    "tab",
    "2",
    "ctrl+d",
    "colon",
    "at",
    *"KRX",
)
"""None of them agrees to anything. No two that follow each other are a reason and Enter."""


def change(cluster: FakeBackend) -> None:
    cluster.change(ONE, status="COMPLETED")


def letter(cluster: FakeBackend) -> None:
    cluster.dead.set_letter(ONE, state="DISCARDED")


def said(cluster: FakeBackend) -> None:
    done_by = {"status": "COMPLETED", "resolution": "applied", "resolved_by": "li"}
    cluster.effects.change(ONE, **done_by)


def decision(cluster: FakeBackend) -> None:
    cluster.approvals.end(ONE, "DENIED")


@attrs.frozen(kw_only=True)
class Case:
    """Steps by which a key acts."""

    lose: Callable[[FakeBackend], object] | None
    """Somebody else is faster; None: that does not matter."""
    lost: str = ""
    """The message that is shown."""
    first: str
    """A screen."""
    before: tuple[str, ...] = ()
    """Keys that lead to where the acting one is pressed."""
    key: str
    after: tuple[str, ...] = ("y",)
    """What has to follow; the last one decides."""


INBOX: Final[Mapping[str, Any]] = {
    "first": "approvals",
    "lose": decision,
    "lost": "already denied by li",
}
LETTER: Final[Mapping[str, Any]] = {"first": "dead", "after": (*WHY, "y")}
CASES: Final[Mapping[tuple[str, str], Case]] = {
    ("approvals.approve", "approvals"): Case(**INBOX, key="a"),
    ("approvals.deny", "approvals"): Case(**INBOX, key="d", after=("1",)),
    ("approvals.edit", "approvals"): Case(**INBOX, key="E", after=(EDITED, "ctrl+s", "y")),
    ("pods.drain", "pods"): Case(
        first="pods",
        key="D",
        after=("enter", "y"),
        lose=lambda cluster: cluster.pods.change(ONE, state="STOPPED"),
        lost="✗ pod eu-1 has ended",
    ),
    ("queues.pause", "pods"): Case(
        first="pods",
        before=("G",),
        key="P",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.queues.change("mail", paused_at=cluster.queues.now),
        lost="nothing was done: it was paused already",
    ),
    ("breakers.force", "breakers"): Case(
        first="breakers",
        key="O",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.breakers.rows.clear(),
        lost="✗ there is no circuit breaker",
    ),
    ("schedules.pause", "schedules"): Case(
        first="schedules",
        key="P",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.schedules.change(
            "digest", paused_at=cluster.schedules.now, paused_by="li", pause_reason="deploy"
        ),
        lost="✗ schedule 'digest' is paused already",
    ),
    ("schedules.trigger", "schedules"): Case(
        first="schedules",
        key="T",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.schedules.rows.clear(),
        lost="✗ schedule 'digest' does not exist",
    ),
    **{
        (f"messages.{name}", "messages"): Case(
            first="messages",
            key=key,
            after=(*WHY, "y"),
            lose=lambda cluster: cluster.messages.change(1, status=MessageStatus.SENT),
            lost="✗ message is SENT, not FAILED",
        )
        for name, key in (("retry", "R"), ("discard", "X"))
    },
    ("effects.resolve", "effects"): Case(
        first="effects",
        key="R",
        after=("3", *WHY, "y"),
        lose=said,
        lost="li has said that already: applied",
    ),
    ("effects.freeze", "effects"): Case(
        first="effects",
        key="F",
        after=(*WHY, "y"),
        lose=None,
    ),
    ("quotas.limit", "effects"): Case(
        first="effects",
        before=("tab",),
        key="L",
        after=("9", "enter", *WHY, "y"),
        lose=None,
    ),
    ("quotas.remove", "effects"): Case(
        first="effects",
        before=("tab",),
        key="X",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.effects.limits.clear(),
        lost="does not exist",
    ),
    **{
        (f"jobs.{name}", screen): Case(
            first="jobs",
            before=("enter",) if screen == "job" else (),
            key=key,
            lose=change,
            lost="is COMPLETED",
        )
        for name, key in (("retry", "R"), ("cancel", "K"))
        for screen in ("jobs", "job")
    },
    ("job.signal", "job"): Case(
        first="jobs",
        before=("enter",),
        key="S",
        after=(*"paid", "enter", *"48", "enter", "y"),
        lose=change,
        lost="is COMPLETED",
    ),
    ("job.budget", "job"): Case(
        first="jobs",
        before=("enter",),
        key="B",
        after=("2", "y"),
        lose=lambda cluster: cluster.one.limits.update({BUDGET: Decimal(3)}),
        lost="is $3 already",
    ),
    **{
        (f"dead.{name}", "letters"): Case(
            **LETTER, before=("enter",), key=key, lose=letter, lost="was discarded by li"
        )
        for name, key in (("retry", "R"), ("discard", "X"))
    },
    ("dead.edit", "letters"): Case(
        first="dead",
        before=("enter",),
        key="E",
        after=(PAYLOAD, "ctrl+s", *WHY, "y"),
        lose=letter,
        lost="was discarded by li",
    ),
    **{
        (f"dead.{name}", "dead"): Case(**LETTER, key=key, lose=None)
        for name, key in (("retry", "R"), ("discard", "X"))
    },
    ("jobs.pause", "jobs"): Case(
        first="jobs",
        key="P",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.queues.change(None, paused_at=cluster.queues.now),
        lost="nothing was done: it was paused already",
    ),
    ("job.pause", "job"): Case(
        first="jobs",
        before=("enter",),
        key="P",
        after=(*WHY, "y"),
        lose=lambda cluster: cluster.queues.paused.append(a_pause(JOB, cluster.queues.now)),
        lost="nothing was done: it was paused already",
    ),
    ("pauses.resume", "pauses"): Case(
        first="pods",
        before=("p",),
        key="P",
        after=("enter", "y"),
        lose=lambda cluster: cluster.queues.paused.clear(),
        lost="nothing was done: it is no longer paused",
    ),
}
"""By the id of the key, and the screen."""
SCREENS: Final = tuple(dict.fromkeys(screen for _, screen in CASES))
PLACES: Final = tuple(dict.fromkeys((case.first, case.before) for case in CASES.values()))
EACH = pytest.mark.parametrize("case", CASES.values(), ids=map(" on ".join, CASES))


@pytest.fixture
def cluster(cluster: FakeBackend) -> FakeBackend:
    """One of everything, whose id is 1."""
    limit = {"name": BUDGET, "unit": "usd", "limit_amount": 1, "spent": 1}
    cluster.add(1, status="RETRY", attempt=1, budgets=[limit])
    cluster.approvals.add(1)
    cluster.pods.add(1)
    cluster.queues.add(None)
    cluster.queues.add("mail")
    cluster.queues.paused.append(a_pause(Pausable(PauseKind.ALL), cluster.queues.now))
    cluster.breakers.add(BREAKER, state="OPEN", opened_at=cluster.breakers.ago(9))
    cluster.schedules.add("digest")
    cluster.messages.add(1)
    cluster.effects.add(1)
    cluster.effects.add_quota("pay", 5)
    cluster.dead.add(1)
    return cluster


def done(cluster: FakeBackend) -> list[object]:
    """Return all that was done to the cluster."""
    fakes = (
        *(cluster.pods, cluster.queues, cluster.breakers),
        *(cluster.schedules, cluster.messages, cluster.effects),
    )
    acted = [*cluster.acted, *(each for fake in fakes for each in fake.acted)]
    letters = (*cluster.dead.settled, *cluster.begun)
    return [*acted, *cluster.approvals.decisions, *letters, *cluster.one.raised]


async def press(seat: Seat, *keys: str) -> None:
    """Press keys, each after a silence."""
    for key in keys:
        if key == EDITED:
            area: Any = seat.app.screen.query_one("_Area")
            area.load_text('{"customer": "cus_88", "amount": 9}')
            continue
        if key == PAYLOAD:
            await seat.pass_time(QUIET_S)
            payload_area: Any = seat.app.screen.query_one("_Area")
            payload_area.load_text('{"count": 2}')
            continue
        await seat.pass_time(QUIET_S)
        await seat.press(key)


async def come(seat: Seat, case: Case) -> None:
    """Go to where the key is pressed."""
    await seat.pass_time(1)
    await press(seat, *case.before)
    await seat.pass_time(1)


async def nothing_is_asked(cluster: FakeBackend, seat: Seat) -> None:
    """No key can agree to what is not asked; the usual one is tried."""
    assert "esc no" not in seat.lines[-2]
    await press(seat, "y")
    assert done(cluster) == []


def test_every_acting_key_has_a_case() -> None:
    acting = {(key.id, screen) for key in KEYS if key.is_acting for screen in key.where}
    assert acting == set(CASES)
    for (name, _), case in CASES.items():
        assert case.key in next(key for key in KEYS if key.id == name).keys


@EACH
@on_asyncio
async def test_only_the_full_sequence_acts_and_only_once(
    cluster: FakeBackend, sit: OpenSession, case: Case
) -> None:
    """In front of one app: what does not act, one after the other, and then what does."""
    async with sit(first=case.first) as seat:
        await come(seat, case)
        await a_stale_view_says_why(cluster, seat, case)
        for noticed_s in (0.0, 2.0):
            await a_link_that_breaks_while_it_asks_is_shown(cluster, seat, case, noticed_s)
        await an_unknown_outcome_is_shown_as_unknown(cluster, seat, case)
        await press(seat, case.key, *case.after[:-1])
        assert done(cluster) == []
        await press(seat, case.after[-1])
        assert "✓" in seat.lines[-2]
        await seat.pass_time(LOOKS_S)
        assert "✓" in seat.lines[-2], "polls do not replace it"
        await press(seat, case.after[-1])
        assert len(done(cluster)) == 1


async def a_stale_view_says_why(cluster: FakeBackend, seat: Seat, case: Case) -> None:
    cluster.down()
    await seat.pass_time(2)
    await press(seat, case.key)
    assert "the database does not answer" in seat.lines[-2]
    await nothing_is_asked(cluster, seat)
    cluster.up()
    await seat.pass_time(3)
    await nothing_is_asked(cluster, seat)


async def a_link_that_breaks_while_it_asks_is_shown(
    cluster: FakeBackend, seat: Seat, case: Case, noticed_s: float
) -> None:
    await press(seat, case.key, *case.after[:-1])
    await seat.pass_time(QUIET_S)
    cluster.down()
    await seat.pass_time(noticed_s)
    await seat.press(case.after[-1])
    output = "the database does not answer" if noticed_s else "cannot reach the database"
    assert output in seat.lines[-2]
    cluster.up()
    await seat.pass_time(3)
    await nothing_is_asked(cluster, seat)


async def an_unknown_outcome_is_shown_as_unknown(
    cluster: FakeBackend, seat: Seat, case: Case
) -> None:
    await press(seat, case.key, *case.after[:-1])
    await seat.pass_time(QUIET_S)
    cluster.error = OutcomeUnknownError("the connection broke")
    await seat.press(case.after[-1])
    assert "? outcome unknown" in seat.lines[-2]
    cluster.up()
    await seat.pass_time(3)
    await nothing_is_asked(cluster, seat)


@EACH
@on_asyncio
async def test_no_other_key_agrees(cluster: FakeBackend, sit: OpenSession, case: Case) -> None:
    async with sit(first=case.first) as seat:
        await come(seat, case)
        await press(seat, case.key, *case.after[:-1], *WRONG)
        assert seat.app.is_running
        assert "esc no" in seat.lines[-2], "the question stays"
        await press(seat, "escape", case.after[-1], "enter")
        assert done(cluster) == []


@pytest.mark.parametrize("where", PLACES, ids=map(str, PLACES))
@on_asyncio
async def test_acting_keys_are_refused_in_read_only_mode(
    cluster: FakeBackend, sit: OpenSession, where: tuple[str, tuple[str, ...]]
) -> None:
    here = [case for case in CASES.values() if (case.first, case.before) == where]
    async with sit(first=where[0], is_read_only=True) as seat:
        await come(seat, here[0])
        for case in here:
            await press(seat, case.key)
            assert "read-only: start cortex tui without --read-only" in seat.lines[-2]
            await nothing_is_asked(cluster, seat)
        await press(seat, *here[0].after)
        assert done(cluster) == []


@pytest.mark.parametrize(
    "case",
    [case for case in CASES.values() if case.lose is not None],
    ids=[" on ".join(name) for name, case in CASES.items() if case.lose is not None],
)
@on_asyncio
async def test_late_action_shows_that_it_came_too_late(
    cluster: FakeBackend, sit: OpenSession, case: Case
) -> None:
    async with sit(first=case.first, size=(160, 40)) as seat:
        await come(seat, case)
        await press(seat, case.key, *case.after[:-1])
        await seat.pass_time(QUIET_S)
        assert case.lose is not None
        case.lose(cluster)
        await seat.press(case.after[-1])
        assert case.lost in seat.lines[-2]
        output = seat.lines[-2].rstrip(GUARD_BAR)
        await seat.pass_time(LOOKS_S)
        assert seat.lines[-2].rstrip(GUARD_BAR) == output


@pytest.mark.parametrize("name", ["approve", "deny", "edit"])
@on_asyncio
async def test_expired_request_cannot_be_decided(
    cluster: FakeBackend, sit: OpenSession, name: str
) -> None:
    case = CASES[f"approvals.{name}", "approvals"]
    cluster.approvals.add(1, expires_s=9.0)
    async with sit(first=case.first) as seat:
        await come(seat, case)
        await press(seat, case.key, *case.after[:-1])
        await seat.pass_time(8)
        assert "nothing was executed" in seat.lines[-2]
        await press(seat, case.after[-1], case.key, *case.after)
        assert "✗ denied" not in seat.text
        assert done(cluster) == []


@pytest.mark.parametrize("screen", ["pulse", *SCREENS])
@on_asyncio
async def test_acting_keys_of_other_screens_are_ignored(
    cluster: FakeBackend, sit: OpenSession, screen: str
) -> None:
    here = [case for (_, where), case in CASES.items() if where == screen]
    ours = {case.key for case in here}
    async with sit(first=here[0].first if here else screen) as seat:
        if here:
            await come(seat, here[0])
        for key in sorted({case.key for case in CASES.values()} - ours):
            await seat.press(key)
            assert "esc no" not in seat.lines[-2], key
            await seat.press("y")
        assert done(cluster) == []
