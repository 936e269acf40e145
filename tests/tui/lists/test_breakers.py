"""The screen of circuit breakers: its content, holding one open, closing one."""

import pytest

from cortex.view.phrases import time_of_day
from cortex_tui.backend.breakers import SHOWN_MAX
from tests.support.hostile import PIECES, treacherous
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.tui.conftest import OpenSession

WELL = "tool:crm"
SICK = "llm:gpt"


def seed(cluster: FakeBackend) -> None:
    breakers, ago = cluster.breakers, cluster.breakers.ago
    breakers.add(WELL, failures=1, last_error="TIMEOUT: no answer")
    sick = {"state": "OPEN", "failures": 3, "opened_at": ago(130), "open_until": ago(-15)}
    breakers.add(SICK, **sick, waiting=12, last_error="RATE_LIMIT: 429 Too Many Requests")


async def show(seat: Seat) -> None:
    await seat.press("6")
    await seat.pass_time(2)


@on_asyncio
async def test_failing_breakers_are_listed_first(cluster: FakeBackend, sit: OpenSession) -> None:
    seed(cluster)
    breakers = cluster.breakers
    held = {"forced_by": "li", "forced_reason": "key leaked", "forced_at": breakers.ago(60)}
    breakers.add("llm:old", state="OPEN", opened_at=breakers.ago(60), **held)
    breakers.add("http:api", state="HALF_OPEN", failures=5, probe_by="x", probe_pod="eu-2")
    async with sit(size=(130, 24)) as seat:
        await show(seat)
        rows = [line[2:] for line in seat.lines if ":" in line[:10] and "cortex" not in line]
        names = [row.split()[0] for row in rows[:4]]
        assert names == ["http:api", SICK, "llm:old", WELL]
        assert "◆ half-open    5/5" in rows[0]
        assert "by eu-2" in rows[0]
        assert "✗ open         3/3     2m     00:1" in rows[1]
        assert "RATE_LIMIT: 429" in rows[1]
        assert "◆ held open" in rows[2]
        assert 'held open by li "key leaked"' in rows[2]
        assert "● closed       1/3" in rows[3]


