"""The effects screen: what became of an unknown effect, the freeze of all, and quotas."""

from decimal import Decimal
from uuid import UUID

import pytest

from cortex.domain.effect import Resolution
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession

WIDE = (200, 50)


@on_asyncio
async def test_unknown_effects_come_first_with_all_that_is_known(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    effects = cluster.effects
    effects.add(9, status="COMPLETED", tool="mail", why=None)
    old = effects.add(1)
    effects.add(2, tool="refund")
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(3)
        tools = [line.split()[2] for line in seat.lines if "…0000" in line and "unknown" in line]
        assert tools[:1] == ["refund"]
        text = seat.text
        assert text.index("refund") < text.index("mail")
        await seat.press("j")
        await seat.pass_time(1)
        for known in (
            "its pod died during the call",
            str(old),
            "12.5",
            "once",
            "attempt 2 has it",
            "cannot be asked",
            "refund-bot v3",
            "? effect",
        ):
            assert known in seat.text, known


@on_asyncio
async def test_earlier_resolution_does_not_explain_a_new_doubt(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    said = {"resolution": "not-applied", "resolved_by": "li", "resolved_reason": "seen"}
    cluster.effects.add(1, calls_count=2, **said)
    cluster.effects.add(2, status="COMPLETED", **said | {"resolution": "applied"})
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(3)
        unknown = next(line for line in seat.lines if "…000001" in line)
        assert "its pod died during the call" in unknown
        assert "by li" not in unknown
        assert "applied, by li" in seat.text


@pytest.mark.parametrize(
    "digit, said",
    [("1", Resolution.APPLIED), ("2", Resolution.NOT_APPLIED), ("3", Resolution.GIVE_UP)],
)
@on_asyncio
async def test_person_resolves_an_effect_with_a_reason(
    cluster: FakeBackend, sit: OpenSession, digit: str, said: Resolution
) -> None:
    effect_id = cluster.effects.add(1)
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(1)
        await seat.press("R", "y", "enter")
        assert "1 applied  2 not applied  3 give up" in seat.lines[-2]
        await seat.press(digit, "enter")
        assert cluster.effects.acted == [], "a reason is required"
        await seat.press(*"seen there", "enter")
        await seat.pass_time(1)
        assert cluster.effects.acted == []
        await seat.press("y")
        assert cluster.effects.acted == [("resolve", effect_id, said, "ana", "seen there")]
        assert f"{said.value}: its job goes on now" in seat.lines[-2]
        await seat.press("@")
        command = f"cortex effects resolve {effect_id} {said.value} --reason 'seen there' --yes"
        assert command in seat.text


@on_asyncio
async def test_late_resolution_shows_the_first_person(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    effect_id = cluster.effects.add(1)
    first = {"status": "COMPLETED", "resolution": "applied", "resolved_by": "li"}
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(1)
        await seat.press("R", "2", *"not there", "enter")
        await seat.pass_time(1)
        cluster.effects.change(effect_id, **first)
        await seat.press("y")
        assert "li has said that already: applied" in seat.lines[-2]
        assert cluster.effects.acted == []


@on_asyncio
async def test_resolution_by_others_is_found_before_the_question(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    effect_id = cluster.effects.add(1)
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(1)
        said = {"status": "ABANDONED", "resolution": "give-up", "resolved_by": "li"}
        cluster.effects.change(effect_id, **said)
        await seat.press("R")
        assert "li has said that already: give-up" in seat.lines[-2]


@on_asyncio
async def test_read_only_mode_changes_no_effects(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.effects.add(1)
    cluster.effects.add_quota("pay", 5)
    async with sit(first="effects", size=WIDE, is_read_only=True) as seat:
        await seat.pass_time(3)
        for keys in (("R",), ("F",), ("tab", "L"), ("X",)):
            await seat.press(*keys)
            assert "read-only" in seat.lines[-2], keys
        assert cluster.effects.acted == []


@on_asyncio
async def test_effects_are_frozen_and_begin_again(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.effects.add(1)
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(3)
        assert "effects may begin" in seat.text
        await seat.press("F", *"bad mails", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        await seat.pass_time(3)
        assert "✗ effects are frozen" in seat.text
        assert "by ana: bad mails" in seat.text
        await seat.press("F", *"mended", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        assert cluster.effects.acted == [
            ("freeze", "ana", "bad mails"),
            ("unfreeze", "ana", "mended"),
        ]
        await seat.press("@")
        assert "cortex freeze on --reason 'bad mails' --as ana" in seat.text
        assert "cortex freeze off --reason mended --yes --as ana" in seat.text


@on_asyncio
async def test_a_quota_gets_another_limit_and_is_removed(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    name = cluster.effects.add_quota("pay", 5, used=Decimal(5), waiting_jobs=3)
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(6)
        assert "5 calls" in seat.text
        await seat.press("tab", "L", *"2.5", "enter")
        assert "not a whole number of calls" in seat.lines[-2]
        await seat.press("backspace", "backspace", "0", "enter", *"a big day", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        assert cluster.effects.acted == [("set_quota", name, Decimal(20), "ana", "a big day")]
        await seat.pass_time(6)
        await seat.press("X", *"done", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        assert cluster.effects.acted[1:] == [("remove_quota", name, "ana", "done")]
        await seat.press("@")
        assert "cortex quotas set pay --limit 20 --per day --reason 'a big day'" in seat.text
        assert f"cortex quotas rm {name} --reason done --yes" in seat.text


@on_asyncio
async def test_one_key_leads_from_a_job_to_its_effect(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(2, 300):
        cluster.effects.add(number)
    effect_id = cluster.effects.add(1, tool="refund")
    awaited = {
        "kind": "effect",
        "id": str(effect_id),
        "tool": "refund",
        "status": "UNKNOWN",
        "why": None,
    }
    on = {"waiting_on": f"effect:{effect_id}", "awaited": awaited}
    cluster.add(1, status="WAITING_FOR_APPROVAL", **on)
    async with sit(size=WIDE) as seat:
        assert "? effect" in seat.text
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("a")
        await seat.pass_time(1)
        assert "> effects" in seat.lines[0]
        assert str(effect_id) in seat.text
        await seat.press("R", "1", *"seen", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        ((_, resolved, *_),) = cluster.effects.acted
        assert resolved == effect_id
        await seat.press("escape")
        assert "> job" in seat.lines[0] or "job …000001" in seat.text


@on_asyncio
async def test_long_effect_list_is_read_page_by_page(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    effects = cluster.effects
    for number in range(1, 501):
        effects.add(number)
    for number in range(1_000, 1_200):
        effects.add(number, status="COMPLETED", why=None)
    async with sit(first="effects", size=WIDE) as seat:
        await seat.pass_time(3)
        for _ in range(40):
            await seat.press("G")
            await seat.pass_time(1)
        assert UUID(int=1).hex[-6:] in seat.text or "applied" in seat.text
        before = len(effects.asked)
        await seat.pass_time(10)
        assert len(effects.asked) - before <= 40
