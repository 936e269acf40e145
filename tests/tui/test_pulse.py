"""The first screen: what needs a person, what fails, what runs, and sparklines."""

import asyncio
import os
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cortex.store.pulse import ATTENTION_MAX, Attention, Failure, Need, Trouble
from cortex.view.phrases import time_of_day
from cortex_tui.app import FIRST
from tests.support.terminal.tui import FakeBackend, instant, on_asyncio
from tests.support.terminal.tui_dead import a_bucket
from tests.tui.conftest import OpenSession

HOSTILE = "\x1b]52;c;aGk=\x07\u202egpt\n[@click=app.quit]"


def troubled(*troubles: Trouble) -> Attention:
    return Attention(troubles=troubles)


def a_need(kind: str, number: int, **fields: Any) -> Need:
    known: dict[str, Any] = {"name": "refund", "word": "HIGH", "agent": None, "since": None}
    known |= {"id": UUID(int=number), "job_id": UUID(int=number), "until": None}
    return Need(kind=kind, **known | fields)


def a_failure(number: int, at: datetime, **more: Any) -> Failure:
    fields: dict[str, Any] = {"agent": None, "error": "overloaded", "message": f"busy {number}"}
    return Failure(job_id=UUID(int=number), type="digest", at=at, **fields, **more)


def test_pulse_is_the_first_screen() -> None:
    assert FIRST == "pulse"


@on_asyncio
async def test_calm_cluster_shows_that_all_is_well(sit: OpenSession) -> None:
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "✓ nothing needs you" in seat.text
        assert "✓ nothing waits" in seat.lines[0]
        assert "> pulse" in seat.lines[0]
        assert "failing       ✓ nothing" in seat.text
        assert "running       0 running · 0 due" in seat.text
        for label in ("started", "wait p50", "spent"):
            assert label in seat.text


