"""The streams of `test_guard` through the whole app: its inbox, its questions, its workers.

What is legitimate is judged by the stream alone, as there. `CORTEX_FUZZ_APP_STREAMS=3000` runs so
many; the default is what a gate has time for.
"""

import os
import random
from typing import Final

import pytest

from cortex_tui.model.verdict import Guard
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio, pressed, turns
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession
from tests.tui.test_guard import IDS, NoAbsorbing, NoSilence, Press, a_stream, accidents

STREAMS: Final = int(os.environ.get("CORTEX_FUZZ_APP_STREAMS", "20"))
MANY: Final = 200
"""Among this many streams some hold the full sequence."""
LEAVES: Final = "q"
LOOKS: Final = 5
"""Until all that is in front was read."""
WAITING: Final = 6
"""Requests that are there when a stream begins."""
TURNS: Final = 40
"""Turns of the loop that a key and what follows from it need; nothing is painted meanwhile."""


class Inbox:
    """Requests with the ids that the streams try to type."""

    def __init__(self, approvals: FakeApprovals, rng: random.Random) -> None:
        self._approvals, self._rng = approvals, rng
        self._number = 0

    def refill(self) -> None:
        """Let there be enough requests, of each risk."""
        rows = self._approvals.rows
        for key in [key for key, row in rows.items() if row.status != "PENDING"]:
            del rows[key]
        while len(rows) < WAITING:
            self._number += 1
            ending = int(self._rng.choice(IDS[1:]), 16)
            risk = self._rng.choice(["LOW", "MED", "HIGH"])
            self._approvals.add(self._number << 16 | ending, risk=risk, expires_s=86_400.0)


async def run(seat: Seat, approvals: FakeApprovals, stream: list[Press]) -> list[tuple[int, str]]:
    """Type a stream; return which keys decided, and how."""
    decided: list[tuple[int, str]] = []
    at = 0.0
    for index, (when, key) in enumerate(stream):
        seat.clock.move(when - at)
        at = when
        await turns(TURNS)
        before = len(approvals.decisions)
        seat.app.post_message(pressed(key))
        await turns(TURNS)
        new = approvals.decisions[before:]
        decided += [(index, "approve" if each.is_approved else "deny") for each in new]
    return decided


async def fuzz(
    cluster: FakeBackend, sit: OpenSession, rng: random.Random, count: int
) -> tuple[int, list[str]]:
    """Return how many decisions there were, and the accidents of the first stream that has some."""
    inbox = Inbox(cluster.approvals, rng)
    decisions = 0
    async with sit(first="approvals") as seat:
        for _ in range(count):
            inbox.refill()
            await run(seat, cluster.approvals, [(0.0, "escape"), (0.0, "A")])
            for _ in range(LOOKS):
                seat.clock.move(0.5)
                await turns(TURNS)
            stream = [press for press in a_stream(rng) if press[1] != LEAVES]
            decided = await run(seat, cluster.approvals, stream)
            decisions += len(decided)
            if found := [f"{output}: {stream}" for output in accidents(stream, decided)]:
                return decisions, found
    return decisions, []


@pytest.mark.timeout(1200)
@on_asyncio
async def test_no_stream_decides_by_accident_in_the_app(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed = int(os.environ.get("CORTEX_FUZZ_SEED", "1"))
    decisions, found = await fuzz(cluster, sit, random.Random(seed), STREAMS)
    assert found == [], f"CORTEX_FUZZ_SEED={seed}, {STREAMS} streams"
    assert STREAMS < MANY or decisions, "the full sequence does decide"


@pytest.mark.parametrize("broken", [NoSilence, NoAbsorbing])
@on_asyncio
async def test_a_broken_guard_is_found_in_the_app(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch, broken: type[Guard]
) -> None:
    monkeypatch.setattr("cortex_tui.model.verdict.Guard", broken)
    _, found = await fuzz(cluster, sit, random.Random(15), 60)
    assert found
