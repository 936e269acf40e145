"""The first screen: numbers, sparklines, and what is wrong, in words."""

from datetime import timedelta
from decimal import Decimal

import pytest

from cortex.store.pulse import Trouble
from cortex_tui.app import FIRST
from tests.support.tui import FakeBackend, instant, on_asyncio
from tests.support.tui_dead import a_bucket
from tests.tui.conftest import Sit

HOSTILE = "\x1b]52;c;aGk=\x07\u202egpt\n[@click=app.quit]"


def test_it_is_the_first_screen() -> None:
    assert FIRST == "pulse"


@on_asyncio
async def test_a_calm_cluster_says_so(sit: Sit) -> None:
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "✓ nothing needs you" in seat.text
        assert "> pulse" in seat.lines[0]
        for label in ("running", "due", "oldest due", "approvals", "dead", "started", "wait p50"):
            assert label in seat.text


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
@on_asyncio
async def test_it_is_complete_at_every_size(
    cluster: FakeBackend, sit: Sit, size: tuple[int, int]
) -> None:
    cluster.heads |= {"approvals": 3, "dead": 1000, "first_expiry": instant(cluster.clock)}
    cluster.pulse.running, cluster.pulse.due = 1000, 1000
    cluster.pulse.oldest_due_s = 86_400.0 * 12
    async with sit(first="pulse", size=size) as seat:
        await seat.pass_time(3)
        assert all(len(line) <= size[0] for line in seat.lines)
        assert "more line" not in seat.text
        assert "no pod took it" in seat.text


@on_asyncio
async def test_the_sparklines_tell_rates(cluster: FakeBackend, sit: Sit) -> None:
    cluster.pulse.buckets = [a_bucket()] * 29 + [
        a_bucket(started=60, done=30, failed=3, wait_p50_s=2.5, usd=Decimal("0.5"))
    ]
    cluster.pulse.spent_usd, cluster.pulse.calls = Decimal("1.25"), 17
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "2/s" in seat.text
        assert "0.1/s" in seat.text
        assert "2.5s" in seat.text
        assert "$60.00" in seat.text
        assert "$1.25 in the last hour · 17 calls" in seat.text


@on_asyncio
async def test_what_was_not_read_is_not_told_as_nothing(cluster: FakeBackend, sit: Sit) -> None:
    cluster.pulse.buckets = [a_bucket(is_known=False)] * 10 + [a_bucket(done=3)] * 20
    async with sit(first="pulse", size=(80, 24)) as seat:
        await seat.pass_time(3)
        (done,) = (line for line in seat.lines if line.startswith(" done"))
        assert done.count("·") == 10


@on_asyncio
async def test_what_is_wrong_is_told_in_words(cluster: FakeBackend, sit: Sit) -> None:
    now = instant(cluster.clock)
    cluster.heads |= {"dead": 412, "is_frozen": True}
    cluster.pulse.oldest_due_s = 75.0
    cluster.pulse.found = [
        Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=now - timedelta(seconds=30)),
        Trouble(kind="pod", name="eu-2", word="READY", at=now - timedelta(seconds=200)),
        Trouble(kind="approval", name="refund", word="HIGH", at=now + timedelta(seconds=200)),
    ]
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        for told in (
            "! 6 alerts",
            "breaker llm:gpt is open for 00:3",
            "pod eu-2 says nothing for 03:2",
            "1 approval expires within 5 min: refund",
            "a job has been due for 01:15",
            "412 dead letters",
            "effects are frozen",
        ):
            assert told in seat.text


@on_asyncio
async def test_hostile_names_stay_text(cluster: FakeBackend, sit: Sit) -> None:
    cluster.pulse.found = [
        Trouble(kind=kind, name=HOSTILE, word=HOSTILE, at=None) for kind in ("breaker", "pod")
    ]
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "\x1b" not in seat.text
        assert "\u202e" not in seat.text
        assert "[@click=app.quit]" in seat.text


@on_asyncio
async def test_the_dear_statement_is_rare(cluster: FakeBackend, sit: Sit) -> None:
    async with sit(first="pulse") as seat:
        await seat.pass_time(20)
    assert 3 <= cluster.asked.count("recent") <= 6
    assert cluster.asked.count("figures") > 6
    assert len(cluster.asked) <= 21 * 4, "four statements a second at most"


@on_asyncio
async def test_nothing_is_asked_for_while_another_screen_is_in_front(
    cluster: FakeBackend, sit: Sit
) -> None:
    async with sit(first="pulse") as seat:
        await seat.press("2")
        cluster.asked.clear()
        await seat.pass_time(10)
    assert not {"recent", "figures", "troubles"} & set(cluster.asked)


@on_asyncio
async def test_what_was_shown_stays_while_the_database_is_away(
    cluster: FakeBackend, sit: Sit
) -> None:
    cluster.heads["dead"] = 412
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        cluster.down()
        await seat.pass_time(3)
        assert "STALE" in seat.lines[0]
        assert "412 dead letters" in seat.text
