"""The end of the app: what still runs is settled, and the operator decides about the pod."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from textual.app import App

from cortex.domain.safe import safe
from cortex_tui.app_context import AppContext
from cortex_tui.beside import PodBeside
from cortex_tui.key_table import shown
from cortex_tui.model.question import Choice
from cortex_tui.navigation import Navigation
from cortex_tui.screens.frame import Frame

DRAIN: Final = "d"
LEAVING: Final = {"k": "keep running", DRAIN: "drain and stop"}
"""What can become of the pod in this terminal, by key."""
SETTLE_S: Final = 5.0
"""For running actions when the operator quits: a statement has three."""

T = TypeVar("T")


class Quitting:
    """Quits once, and reports the end of the pod in this terminal."""

    def __init__(
        self,
        app: App[Any],
        context: AppContext,
        navigation: Navigation,
        *,
        drop_typed: Callable[[], None],
    ) -> None:
        """`drop_typed` drops the keys typed during the wait for running actions."""
        self._app, self._context, self._navigation = app, context, navigation
        self._drop_typed = drop_typed
        self.parting: list[str] = []
        """Lines for the shell about actions that ended while the operator quit."""
        self.is_ended = asyncio.Event()
        """`exit` was called: by a key, a signal, or because the terminal is gone."""
        self._is_leaving = self._has_reported_end = False

    async def quit(self) -> None:
        """Quit, after asking what should become of the pod in this terminal.

        First it waits for running actions and sends a decision that could still be undone. If any
        of that fails, the app stays open.
        """
        self._context.recall.send()
        ended = await self._unless_ended(self._context.actions.settle(within_s=SETTLE_S))
        if ended is None:
            return  # a signal cannot wait that long: the caller of the app settles the rest
        if ended:
            self._drop_typed()
        outcomes = [each.outcome for each in ended]
        if not all(each.is_done for each in ended) and not self.is_ended.is_set():
            if (frame := self._navigation.frame) is not None:
                frame.strip.show("; ".join(outcomes), "warn", is_outcome=True)
            return
        self.parting = outcomes
        if self.is_ended.is_set():
            return
        pod, frame = self._context.session.pod, self._navigation.frame
        if pod is None or pod.ended() is not None or frame is None or not frame.strip.is_seen:
            self._app.exit()  # nobody to ask: the pod keeps running
        else:
            self._ask(pod, frame)

    def _ask(self, pod: PodBeside, frame: Frame) -> None:
        question = Choice(f"Quit. Pod {safe(pod.name)}", LEAVING)

        def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
            self._is_leaving = False
            if is_agreed and question.chosen == DRAIN:
                pod.drain()
            if is_agreed:
                self._app.exit()

        self._is_leaving = True
        frame.strip.ask(question, answered)

    def watch_pod(self) -> None:
        """Report once that the pod has ended, and withdraw the question about it."""
        pod, frame = self._context.session.pod, self._navigation.frame
        ended = None if pod is None else pod.ended()
        if pod is None or ended is None or frame is None or self._has_reported_end:
            return
        self._has_reported_end = True
        log_key = shown(self._context.keys.named("log").keys[0])
        report = safe(f"✗ pod {pod.name} {ended} · {log_key} shows where its log is")
        if self._is_leaving:
            frame.strip.withdraw(report)
        frame.strip.show(report, "fail")

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something; return None early when the app is asked to end."""
        task, ended = asyncio.create_task(work), asyncio.create_task(self.is_ended.wait())
        try:
            await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            ended.cancel()
