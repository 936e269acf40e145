"""The terminal restarts after a SIGSTOP that it could not notice, while somebody types."""

import asyncio
import os
import pty
import select
import signal
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from textual import events
from textual.app import App

from cortex_tui.ending import OF_THE_SCREEN
from cortex_tui.terminal import Terminal
from tests.support.eventually import WITHIN_S

ARRIVAL_S: Final = 1.0
"""Only keys that a shell's modes swallow take that long."""
BETWEEN_READERS: Final = b"ab"
BETWEEN_WRITERS: Final = b"c\x1ad"


class Typed(Terminal):
    """Somebody types after the old reader has ended, and after the old writer has."""

    keyboard: int
    left: dict[str, bytes]

    def _run_input_thread(self) -> None:
        super()._run_input_thread()
        self._type("readers")

    def close(self) -> None:
        super().close()
        self._type("writers")

    def _type(self, between: str) -> None:
        if typed := self.left.pop(between, b""):
            os.write(self.keyboard, typed)
            select.select([self.fileno], [], [], ARRIVAL_S)


class Keys(App[None]):
    """Collects keys, and notices that it was resumed."""

    def __init__(self) -> None:
        super().__init__(driver_class=Typed)
        self.pressed: asyncio.Queue[str] = asyncio.Queue()
        self.resumed = asyncio.Event()

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _: self.resumed.set(), immediate=True)

    def on_key(self, event: events.Key) -> None:
        self.pressed.put_nowait(event.key)


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """This process's terminal, as long as the test runs: returns the side where one types."""
    before = {number: signal.getsignal(number) for number in OF_THE_SCREEN}
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin, os.fdopen(os.dup(slave), "w") as out:
        monkeypatch.setattr(sys, "__stdin__", stdin)
        monkeypatch.setattr(sys, "__stdout__", out)
        yield master
        os.close(master)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_keys_typed_during_a_restart_are_kept_in_order(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: dict[str, bytes] = {}
    monkeypatch.setattr(Typed, "keyboard", keyboard, raising=False)
    monkeypatch.setattr(Typed, "left", left, raising=False)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        pressed = runner.run(type_around_a_restart(keyboard, left))
    assert pressed == ["a", "b", "c", "ctrl+z", "d", "2"]


async def type_around_a_restart(keyboard: int, left: dict[str, bytes]) -> list[str]:
    """Return the keys from the restart on."""
    app = Keys()
    async with asyncio.timeout(WITHIN_S):
        running = asyncio.create_task(app.run_async())
        os.write(keyboard, b"1")
        assert await app.pressed.get() == "1"
        left |= {"readers": BETWEEN_READERS, "writers": BETWEEN_WRITERS}
        os.kill(os.getpid(), signal.SIGCONT)
        await app.resumed.wait()
        assert left == {}, "it restarted"
        os.write(keyboard, b"2")
        pressed: list[str] = []
        while pressed[-1:] != ["2"]:
            pressed.append(await app.pressed.get())
        app.exit()
        await running
    return pressed
