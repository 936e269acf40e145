"""The inbox: what is seen before deciding, which keys decide, and what comes in between."""

import random
from uuid import UUID

import pytest

from cortex.view.approval_facts import DENY_REASONS
from tests.support.hostile import HOSTILE
from tests.support.terminal.inbox_keys import QUIET_S, enter, keys
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

LONG = {"lines": [{"sku": f"A-{number}"} for number in range(60)]}


@on_asyncio
async def test_the_most_urgent_one_is_approved_from_anywhere(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, risk="LOW")
    soon = inbox.add(2, expires_s=600.0)
    inbox.add(3)
    async with sit() as seat:
        await enter(seat)
        assert "…000002  refund" in seat.text
        assert "EXPIRES 09:5" in seat.text
        await keys(seat, "a")
        assert (
            'approve …000002 refund(amount=12.4, customer="cus_88"), cannot be undone?'
            in seat.lines[-2]
        )
        assert inbox.decisions == []
        await keys(seat, "y")
        (verdict,) = inbox.decisions
        assert (verdict.approval_id, verdict.by.name, verdict.channel) == (soon, "ana", "tui")
        assert verdict.seen == inbox.rows[soon].digest
        assert "✓ approved …000002 refund" in seat.lines[-2]
        await seat.pass_time(1)
        assert "…000003  refund" in seat.text, "the next one comes by itself"
        await seat.press("at")
        assert f"cortex approvals approve {soon} --yes --as ana" in seat.text.replace("\n", "")


