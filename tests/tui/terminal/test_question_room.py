"""A question is readable in whole, however small the window and however long the reason."""

from collections.abc import Callable
from typing import Final

import attrs
import pytest

from cortex.domain.bulk import LIMIT_MAX
from cortex_tui.render.question_lines import LINES_MAX, closed_lines, question_lines
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.tui.conftest import OpenSession

REASON = "because the provider was down all night and nobody knew"
QUIET_S = 0.5


def many_jobs(cluster: FakeBackend) -> None:
    for number in range(1, LIMIT_MAX + 10):
        cluster.add(number)


def a_request(cluster: FakeBackend) -> None:
    cluster.approvals.add(1, risk="MED")


def a_breaker(cluster: FakeBackend) -> None:
    cluster.breakers.add("llm:provider-with-a-long-name")


def a_letter(cluster: FakeBackend) -> None:
    cluster.dead.add(1, error_message="the model said something that is long. " * 40)


def asked(seat: Seat) -> str:
    """Return the question as one text, whatever lines it is on."""
    first = next(index for index, line in enumerate(seat.lines) if line.startswith("▌"))
    at = [line for line in seat.lines[first:-1] if line.startswith("▌")]
    return " ".join(" ".join(line.removeprefix("▌") for line in at).split())


@attrs.frozen
class Asking:
    """Keys that raise a question, and the text that must be readable then."""

    fill: Callable[[FakeBackend], None]
    first: str
    keys: tuple[str, ...]
    messages: tuple[str, ...]


ASKING: Final = {
    "bulk": Asking(
        many_jobs,
        "jobs",
        ("asterisk", "K", *REASON, "enter"),
        ("cancel the newest 10,000 jobs, more fit?", "type 10000", "esc no"),
    ),
    "denial": Asking(
        a_request,
        "approvals",
        ("d", *REASON),
        ("deny …000001 refund?", "nobody knew▏", "enter denies", "esc no"),
    ),
    "hold": Asking(
        a_breaker,
        "breakers",
        ("O",),
        ("open llm:provider-with-a-long-name: jobs wait?", "for: 30m▏", "tab", "esc no"),
    ),
    "held": Asking(
        a_breaker,
        "breakers",
        ("O", "enter", *REASON, "enter"),
        ("open llm:provider-with-a-long-name: jobs wait for 30m?", "y yes", "esc no"),
    ),
    "letters": Asking(
        a_letter,
        "dead",
        ("X", *REASON, "enter"),
        ("discard 1 · overloaded: the model said", "…?", "y yes", "esc no"),
    ),
}


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
@on_asyncio
async def test_question_is_shown_in_full_at_every_size(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int], asking: Asking
) -> None:
    asking.fill(cluster)
    async with sit(first=asking.first, size=size) as seat:
        await seat.pass_time(2)
        for key in asking.keys:
            await seat.press(key)
            await seat.pass_time(QUIET_S if key == "d" else 0)
        for words in asking.messages:
            assert words in asked(seat)
        assert len(seat.lines) == size[1]
        await seat.press("escape")
        assert "nothing was done" in seat.lines[-2]
        assert not seat.lines[-3].startswith("▌")


@on_asyncio
async def test_question_without_room_is_not_asked(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, agent="very-long-name-of-a-bot " * 20)
    async with sit(size=(60, 15)) as seat:
        await seat.press("K")
        assert "the question has no room here" in seat.lines[-2]
        await seat.press("y", "escape")
        assert cluster.acted == []
        await seat.pilot.resize_terminal(200, 40)
        await seat.settle()
        await seat.press("K")
        assert "○ pend?" in asked(seat)
        await seat.pilot.resize_terminal(60, 15)
        await seat.settle()
        assert "the question has no room here" in seat.lines[-2]
        await seat.press("y")
        assert cluster.acted == []


@pytest.mark.parametrize("width", range(20, 90))
def test_wrapped_question_keeps_every_word(width: int) -> None:
    text, how = "cancel the newest 10,000 jobs, more fit", '  "it was"  type 10000: 1____   esc no '
    lines = question_lines(text, how, width)
    if lines is None:
        assert width * LINES_MAX < 2 * len(text + how)
        return
    assert len(lines) <= LINES_MAX
    assert " ".join(each for line in lines for each in line).split() == f"{text}? {how}".split()


def test_a_closed_question_without_room_shows_its_first_words() -> None:
    ((shown, how),) = closed_lines("cancel " + "a-long-name " * 60, "  esc continue ", 60)
    assert shown.startswith("cancel a-long-name")
    assert shown.rstrip().endswith("…")
    assert (len(shown), how) == (45, "  esc continue ")
    ((shown, how),) = closed_lines("cancel " * 60, "  esc continue ", 10)
    assert (shown, how) == ("cancel ca…", "")
