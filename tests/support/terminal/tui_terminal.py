"""`cortex tui` as a process on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.command_line import Cortex
from tests.support.pty_screen import PtyScreen

TUI: Final = [sys.executable, "-m", "cortex", "tui", "--as", "ana"]
SCREENS: Final = {
    "1": "> pulse",
    "2": "> jobs",
    "3": "> approvals",
    "4": "> pods",
    "5": "> dead",
    "6": "> breakers",
    "@": "> log",
    "?": "> keys",
}
"""What each key shows in the top bar."""


def on_screen(
    cortex: Cortex, *more: str, env: dict[str, str] | None = None, **terminal: Any
) -> PtyScreen:
    """Start it; `terminal`: of what kind, see `PtyScreen`."""
    return PtyScreen([*TUI, *more], folder=cortex.folder, env=cortex.environ(env), **terminal)


@contextmanager
def on_jobs(
    cortex: Cortex, *more: str, env: dict[str, str] | None = None, **terminal: Any
) -> Iterator[PtyScreen]:
    """Go from the first screen to the jobs."""
    with on_screen(cortex, *more, env=env, **terminal) as screen:
        screen.until(lambda text: "> pulse" in text, what="the first screen")
        screen.type("2")
        screen.until(lambda text: "> jobs" in text, what="the jobs")
        yield screen


def visit_all(screen: PtyScreen) -> None:
    """Look at each screen, until it has been read."""
    for key, shown in SCREENS.items():
        screen.type(key)
        screen.until(shows(shown), what=shown)


def shows(*words: str) -> Callable[[str], bool]:
    """Return whether all these words are on the screen, and nothing is still being read."""
    return lambda text: "reading" not in text and all(each in text for each in words)
