"""The faults of a plan: each at its time, logged from its beginning to its end."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen

from chaos import schedule
from chaos.history import Event, History
from chaos.nemeses.lines import BUSY
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.target import NO_TARGET
from tests.support.servers.postgres import run_asyncio

HIT: dict[str, Any] = {"pod": "p1", "windows": []}
GONE: dict[str, Any] = {"missed": "it was gone already", "windows": []}


@frozen
class Stage:
    """The parts of a stage that these tests use."""

    history: History


@define
class Scripted:
    """A nemesis that meets a given list of outcomes, one after the other."""

    meets: list[dict[str, Any] | Exception]
    name: str = "scripted"
    fault: str = "F0"
    weight: int = 1
    tries: int = field(default=0, init=False)

    def draw(self, _: random.Random) -> tuple[float, dict[str, Any]]:
        return 0.0, {}

    async def inject(self, _stage: object, _fault: Fault) -> dict[str, Any]:
        met = self.meets[min(self.tries, len(self.meets) - 1)]
        self.tries += 1
        if isinstance(met, Exception):
            raise met
        return met


class Endless(Scripted):
    """A nemesis that lasts until it is healed."""

    is_healed = False

    async def inject(self, _stage: object, _fault: Fault) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            self.is_healed = True
        return HIT


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(schedule, "AGAIN_S", 0.01)
    monkeypatch.setattr(schedule, "LINGER_S", 0.2)
    history = History(tmp_path / "history.jsonl")
    yield Stage(history)
    history.close()


def inject(stage: Any, nemesis: Scripted) -> list[Event]:
    fault = Fault(number=3, at_s=0.05, nemesis="scripted", for_s=0.0, detail={"place": 1})
    run_asyncio(lambda: schedule.inject_all(stage, [fault], {"scripted": nemesis}))
    output: list[Event] = stage.history.events
    return output


@pytest.mark.parametrize("nobody", [NO_TARGET, BUSY])
def test_fault_without_a_target_retries_for_a_while(stage: Any, nobody: dict[str, Any]) -> None:
    begun, healed = inject(stage, Scripted([nobody, nobody, HIT]))
    assert begun.at_s >= 0.05
    assert (begun.type, begun.value["detail"]) == ("invoke", {"place": 1})
    assert healed.value == {"number": 3, "nemesis": "scripted", **HIT}


@pytest.mark.parametrize(
    "met, tries, output",
    [
        (NO_TARGET, schedule.TRIES, "no living pod"),
        (GONE, 1, "it was gone already"),
        (ProcessLookupError("no such process"), 1, "no such process"),
    ],
)
def test_fault_that_found_no_target_reports_a_miss(
    stage: Any, met: dict[str, Any] | Exception, tries: int, output: str
) -> None:
    nemesis = Scripted([met])
    _, healed = inject(stage, nemesis)
    assert nemesis.tries == tries
    assert output in healed.value["missed"]
    assert healed.value["windows"] == []


def test_endless_fault_is_healed(stage: Any) -> None:
    nemesis = Endless([])
    assert [event.type for event in inject(stage, nemesis)] == ["invoke"]
    assert nemesis.is_healed