@on_asyncio
async def test_the_types_that_wait_for_code_are_named(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.pulse.stranded_types = ("digest", "report", "import", "export")
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        line = "! 8 jobs wait for code that no pod has: digest, report, import and 1 more"
        assert line in seat.text


@on_asyncio
async def test_pulse_reports_a_missing_pod_unless_ticks_run(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.heads |= {"pods_living": 0, "pods_ready": 0}
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "! no pod is running: start one with cortex up" in seat.text
        cluster.pulse.ticked_s = 41.0
        await seat.pass_time(10)
        assert "· no pod runs: cortex tick runs the jobs, last 41s ago" in seat.text
        cluster.pulse.oldest_due_s = 75.0
        await seat.pass_time(10)
        assert "oldest due 1m" in seat.text
        assert "the oldest due job has waited" not in seat.text, "the next tick takes it"
        cluster.pulse.oldest_due_s = 135.0
        await seat.pass_time(10)
        assert "the oldest due job has waited for 02:15" in seat.text


@on_asyncio
async def test_approvals_that_wait_need_somebody(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.heads["approvals"] = 4
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "needs you     ◆ 4 approvals (A)" in seat.text
        assert "nothing needs you" not in seat.text
        cluster.heads |= {"approvals": 1, "is_frozen": True}
        await seat.pass_time(3)
        assert "needs you     ◆ 1 approval (A)" in seat.text
        assert "failing       1 alert" in seat.text


@pytest.mark.parametrize(
    "name, output",
    [
        ("approvals", "◆ 1 approval (A)"),
        ("effects", "? 1 effect"),
        ("budgets", "$ 1 budget"),
        ("persons", "! 1 person"),
        ("dead", "✗ 1 dead (5)"),
    ],
)
@on_asyncio
async def test_waiting_work_is_counted_in_headline_and_top_bar(
    cluster: FakeBackend, sit: OpenSession, name: str, output: str
) -> None:
    cluster.heads[name] = 1
    async with sit(first="pulse", size=(80, 24)) as seat:
        await seat.pass_time(3)
        assert seat.lines[1].split("needs you")[1].strip() == output
        assert "dead 1" in seat.lines[0] if name == "dead" else f"{output[0]} 1" in seat.lines[0]
        assert "✓ 0" not in seat.lines[0]
        assert "LIVE" in seat.lines[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
@on_asyncio
async def test_pulse_fits_every_size(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    cluster.heads |= {"approvals": 3, "dead": 1000, "first_expiry": instant(cluster.clock)}
    cluster.pulse.running, cluster.pulse.due = 1000, 1000
    cluster.pulse.oldest_due_s = 86_400.0 * 12
    async with sit(first="pulse", size=size) as seat:
        await seat.pass_time(3)
        assert all(len(line) <= size[0] for line in seat.lines)
        assert "more line" not in seat.text
        assert "the oldest due job has waited for 12d" in seat.text
        assert "1,000+ running · 1,000+ due · oldest due 12d" in seat.text


@on_asyncio
async def test_sparklines_show_rates(cluster: FakeBackend, sit: OpenSession) -> None:
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
async def test_unread_buckets_are_shown_as_unknown(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.pulse.buckets = [a_bucket(is_known=False)] * 10 + [a_bucket(done=3)] * 20
    async with sit(first="pulse", size=(80, 24)) as seat:
        await seat.pass_time(3)
        (done,) = (line for line in seat.lines if line.startswith(" done"))
        assert done.count("·") == 10


@on_asyncio
async def test_troubles_are_described_in_words(cluster: FakeBackend, sit: OpenSession) -> None:
    now = instant(cluster.clock)
    cluster.heads |= {"dead": 412, "is_frozen": True}
    cluster.pulse.oldest_due_s = 75.0
    cluster.pulse.attention_seen = troubled(
        Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=now - timedelta(seconds=30)),
        Trouble(kind="pod", name="eu-2", word="READY", at=now - timedelta(seconds=200)),
    )
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        for output in (
            "412 failed jobs wait · 4 alerts",
            "breaker llm:gpt is open for 00:3",
            "pod eu-2 is silent for 03:2",
            "the oldest due job has waited for 01:15",
            "effects are frozen",
        ):
            assert output in seat.text


@on_asyncio
async def test_held_breaker_shows_the_person(cluster: FakeBackend, sit: OpenSession) -> None:
    now = instant(cluster.clock)
    until = now + timedelta(minutes=30)
    held: dict[str, Any] = {
        "word": "OPEN",
        "at": now,
        "forced_by": "ana",
        "forced_reason": "deploy",
    }
    cluster.pulse.attention_seen = troubled(
        Trouble(kind="breaker", name="llm:gpt", **held, open_until=until),
        Trouble(kind="breaker", name="llm:old", **held),
    )
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        at = time_of_day(until, now)
        assert f'breaker llm:gpt held open by ana until {at} "deploy"' in seat.text
        assert 'breaker llm:old held open by ana "deploy"' in seat.text


# --- what needs a person, what failed


@on_asyncio
async def test_needs_come_before_failures_and_running_jobs(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    now = instant(cluster.clock)
    since = now - timedelta(hours=3)
    cluster.heads |= {"approvals": 1, "effects": 1, "budgets": 2, "persons": 2, "dead": 1}
    cluster.pulse.attention_seen = Attention(
        needs=(
            a_need("approval", 1, until=now + timedelta(seconds=200), since=since),
            a_need("effect", 2, name="pay", word="UNKNOWN", why="its pod died", since=since),
            a_need("job", 3, name="crawl", word="budget:team:usd:day", since=since),
            a_need("job", 4, name="mail", word="quota:mail.send:calls:day", since=since),
            a_need("job", 5, name="plan", word="person:llm:gpt", since=since),
            a_need("job", 7, name="tidy", word="trust:clerk/git.tag", since=since),
        ),
        failures=(a_failure(6, now - timedelta(minutes=3)),),
    )
    wanted = (
        ("needs you", "1 approval", "1 effect", "2 budgets", "2 person", "1 dead"),
        ("◆ refund", "HIGH", "expires in 03:1", "waits 3h"),
        ("? pay", "unknown", "outcome unknown: its pod died", "waits 3h"),
        ("$ crawl", "budget", "team:usd:day is spent", "waits 3h"),
        ("$ mail", "quota", "mail.send:calls:day is used up", "waits 3h"),
        ("! plan", "person", "llm:gpt needs a person", "waits 3h"),
        ("! tidy", "trust", "git.tag has changed: cortex agents trust", "waits 3h"),
        ("failing", "1 failed job waits"),
        ("✗ digest", "overloaded", "busy 6", "3m ago"),
        ("running", "0 running · 0 due"),
        ("last 15 min",),
    )
    async with sit(first="pulse", size=(120, 40)) as seat:
        await seat.pass_time(3)
        shown = [line for line in seat.lines[1:-2] if line and "default" not in line]
        for line, words in zip(shown, wanted, strict=False):
            assert [word for word in words if word not in line] == [], line


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@on_asyncio
async def test_every_section_gets_some_lines(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    seed_queues(cluster, 20)
    now = instant(cluster.clock)
    cluster.heads |= {"approvals": 300, "dead": 300}
    cluster.pulse.attention_seen = Attention(
        troubles=tuple(
            Trouble(kind=kind, name=f"{kind}{n}", word="OPEN", at=now)
            for kind in ("breaker", "pod")
            for n in range(ATTENTION_MAX)
        ),
        needs=tuple(a_need("approval", n + 1) for n in range(ATTENTION_MAX)),
        failures=tuple(a_failure(n + 100, now) for n in range(ATTENTION_MAX)),
    )
    async with sit(first="pulse", size=size) as seat:
        await seat.pass_time(4)
        assert "more line" not in seat.text
        for words in (
            "◆ refund",
            "more · 3 shows the requests",
            "! breaker",
            "✗ digest",
            "started",
        ):
            assert words in seat.text
        rows = [line for line in seat.lines if line[1:3] in ("◆ ", "! ", "✗ ", "  ")]
        assert len(rows) >= 11
        assert seat.lines[-4], "no line is left empty"


@on_asyncio
async def test_enter_opens_the_row_under_the_cursor(cluster: FakeBackend, sit: OpenSession) -> None:
    now = instant(cluster.clock)
    cluster.approvals.add(7)
    cluster.effects.add(8)
    for number in (9, 10):
        cluster.add(number)
    cluster.pulse.attention_seen = Attention(
        troubles=(Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=now),),
        needs=(
            a_need("approval", 7),
            a_need("effect", 8),
            a_need("job", 9, word="budget:x:usd:run"),
        ),
        failures=(a_failure(10, now),),
    )
    places = ("> approvals", "> effects", "> jobs > …000009", "> breakers", "> jobs > …00000a")
    async with sit(first="pulse") as seat:
        for downs, place in enumerate(places):
            await seat.press("1", "g", *("j" * downs))
            (at,) = [line for line in seat.lines if line.startswith("▌")]
            assert at.startswith(("▌◆", "▌?", "▌$", "▌!", "▌✗")[downs])
            await seat.press("enter")
            await seat.pass_time(1)
            assert place in seat.lines[0]
            await seat.press("escape")


@on_asyncio
async def test_the_cursor_stays_on_its_row_while_others_come(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    now = instant(cluster.clock)
    failures = tuple(a_failure(n, now) for n in (1, 2, 3))
    cluster.pulse.attention_seen = Attention(failures=failures)
    async with sit(first="pulse") as seat:
        await seat.pass_time(1)
        await seat.press("j")
        cluster.pulse.attention_seen = Attention(
            needs=(a_need("approval", 9),), failures=(a_failure(8, now), *failures)
        )
        await seat.pass_time(6)
        (at,) = [line for line in seat.lines if line.startswith("▌")]
        assert "busy 2" in at
        cluster.pulse.attention_seen = Attention()
        await seat.pass_time(6)
        assert not [line for line in seat.lines if line.startswith("▌")]
        await seat.press("enter")
        assert "nothing here opens" in seat.text


# --- queues


def seed_queues(cluster: FakeBackend, count: int) -> None:
    cluster.queues.add(None, running=12, ready=36, oldest_ready_s=42.0)
    for number in range(count):
        cluster.queues.add(f"q{number:02}", running=1, ready=0, oldest_ready_s=None)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
@on_asyncio
async def test_each_queue_has_a_line(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    seed_queues(cluster, 0)
    at = instant(cluster.clock) - timedelta(minutes=5)
    paused = {"paused_at": at, "paused_by": "ana", "reason": "deploy"}
    cluster.queues.add("mail", **paused, ready=5, running=0, oldest_ready_s=9.0)
    async with sit(first="pulse", size=size) as seat:
        await seat.pass_time(4)
        mail, default = [line for line in seat.lines if " run · " in line]
        assert mail.startswith(" mail")
        assert f'paused by ana {time_of_day(at, at)} "deploy" · 0 run · 5 ready' in mail
        assert "12 run · 36 ready · oldest 42s" in default
        assert default.count("█") * 3 == default.count("░") or size[0] == 80
        assert "queue mail is paused by ana" in seat.text
        assert "more line" not in seat.text


@pytest.mark.parametrize("size, shown", [((80, 24), 2), ((160, 50), 7)])
@on_asyncio
async def test_worst_of_many_queues_are_shown(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int], shown: int
) -> None:
    seed_queues(cluster, 20)
    cluster.queues.add("slow", running=1, ready=2_000, is_capped=True, oldest_ready_s=7_200.0)
    async with sit(first="pulse", size=size) as seat:
        await seat.pass_time(4)
        lines = [line for line in seat.lines if " run · " in line]
        assert lines[0].startswith(" slow")
        assert "2,000+ ready · oldest 2h" in lines[0]
        assert len(lines) >= shown
        assert f"and {22 - len(lines)} more, 4 shows them" in seat.text
        assert "more line" not in seat.text


@on_asyncio
async def test_alerts_come_before_queues_where_there_is_no_room(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed_queues(cluster, 20)
    now = instant(cluster.clock)
    cluster.pulse.attention_seen = troubled(
        *(Trouble(kind="breaker", name=f"llm:{n}", word="OPEN", at=now) for n in range(4))
    )
    async with sit(first="pulse", size=(80, 24)) as seat:
        await seat.pass_time(4)
        assert "4 shows them" in seat.text
        assert seat.text.count("breaker llm:") == 4
        assert "more line" not in seat.text


@on_asyncio
async def test_queues_cost_no_more_statements(cluster: FakeBackend, sit: OpenSession) -> None:
    seed_queues(cluster, 3)
    pages: list[int] = []
    cluster.queues.check = lambda: pages.append(1)
    async with sit(first="pulse") as seat:
        cluster.asked.clear()
        pages.clear()
        await seat.pass_time(20)
        assert 4 <= len(pages) <= 6
        screen = [each for each in cluster.asked if each != "head"]
        assert len(screen) + len(pages) <= 41, "two a second while nothing changes"


@on_asyncio
async def test_hostile_names_stay_text(cluster: FakeBackend, sit: OpenSession) -> None:
    held: dict[str, Any] = {"forced_by": HOSTILE, "forced_reason": HOSTILE}
    cluster.pulse.attention_seen = troubled(
        *(Trouble(kind=kind, name=HOSTILE, word=HOSTILE, at=None) for kind in ("breaker", "pod")),
        Trouble(kind="breaker", name="x", word="OPEN", at=None, **held),
    )
    paused = {"paused_at": instant(cluster.clock), "paused_by": HOSTILE, "reason": HOSTILE}
    cluster.queues.add(HOSTILE, **paused)
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "\x1b" not in seat.text
        assert "\u202e" not in seat.text
        assert "[@click=app.quit]" in seat.text


@on_asyncio
async def test_expensive_statement_runs_rarely(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="pulse") as seat:
        await seat.pass_time(20)
    assert 3 <= cluster.asked.count("recent") <= 6
    assert cluster.asked.count("figures") > 4
    assert len(cluster.asked) <= 21 * 4, "four statements a second at most"


@on_asyncio
async def test_hidden_pulse_reads_nothing(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="pulse") as seat:
        await seat.press("2")
        cluster.asked.clear()
        await seat.pass_time(10)
    assert not {"recent", "figures", "attention"} & set(cluster.asked)


@on_asyncio
async def test_last_figures_stay_while_the_database_is_away(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.heads["dead"] = 412
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        cluster.down()
        await seat.pass_time(3)
        assert "STALE" in seat.lines[0]
        assert "412 failed jobs wait" in seat.text


@on_asyncio
async def test_an_alert_that_fails_costs_no_other_one_its_line(
    cluster: FakeBackend, sit: OpenSession, tmp_path: Path
) -> None:
    cluster.pulse.attention_seen = troubled(
        Trouble(kind="pod", name=None, word="READY", at="yesterday"),  # type: ignore[arg-type]
        Trouble(kind="breaker", name="llm:gpt", word="OPEN", at=None),
    )
    async with sit(first="pulse", reports=tmp_path) as seat:
        await seat.pass_time(8)
        assert "! an alert cannot be shown (TypeError)" in seat.text
        assert "breaker llm:gpt is open" in seat.text
        assert "failing       2 alerts" in seat.text
        assert (
            "✗ an alert cannot be shown: TypeError in cortex_tui/render/pulse_alerts" in seat.text
        )
    (report,) = os.scandir(tmp_path)
    assert "_silent" in await asyncio.to_thread(Path(report).read_text, "utf-8")
