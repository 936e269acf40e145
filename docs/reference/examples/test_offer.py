import time
from pathlib import Path

import pytest
from bank import pay, settle
from offer import offer
from orders import collect

from cortex import Context, job
from cortex.testing import Cortex, PromiseBrokenError, Run, StuckError, agent

CLERK = "{name: clerk, model: claude-sonnet-5, system: You pay customers., tools: [pay]}"


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bank").mkdir()
    monkeypatch.chdir(tmp_path)


def is_published(run: Run[str]) -> bool:
    return run.result == "published" and run.steps == ["publish"]


async def test_approved_offer_is_published(cortex: Cortex) -> None:
    cortex.approve("publish", by="ann")
    run = await cortex.run(offer, text="Half price")
    assert is_published(run)
    run.replays()


def test_denied_offer_says_why(cortex: Cortex) -> None:
    cortex.deny("publish", reason="too cheap", by="ann")
    assert cortex.run_sync(offer, text="Half price").result == "denied by ann: too cheap"


def test_offer_waits_for_people(cortex: Cortex) -> None:
    with pytest.raises(StuckError, match="waits for approval 'publish'"):
        cortex.run_sync(offer, text="Half price")


def test_order_is_paid_or_not(cortex: Cortex) -> None:
    assert cortex.run_sync(collect, number=7).result == "never paid"
    cortex.signal("payment", {"cents": 350}, key="order-7", after_s=86_400)
    assert cortex.run_sync(collect, number=7).result == "350 cents"


async def test_payment_survives_crashes(cortex: Cortex) -> None:
    assert await cortex.crash_everywhere(settle, customer="Ada", euros=3.5) > 5


def test_time_belongs_into_a_step(cortex: Cortex) -> None:
    @job
    async def hasty(ctx: Context) -> float:
        return time.time()

    with pytest.raises(PromiseBrokenError, match="killed before its first step"):
        cortex.crash_everywhere_sync(hasty)


def test_clerk_pays(cortex: Cortex, tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    file.write_text(CLERK)
    payment = {"customer": "Ada", "euros": 3.5}
    cortex.model.script([{"tool": "pay", "input": payment}, "It is paid."])
    cortex.approve_all()
    run = cortex.run_sync(agent(file, tools=[pay]), prompt="Pay Ada 3.50 euros.")
    assert run.result.text == "It is paid."
    assert [each.arguments for each in run.effects] == [payment]