@on_asyncio
async def test_letters_that_the_terminal_lacks_are_spelled_out(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(
        1, arguments={"to": "p\N{CYRILLIC SMALL LETTER A}y@x.org", "why": "a\u202eb \u2013rf"}
    )
    async with sit(is_ascii=True) as seat:
        await enter(seat)
        assert "p[U+0430]y@x.org" in seat.text
        assert "a[U+202E]b [U+2013]rf" in seat.text
        assert "1 hidden character in why" in seat.text


@pytest.mark.parametrize("number", [1, 5])
@on_asyncio
async def test_a_number_denies_with_a_canned_reason(
    inbox: FakeApprovals, sit: OpenSession, number: int
) -> None:
    inbox.add(1)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        await keys(seat, "d")
        assert all(reason in seat.text for reason in DENY_REASONS)
        await keys(seat, str(number))
        (verdict,) = inbox.decisions
        assert (verdict.is_approved, verdict.reason) == (False, DENY_REASONS[number - 1])
        assert "✓ denied …000001 refund" in seat.text
        assert DENY_REASONS[0] not in seat.text


@on_asyncio
async def test_words_and_enter_deny(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "d", "enter", "enter")
        assert inbox.decisions == []
        await keys(seat, *"not us", "enter")
        assert [each.reason for each in inbox.decisions] == ["not us"]


@on_asyncio
async def test_only_the_full_key_sequence_decides(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        for pressed in ("y", "a", "Y", "enter", "escape", "space", "1", "y y y"):
            await keys(seat, *pressed.split())
            assert inbox.decisions == [], pressed
            await seat.press("escape", "3")
            await seat.pass_time(1)


@on_asyncio
async def test_no_other_key_agrees_or_reaches_the_screen(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    inbox.add(2)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        for other in ("Y", "enter", "space", "n", "a", "d", "q", "3", "tab", "1"):
            await keys(seat, other)
            assert inbox.decisions == []
            assert "approve …000001 refund" in seat.lines[-2], f"the question stays at {other}"
        await keys(seat, "escape")
        assert "nothing was done" in seat.lines[-2]
        await keys(seat, "y")
        assert inbox.decisions == []


@on_asyncio
async def test_keys_typed_ahead_of_a_question_are_ignored(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await seat.press(*"yyyy")
        assert inbox.decisions == []
        assert "░" in seat.lines[-2], "a bar shows the silence"
        await seat.pass_time(1.0)
        assert "░" not in seat.lines[-2]
        await seat.press("y")
        assert len(inbox.decisions) == 1


@pytest.mark.parametrize("late", ["a", "y"])
@on_asyncio
async def test_keys_typed_while_the_app_was_stopped_are_ignored(
    inbox: FakeApprovals, sit: OpenSession, late: str
) -> None:
    inbox.add(1)
    inbox.add(2)
    async with sit() as seat:
        await enter(seat)
        for key in ("n", "a", "y"):
            await seat.pass_time(QUIET_S if key != late else 0.1)
            if key == late:  # pressed by now, handled when the app continues
                seat.clock.late_s = 1.0
                await seat.pass_time(1.0)
            await seat.press(key)
            seat.clock.late_s = 0.0
        assert inbox.decisions == []


@on_asyncio
async def test_after_a_decision_the_next_question_opens_at_once(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in range(1, 4):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.pass_time(0.3)
        await seat.press("a")
        assert "approve …000002 refund" in seat.lines[-2]
        await seat.press("y")
        assert len(inbox.decisions) == 1, "and is answered after a silence"
        await keys(seat, "y", "y")
        assert len(inbox.decisions) == 2


@on_asyncio
async def test_dangerous_approval_needs_the_end_of_its_id(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    risky = inbox.add(0x7F3C, risk="HIGH")
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert "HIGH: approve …007f3c refund" in seat.lines[-2]
        assert inbox.decisions == []
        await seat.pass_time(QUIET_S)
        await seat.press(*"7f3d")
        assert inbox.decisions == []
        await seat.pass_time(QUIET_S)
        await seat.press(*"7f3c")
        assert inbox.approved == [risky]
        await seat.press("at")
        assert "--confirm=7f3c" in seat.text


@on_asyncio
async def test_critical_approval_waits_for_a_second_person(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(0x7F3C, risk="CRITICAL", people=2)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await keys(seat, *"7f3c")
        assert "1 of 2 agreed to …007f3c refund: another person must agree, too" in seat.lines[-2]
        await seat.pass_time(1)
        await keys(seat, "a")
        assert "you have agreed to it already: another person has to agree" in seat.lines[-2]


@on_asyncio
async def test_own_critical_request_is_not_listed_as_mine(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, risk="CRITICAL", people=2, is_own=True)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        assert "nothing waits for you; tab shows" in seat.text
        await keys(seat, "tab")
        for width in (80, 100, 119, 120, 200):
            await seat.pilot.resize_terminal(width, 24)
            await seat.pass_time(1)
            await keys(seat, "a")
            assert "asked for by you: another person has to agree" in seat.lines[-2], width
            assert "not you" in seat.text, width


@on_asyncio
async def test_question_closes_when_another_person_decides(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    lost = inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        inbox.end(lost, "DENIED")
        await seat.press("y")  # still within the silence
        await seat.pass_time(3)
        at = f"{inbox.rows[lost].decided_at:%H:%M:%SZ}"
        assert f"already denied by li, {at}, page" in seat.lines[-2]
        assert "✗ denied" in seat.text, "the row says so in its place"
        await keys(seat, "y", "a", "y")
        assert inbox.decisions == []


@on_asyncio
async def test_lost_race_names_the_winner(inbox: FakeApprovals, sit: OpenSession) -> None:
    lost = inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await seat.pass_time(QUIET_S)
        inbox.end(lost, "DENIED")
        await seat.press("y")
        at = f"{inbox.rows[lost].decided_at:%H:%M:%SZ}"
        assert f"already denied by li, {at}, page" in seat.text
        assert [each.approval_id for each in inbox.refused] == [lost]
        assert inbox.decisions == []


@on_asyncio
async def test_expiry_closes_the_question_without_a_denial(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, expires_s=6.0)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await seat.pass_time(4)
        assert "nothing was executed" in seat.lines[-2]
        assert "⊘ expired" in seat.text
        assert "⊘ denied" not in seat.text
        assert "✗ denied" not in seat.text
        await keys(seat, "y", "a", "y")
        assert inbox.asked.count("decide") == 0


@on_asyncio
async def test_changed_arguments_must_be_reviewed_again(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    changed = inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        inbox.change(changed, arguments={"customer": "cus_88", "amount": 1240}, version=2)
        await seat.pass_time(3)
        assert "the arguments were changed: look at them again" in seat.lines[-2]
        assert "1240" in seat.text
        await seat.press("y", "escape")
        await keys(seat, "a", "y")
        assert [each.seen for each in inbox.decisions] == [inbox.rows[changed].digest]


@on_asyncio
async def test_arguments_that_do_not_fit_are_scrolled_first(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, arguments=LONG)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        assert "more lines" in seat.text
        seen = seat.text
        for _ in range(20):
            await keys(seat, "a")
            seen += seat.text
            if "approve …000001" in seat.text:
                break
            assert "Press a again to" in seat.lines[-2]
        assert all(f"A-{number}" in seen for number in range(60))
        await keys(seat, "y")
        assert len(inbox.decisions) == 1


@on_asyncio
async def test_low_risk_request_needs_no_scrolling(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1, risk="LOW", arguments=LONG)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert len(inbox.decisions) == 1


@on_asyncio
async def test_new_request_moves_no_rows(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = inbox.add(1)
    cluster.heads = {"approvals": 1, "first_expiry": inbox.rows[first].expires_at}
    async with sit() as seat:
        rung: list[None] = []
        monkeypatch.setattr(seat.app, "bell", lambda: rung.append(None))
        await enter(seat)
        await keys(seat, "a")
        inbox.add(0x7F3C, risk="HIGH")
        cluster.heads["approvals"] = 2
        await seat.pass_time(2)
        assert "◆ 2 approvals" in seat.lines[0]
        assert seat.app.title == "(2) cortex"
        assert len(rung) == 1
        cluster.heads |= {"effects": 1, "budgets": 2, "persons": 3, "dead": 4}
        await seat.pass_time(2)
        assert seat.app.title == "(12) cortex", "all that waits for a person"
        assert len(rung) == 1
        assert "approve …000001 refund" in seat.lines[-2]
        assert "…007f3c" not in seat.text
        await keys(seat, "y")
        assert inbox.approved == [first]
        await seat.pass_time(1)
        assert "! HIGH" in seat.text


@on_asyncio
async def test_a_muted_bell_is_silent(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.heads = {"approvals": 1, "first_expiry": None}
    async with sit() as seat:
        rung: list[None] = []
        monkeypatch.setattr(seat.app, "bell", lambda: rung.append(None))
        await enter(seat)
        await keys(seat, "m")
        assert "bell off for an hour" in seat.text
        cluster.heads["approvals"] = 2
        await seat.pass_time(2)
        assert rung == []
        await keys(seat, "m")
        cluster.heads["approvals"] = 3
        await seat.pass_time(2)
        assert len(rung) == 1


@on_asyncio
async def test_requests_of_one_shape_are_decided_together(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    ids = [inbox.add(n, arguments={"customer": f"cus_{n}", "amount": 1}) for n in (1, 2, 3)]
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "space", "space", "space", "b")
        await seat.pass_time(1)
        assert "3 requests, which differ in customer" in seat.text
        assert all(f'"cus_{number}"' in seat.text for number in (1, 2, 3))
        await keys(seat, "a")
        assert "approve 3 times refund" in seat.lines[-2]
        await keys(seat, "y")
        assert inbox.approved == ids


@on_asyncio
async def test_a_batch_is_decided_as_a_whole_or_not_at_all(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    ids = [inbox.add(number) for number in (1, 2)]
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "space", "space", "b")
        await seat.pass_time(1)
        await keys(seat, "a")
        await seat.pass_time(QUIET_S)
        inbox.end(ids[1], "DENIED")
        await seat.press("y")
        assert "already denied by li" in seat.text
        assert inbox.decisions == []


@pytest.mark.parametrize("other", [{"risk": "HIGH"}, {"tool": "send"}, {"arguments": {"x": 1}}])
@on_asyncio
async def test_dissimilar_requests_form_no_batch(
    inbox: FakeApprovals, sit: OpenSession, other: dict[str, object]
) -> None:
    inbox.add(1)
    inbox.add(2, **other)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "space", "space", "b")
        await seat.pass_time(1)
        assert "✗ approval" in seat.lines[-2]
        assert "batch" not in seat.lines[2].lower()


@on_asyncio
async def test_the_tabs_are_mine_all_decided(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1)
    inbox.add(2, risk="CRITICAL", people=2, is_own=True)
    inbox.end(inbox.add(3), "EXPIRED", by=None)
    async with sit() as seat:
        await enter(seat)
        assert "[mine 1] ·  all 2  ·  decided" in seat.text
        await keys(seat, "tab", "tab")
        await seat.pass_time(1)
        assert "⊘ expired" in seat.text
        await keys(seat, "a")
        assert inbox.asked.count("decide") == 0


@on_asyncio
async def test_arguments_are_read_only_for_the_request_in_front(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in range(1, 30):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        await seat.pass_time(10)
        assert inbox.asked.count("show") == 1
        assert inbox.asked.count("arguments") == 1
        assert inbox.asked.count("waiting") > 5


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@on_asyncio
async def test_hostile_text_leaves_the_inbox_intact(
    inbox: FakeApprovals, sit: OpenSession, size: tuple[int, int]
) -> None:
    text = "".join(HOSTILE) if not isinstance(HOSTILE, str) else HOSTILE
    fields = dict.fromkeys(("tool", "key", "effect", "policy", "said", "agent", "job_type"), text)
    inbox.add(1, risk="LOW", schema=None, arguments={"memo": text, text[:50]: 1}, **fields)
    async with sit(size=size) as seat:
        await enter(seat)
        for key in ("", "i", "a", "escape", "d"):
            if key:
                await keys(seat, key)
            assert len(seat.lines) == size[1]
            assert seat.lines[0].startswith(" cortex local > approvals")
            assert "[mine 1] ·  all 1  ·  decided" in seat.lines[1]
            assert "\x1b" not in seat.text
            assert "\u202e" not in seat.text
            assert seat.app.is_running
        assert inbox.decisions == []


@pytest.mark.parametrize("seed", range(4))
@on_asyncio
async def test_fast_typing_never_decides(inbox: FakeApprovals, sit: OpenSession, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(1, 6):
        inbox.add(number, risk=rng.choice(["LOW", "MED", "HIGH"]))
    async with sit() as seat:
        await enter(seat)
        for _ in range(120):
            seat.clock.move(rng.uniform(0, 0.39))
            await seat.press(rng.choice([*"aaayyyd1jkn0003", "escape", "enter"]))
            if seat.app.screen.__class__.__name__ != "ApprovalsScreen":
                await seat.press("3")
        assert inbox.decisions == []


@on_asyncio
async def test_opening_the_job_that_asks(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    job_id = cluster.add(5)
    inbox.add(1, job_id=job_id)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await keys(seat, "escape", "o")
        await seat.pass_time(1)
        assert "…000005" in seat.lines[0]
        assert isinstance(job_id, UUID)


@on_asyncio
async def test_open_tab_is_marked_with_brackets(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(1)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        for shown in ("[mine 1] ·  all 1  ·  decided", " mine 1  · [all 1] ·  decided"):
            assert shown in seat.lines[1]
            await seat.press("tab")
            await seat.pass_time(1)
        assert "[decided]" in seat.lines[1]
