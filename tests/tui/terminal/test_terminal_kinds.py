"""`cortex tui` on terminals of many kinds and sizes, and how soon it is there."""

import re
import signal
import sys
import time
from itertools import pairwise
from random import Random

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.pty_screen import PtyScreen
from tests.support.records.rows import seeded_random
from tests.support.terminal.tui_terminal import on_jobs, on_screen, shows, visit_all

PAINT_S, ROWS_S = 1.0, 1.5
"""The bars of the first paint and of the first live rows."""
SLOWER = 20
"""A loaded machine takes longer; one that reads the record before it paints, longer still."""
STORM = 150
COLOURS = re.compile(rb"\x1b\[([0-9;]*)m")


@pytest.fixture
def busy(life: Life) -> Life:
    """Some of everything that screens have signs for."""
    life.type()
    life.agent()
    life.failed("boom")
    life.job()
    pod = life.pod()
    claim = life.claim(pod)
    life.step(pod, claim, 1, "fetch")
    return life


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    "env",
    [{"LC_ALL": "POSIX"}, {"TERM": "linux"}],
    ids=["LC_ALL=POSIX", "TERM=linux"],
)
def test_terminal_without_unicode_gets_ascii(cortex: Cortex, env: dict[str, str]) -> None:
    with on_jobs(cortex, env=env) as screen:
        screen.until(lambda text: "x fail" in text and "> run" in text, what="the jobs")
        screen.type("\r")
        screen.until(lambda text: "fetch" in text or "attempt" in text, what="one job")
        visit_all(screen)
        screen.type("q")
        assert screen.end() == 0
        assert screen.written.isascii()


@pytest.mark.usefixtures("busy")
def test_without_colours_no_screen_has_any(cortex: Cortex) -> None:
    with on_jobs(cortex, env={"NO_COLOR": "1"}) as screen:
        screen.until(lambda text: "✗ fail" in text, what="the jobs")
        visit_all(screen)
        screen.type("q")
        assert screen.end() == 0
        codes = {code for codes in COLOURS.findall(screen.written) for code in codes.split(b";")}
        assert codes <= {b"", b"0", b"1", b"2", b"7", b"39", b"49"}


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    "term,written",
    [("screen", rb"[34]\d"), ("tmux-256color", rb"[34]8;5;\d+|[34]9")],
)
def test_app_writes_only_colours_of_the_terminal(cortex: Cortex, term: str, written: bytes) -> None:
    """Only the first eight of sixteen, which each terminal makes readable on its own background."""
    with on_jobs(cortex, env={"TERM": term, "COLORTERM": ""}) as screen:
        screen.until(lambda text: "✗ fail" in text, what="the jobs")
        visit_all(screen)
        screen.type("q")
        assert screen.end() == 0
        one = rb"(?:[0-57]|2[2-7]|" + written + rb")?"
        strange = {
            codes
            for codes in COLOURS.findall(screen.written)
            if not re.fullmatch(rb"(?:" + one + rb";)*" + one, codes)
        }
        assert strange == set()


@pytest.mark.parametrize("env, has_mouse", [({}, True), ({"STY": "1.pts-0.vm"}, False)])
def test_gnu_screen_gets_no_mouse_request(
    cortex: Cortex, env: dict[str, str], has_mouse: bool
) -> None:
    with on_screen(cortex, env=env) as screen:
        screen.until(shows("LIVE"), what="the first screen")
        assert (b"\x1b[?1000h" in screen.written) == has_mouse
        screen.type("q")
        assert screen.end() == 0


@pytest.mark.usefixtures("busy")
def test_small_terminal_shows_a_note_and_accepts_no_answer(cortex: Cortex, life: Life) -> None:
    with on_jobs(cortex, size=(80, 24)) as screen:
        screen.until(lambda text: "✗ fail" in text, what="the jobs")
        screen.resize(50, 10)
        screen.until(lambda text: "50 by 10 is too small: at least 60 by 15" in text, what="why")
        screen.type("jKy")
        screen.resize(80, 24)
        output = screen.until(lambda text: "✗ fail" in text and "nothing" in text, what="all again")
        assert "is too small" not in output
        screen.resize(59, 14)
        screen.until(lambda text: "59 by 14 is too small" in text, what="why again")
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found
    assert life.sql("SELECT FROM cortex.job WHERE cancel_requested_at IS NOT NULL") == []


@pytest.mark.usefixtures("busy")
def test_a_storm_of_sizes_leaves_a_screen_that_is_whole(cortex: Cortex) -> None:
    rng = seeded_random()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "✗ fail" in text, what="the jobs")
        for size in _sizes(rng):
            screen.resize(*size)
            if not rng.randrange(10):
                screen.type(rng.choice("123456jk"))
        screen.resize(100, 30)
        screen.type("2")
        screen.until(lambda _: _is_whole(screen), what="the whole screen")
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found


def _sizes(rng: Random) -> list[tuple[int, int]]:
    return [(rng.randint(1, 250), rng.randint(1, 80)) for _ in range(STORM)]


def _is_whole(screen: PtyScreen) -> bool:
    first, *_, last = screen.lines
    return (
        first.startswith(" cortex ")
        and "> jobs" in first
        and first.endswith("ms")
        and len(first) == 99
        and "all keys" in last
        and sum("all keys" in line for line in screen.lines) == 1
        and sum("✗ fail" in line for line in screen.lines) == 1
    )


@pytest.mark.usefixtures("busy")
def test_first_paint_and_first_rows_appear_in_time(cortex: Cortex) -> None:
    """The figures are printed; on a machine that does nothing else they are below the bars."""
    seen_s = []
    began = time.monotonic()
    with on_screen(cortex, is_forked=False) as screen:
        for what, shown in (("paint", "> pulse"), ("live rows", "LIVE")):
            screen.until(shows(shown), what=what)
            seen_s.append(time.monotonic() - began)
            sys.stdout.write(f"first {what} after {seen_s[-1]:.2f} s\n")
        screen.send(signal.SIGTERM)
        assert screen.end() == 128 + signal.SIGTERM
    assert seen_s[0] < SLOWER * PAINT_S
    assert seen_s[1] < SLOWER * ROWS_S
    assert all(one <= other for one, other in pairwise(seen_s))