@on_asyncio
async def test_detail_shows_the_breaker_under_the_cursor(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        assert "12 jobs wait for it" in seat.text
        assert "last error: RATE_LIMIT: 429 Too Many Requests" in seat.text
        await seat.press("j")
        assert "last error: TIMEOUT: no answer" in seat.text
        assert "RATE_LIMIT" not in seat.text


@on_asyncio
async def test_detail_shows_the_last_hour_and_its_errors(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    errors = [(9, "rate_limit", "429"), (10, "overloaded", "busy " * 40), (70, "timeout", "late")]
    turns = ((1300, "OPEN"), (1200, "HALF_OPEN"), (1190, "CLOSED"), (130, "OPEN"))
    cluster.breakers.happened(SICK, *turns, errors=errors)
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        lines = [line.strip() for line in seat.lines]
        (output,) = [line for line in lines if line.startswith("last hour")]
        assert output.endswith("opened 2 times")
        assert "▇" in output
        assert output.split()[2].startswith("▁▁▁▁▁")
        at = [f"{error.at:%H:%M:%SZ}" for error in cluster.breakers.pasts[SICK].errors]
        errors_text = [line for line in lines if line.startswith(("last error", "before that"))]
        assert errors_text[0] == f"last error {at[0]}: rate_limit: 429"
        assert errors_text[1].startswith(f"before that {at[1]}: overloaded: busy busy")
        assert errors_text[1].endswith("…"), "it is one line"
        assert errors_text[2] == f"before that {at[2]}: timeout: late"
        await seat.press("j")
        assert "last hour  ▁▁▁▁▁▁▁▁▁▁▁▁\n" in "\n".join(line.rstrip() for line in seat.lines)
    async with sit(size=(120, 24)) as seat:
        await show(seat)
        row = next(line for line in seat.lines if SICK in line)
        assert row.index("▁") == seat.lines[1].index("last hour")


@on_asyncio
async def test_breaker_history_is_read_seldom_and_soon_after_a_change(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(first="breakers") as seat:
        await seat.pass_time(10)
        cluster.breakers.asked.clear()
        await seat.pass_time(20)
        assert 3 <= cluster.breakers.asked.count("past") <= 5
        await seat.pass_time(4)
        for failures in range(40):
            cluster.breakers.change(WELL, failures=failures)
            await seat.pass_time(0.25)
        assert cluster.breakers.asked.count("past") <= 5 + 11, "once a second at most"
        cluster.breakers.happened(WELL, (1, "OPEN"))
        cluster.breakers.change(WELL, failures=99)
        await seat.pass_time(2)
        await seat.press("j")
        assert "opened once" in seat.text


@pytest.mark.parametrize(
    "keys, done",
    [
        (["O", *"try", "enter", "y"], ("close", SICK, "ana", "try")),
        (["j", "O", "enter", *"bad key", "enter", "y"], ("hold_open", WELL, "ana", "bad key")),
        (["j", "O", *"bad key", "enter", "y"], None),
        (["j", "O", "enter", *"bad key", "enter", "Y"], None),
        (["j", "O", "enter", *"bad key", "enter", "escape", "y"], None),
        (["j", "O", "escape", "enter", *"bad key", "enter", "y"], None),
        (
            ["O", "tab", "tab", "enter", *"deploy", "enter", "y"],
            ("hold_open", SICK, "ana", "deploy"),
        ),
        (["O", "t", "tab", *"ry", "enter", "y"], ("close", SICK, "ana", "try")),
        (["O", "tab", "enter", *"deploy", "enter", "escape", "y"], None),
        (["O", "enter", "y"], None),
        (["O", *"try", "y"], None),
        (["O", *"try", "enter", "escape", "y"], None),
        (["O", *"try", "enter", "Y", "enter"], None),
        (["O", *"tr", "enter", "y", "backspace", "escape"], None),
        (["o", *"try", "enter", "y"], None),
    ],
)
@on_asyncio
async def test_an_act_is_done_after_its_reason_and_y(
    cluster: FakeBackend, sit: OpenSession, keys: list[str], done: tuple[str, ...] | None
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press(*keys)
        assert cluster.breakers.acted == ([done] if done else [])


@on_asyncio
async def test_action_applies_to_the_breaker_in_question(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press("O", *"why", "enter")
        cluster.breakers.add("http:first", state="OPEN", opened_at=cluster.breakers.now)
        await seat.pass_time(2)
        await seat.press("y")
        assert cluster.breakers.acted == [("close", SICK, "ana", "why")]


@on_asyncio
async def test_acting_on_a_removed_breaker_reports_it(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press("O", *"why", "enter")
        del cluster.breakers.rows[SICK]
        await seat.press("y")
        assert "✗ there is no circuit breaker 'llm:gpt'" in seat.text


@on_asyncio
async def test_a_time_that_is_written_takes_the_place_of_the_one_that_stands_there(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        await seat.press("j", "O", *"90")
        assert "for: 90▏" in seat.text
        await seat.press("m")
        assert "for: 90m▏ enter" in seat.text
        await seat.press("tab", "4")
        assert "for: 4▏" in seat.text


@on_asyncio
async def test_short_reason_is_refused(cluster: FakeBackend, sit: OpenSession) -> None:
    seed(cluster)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        await seat.press("O", *"ok")
        assert "why: ok▏ enter" in seat.text
        await seat.press("enter")
        assert "why: ok▏ 3 letters at least" in seat.text
        await seat.press("a")
        assert "why: oka▏ enter" in seat.text


@on_asyncio
async def test_the_log_has_the_commands(cluster: FakeBackend, sit: OpenSession) -> None:
    seed(cluster)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        await seat.press("O", *"it is well", "enter", "y", "@")
        output = f"cortex breakers close {SICK} --reason 'it is well' --yes --as ana"
        assert output in seat.text


@on_asyncio
async def test_hostile_text_is_shown_as_it_is(cluster: FakeBackend, sit: OpenSession) -> None:
    for text in PIECES.values():
        held = {"forced_by": text, "forced_reason": text, "forced_at": cluster.breakers.now}
        cluster.breakers.add(
            f"llm:{text}", state="OPEN", **held, last_error=text, opened_at=cluster.breakers.now
        )
    async with sit(size=(100, 30)) as seat:
        await show(seat)
        for _ in PIECES:
            await seat.press("O")
            assert treacherous(seat.text) == []
            await seat.press("escape", "j")


@on_asyncio
async def test_no_breaker_is_good_news(sit: OpenSession) -> None:
    async with sit() as seat:
        await show(seat)
        assert "no breaker is open; no recent failures" in seat.text


@pytest.mark.parametrize(
    "keys, held_s, output",
    [
        (["enter"], 1800.0, "--for 30m"),
        (["tab", "enter"], 7200.0, "--for 2h"),
        (["tab", "tab", "tab", "enter"], None, "cortex breakers open tool:crm --reason"),
        (["tab", "tab", "tab", "tab", "enter"], 1800.0, "--for 30m"),
        (["backspace", "backspace", "backspace", "enter"], None, "open tool:crm --reason"),
        (["backspace", "s", "enter"], 30.0, "--for 30s"),
        (["backspace", *"x;-", "enter", "m", "enter"], 1800.0, "--for 30m"),
        ([*"99d", "enter", *["backspace"] * 3, *"30m", "enter"], 1800.0, "--for 30m"),
    ],
)
@on_asyncio
async def test_breaker_is_held_open_for_the_chosen_time(
    cluster: FakeBackend, sit: OpenSession, keys: list[str], held_s: float | None, output: str
) -> None:
    seed(cluster)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        await seat.press("j", "O", *keys, *"deploy", "enter", "y")
        assert cluster.breakers.held_for_s == [held_s]
        await seat.press("@")
        assert output in seat.text


@on_asyncio
async def test_hold_shows_its_end_and_that_it_has_passed(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    breakers = cluster.breakers
    held = {"forced_by": "ana", "forced_reason": "deploy", "forced_at": breakers.ago(60)}
    breakers.add(
        SICK, state="OPEN", opened_at=breakers.ago(60), **held, open_until=breakers.ago(-9)
    )
    async with sit(size=(120, 30)) as seat:
        await show(seat)
        until = time_of_day(breakers.ago(-9), breakers.ago(0))
        assert f'held open by ana until {until} "deploy"' in seat.text
        assert "◆ held open" in seat.text
        assert "00:0" in seat.text
        await seat.pass_time(10)
        assert f"was held open by ana until {until}: the next call tries it" in seat.text
        assert "◆ held open" not in seat.text


@on_asyncio
async def test_truncated_breaker_list_names_the_command_for_the_rest(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(SHOWN_MAX):
        cluster.breakers.add(f"b{number:03}")
    async with sit(first="breakers") as seat:
        await seat.pass_time(2)
        assert "more of them" not in seat.text
        await seat.press("G")
        at = next(index for index, line in enumerate(seat.lines) if "b199" in line)
        assert "more of them: cortex breakers ls" in seat.lines[at + 1]
        await seat.press("k")
        assert "b198" in seat.text
        del cluster.breakers.rows["b000"]
        await seat.pass_time(3)
        assert "more of them" not in seat.text


@on_asyncio
async def test_no_other_breaker_takes_the_place_of_all(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.breakers.add("old")
    async with sit(first="breakers") as seat:
        await seat.pass_time(2)
        cluster.breakers.rows.clear()
        cluster.breakers.add("new")
        await seat.pass_time(3)
        await seat.press("O")
        assert "what the cursor was on is gone" in seat.lines[-2]
        await seat.press("k", "O")
        assert "open new" in seat.lines[-2]


@on_asyncio
async def test_a_long_text_is_scrolled_by_the_keys_of_half_a_page(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    cluster.breakers.add(SICK, failures=1, last_error=words)
    cluster.breakers.add(WELL, failures=1)
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        assert "word399" not in seat.text
        for _ in range(40):
            await seat.press("ctrl+d")
        assert "word399" in seat.text
        for _ in range(40):
            await seat.press("ctrl+u")
        assert "word0 " in seat.text
        await seat.press("j", "ctrl+u")
        assert "word0 " in seat.text, "where all is in sight they are the list's"
