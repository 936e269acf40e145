"""A decision of a job in its own process, which must be on record before what follows it."""

from typing import Any, cast

import pytest
import trio

from cortex.domain.control_flow import LeaseLost
from cortex.durable.journal import Journal
from cortex.runtime.isolation.runner import AHEAD_S, _Steps
from cortex.runtime.isolation.wire import Channel
from tests.support.records.factories import a_lease


class SlowLine:
    """A pod whose answer takes a while, as in an outage of the database."""

    def __init__(self, answers_after_s: float) -> None:
        self.calls: list[str] = []
        self._answers_after_s = answers_after_s

    async def call(self, what: str, /, **given: Any) -> None:
        with trio.move_on_after(self._answers_after_s):
            await trio.sleep_forever()
        assert given["is_ahead"]
        self.calls.append(what)


def a_journal(line: SlowLine) -> Journal:
    journal = Journal(a_lease(), _Steps(cast("Channel", line)))
    assert journal.patched("new way")
    return journal


async def test_a_decision_waits_for_the_end_of_an_outage(autojump_clock: object) -> None:
    line = SlowLine(3_600)
    await a_journal(line).send_patches()
    assert line.calls == ["record"]


@pytest.mark.parametrize("answers_after_s", [AHEAD_S, 3_600])
async def test_a_cancelled_decision_is_sent_soon_or_kept(
    autojump_clock: object, answers_after_s: float
) -> None:
    line = SlowLine(answers_after_s)
    journal, began = a_journal(line), trio.current_time()
    with trio.move_on_after(1) as scope:
        await journal.send_patches()
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert trio.current_time() - began <= 1 + AHEAD_S
    await journal.send_patches()
    assert line.calls == ["record"]


class LostLine(SlowLine):
    async def call(self, what: str, /, **given: Any) -> None:
        await super().call(what, **given)
        raise LeaseLost("taken over")


async def test_a_lost_lease_is_raised_as_it_is(autojump_clock: object) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        await a_journal(LostLine(1)).send_patches()
