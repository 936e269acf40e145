"""The app: its screens and what they share. `run` starts it on a terminal."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
from textual import events, on
from textual.app import SystemCommand
from textual.driver import Driver
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.widgets import Input, TextArea

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.store.operator import Head
from cortex_tui import internals
from cortex_tui.actions import Actions
from cortex_tui.app_context import AppContext
from cortex_tui.backend.protocol import Backend
from cortex_tui.key_table import KeyTable, shown
from cortex_tui.line_filter import SafeFilter
from cortex_tui.model.history import History, Place
from cortex_tui.model.question import Choice
from cortex_tui.palette import BY_COLORS
from cortex_tui.palette_commands import KeyCommands
from cortex_tui.poller import Poller
from cortex_tui.recall import Recall
from cortex_tui.render.words import failed
from cortex_tui.screens import copying
from cortex_tui.screens.approvals import ApprovalsScreen
from cortex_tui.screens.breakers import BreakersScreen
from cortex_tui.screens.bulk_operations import BulkOperationScreen, BulkOperationsScreen
from cortex_tui.screens.dead import DeadLettersScreen, DeadScreen
from cortex_tui.screens.effects import EffectsScreen
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.help import HelpScreen
from cortex_tui.screens.job import JobScreen
from cortex_tui.screens.jobs import JobsScreen
from cortex_tui.screens.log import LogScreen
from cortex_tui.screens.pods import PodsScreen
from cortex_tui.screens.pulse import PulseScreen
from cortex_tui.session import Session
from cortex_tui.terminal import Terminal

SCREENS: Final[Mapping[str, type[Frame]]] = {
    "pulse": PulseScreen,
    "jobs": JobsScreen,
    "approvals": ApprovalsScreen,
    "dead": DeadScreen,
    "pods": PodsScreen,
    "breakers": BreakersScreen,
    "effects": EffectsScreen,
}
"""Base screens, reached by number or name; each keeps its state."""
OPENED: Final[Mapping[str, Callable[..., Frame]]] = {
    "job": JobScreen,
    "jobs": JobsScreen,
    "effects": EffectsScreen,
    "help": HelpScreen,
    "log": LogScreen,
    "letters": DeadLettersScreen,
    "acts": BulkOperationsScreen,
    "act": BulkOperationScreen,
}
"""Screens that open on top of another one, with arguments; esc closes them."""
OPENED_MAX: Final = 20
"""Screens on top of each other; each keeps its content."""
FIRST: Final = "pulse"
DRAIN: Final = "d"
LEAVING: Final = {"k": "keep running", DRAIN: "drain and stop"}
"""What can become of the pod in this terminal, by key."""
SETTLE_S: Final = 5.0
"""For running actions when the operator quits: a statement has three."""
TICK_S: Final = 1.0
"""Countdowns and ages are redrawn each second."""

T = TypeVar("T")


class CortexApp(internals.Orderly[int]):
    """One session. Returns the exit code of the process."""

    CSS = """
    * { scrollbar-size: 1 1; }
    #bottom, #top { background: $panel; }
    CommandPalette SearchIcon { display: none; }
    """
    COMMANDS = {KeyCommands}
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "f24"  # the key table has the real ones
    DEFAULT_MODE = FIRST

    def __init__(
        self,
        session: Session,
        backend: Backend,
        *,
        keys: KeyTable | None = None,
        has_color: bool = True,
        first: str = FIRST,
        driver: type[Driver] | None = None,
    ) -> None:
        """`has_color`: if false, use only the terminal's own two colours. `first`: a screen."""
        self.DEFAULT_MODE = first  # type: ignore[misc]  # Textual reads it here
        super().__init__(driver_class=driver)
        internals.forget_no_color(self)
        self.session = session
        acts = Actions(session, start=self._beside)
        self.desk = AppContext(
            session=session,
            backend=backend,
            keys=keys or KeyTable(),
            acts=acts,
            recall=Recall(session, acts, start=self._beside),
            wake=lambda: self.poller.wake(),  # noqa: PLW0108 -- made below
            open=self.open,
            take_head=self._take_head,
            seek=self.seek,
            arrived=self._arrived,
        )
        self.desk.acts.done = self.desk.wake
        self.poller = Poller(
            session.clock, session.link, head=self._look_at_head, screen=self._look, told=self._told
        )
        self.parting: list[str] = []
        """Lines for the shell about actions that ended while the operator quit."""
        self._history = History()
        self._left_for_inbox: Place | None = None
        """The place before a key led to the inbox: `esc` returns to it."""
        self._is_leaving = self._has_told_end = False
        self._is_ended = asyncio.Event()
        """`exit` was called: by a key, a signal, or because the terminal is gone."""
        self._arriving: Awaitable[object] | None = None
        """A screen that was opened and may not be mounted yet."""
        self._keys_since = float("-inf")
        """By the clock of events; keys typed before are dropped unless a text field is open."""
        self._last_filters: list[LineFilter] = [SafeFilter(is_ascii=session.is_ascii)]
        if not has_color:
            self._last_filters.append(NoColor())
        for name, kind in SCREENS.items():
            self.add_mode(name, partial(kind, self.desk))
        for palette in BY_COLORS[session.colors].values():
            self.register_theme(palette.theme)
        self.theme = self.desk.palette.theme.name

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filter out whatever would control the terminal, from every widget."""
        return [*super().get_line_filters(), *self._last_filters]

    def on_mount(self) -> None:
        self._entitle("cortex")
        self.app_resume_signal.subscribe(self, self._resumed, immediate=True)
        self.run_worker(self.poller.run(), exit_on_error=True)
        self.run_worker(self._tick(), exit_on_error=True)

    def _resumed(self, _: object) -> None:
        self.session.link.resumed(self.session.clock.now())
        if self.frame is not None:
            self.frame.watched()
        self.refresh(layout=True)  # the terminal shows nothing of the app any more

    def _entitle(self, title: str) -> None:
        """Set the window title; Textual does not pass it on."""
        self.title = title
        if isinstance(self._driver, Terminal):
            self._driver.entitle(title)

    def _beside(self, work: Coroutine[Any, Any, None]) -> object:
        return self.run_worker(work, exit_on_error=True)

    # --- what the keys do everywhere

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable all other keys while a question is open."""
        frame = self.frame
        is_asking = frame is not None and frame.strip.is_asking
        return not is_asking and super().check_action(action, parameters)

    async def on_event(self, event: events.Event) -> None:
        """Handle each key only after everything that the previous key started is done.

        Textual passes a key to the focused widget and takes the next one at once: text pasted
        behind a key that opens an input line would still reach the list and run actions.
        """
        if isinstance(event, events.Key) and not event.is_forwarded:
            if not self._is_ended.is_set():  # a screen opened now would have no place
                await self._pressed(event)
        else:
            await super().on_event(event)

    async def _pressed(self, event: events.Key) -> None:
        self.session.key_came_at = self.session.clock.came(internals.waited_s(event))
        if self._arriving is not None:
            arriving, self._arriving = self._arriving, None
            await arriving
            internals.focus_line(self.screen)
        if not self.app_focus:  # this terminal reports only the loss of focus
            self.app_focus = True
            self.on_app_focus()
        frame, field = self.frame, self.focused
        if frame is not None and self.screen is frame:
            frame.take_keys()
            field = self.focused
        if isinstance(field, Input | TextArea):
            await self.write(event, field)
        elif frame is None or self.screen is not frame:
            await super().on_event(event)
        elif frame.strip.is_asking:
            frame.strip.press(event)
        elif event.time > self._keys_since and not frame.strip.keeps(event):
            frame.pressed()
            frame.strip.pressed()
            _ = await internals.press(self, event.key)

    def _forget_keys(self) -> None:
        """Drop all keys typed so far."""
        self._keys_since = internals.event_time()

    async def action_show(self, name: str) -> None:
        """Show a screen as it was left; if it has screens on top, close those."""
        self._left_for_inbox = None
        if name == self.current_mode:
            await self._close_opened()
        else:
            await self.switch_mode(name)

    async def action_most_urgent(self) -> None:
        """Go to the request that expires first."""
        (await self._inbox()).go_first()

    def seek(self, approval_id: UUID) -> None:
        async def go() -> None:
            (await self._inbox()).go_to(approval_id)

        self.call_later(go)

    async def _inbox(self) -> ApprovalsScreen:
        """Show the inbox, closing the screens on top of it."""
        if not isinstance(self.frame, ApprovalsScreen):
            self._left_for_inbox = self._place()
        await self.switch_mode(ApprovalsScreen.NAME)
        await self._close_opened()
        inbox = self.screen
        if not isinstance(inbox, ApprovalsScreen):
            raise TypeError(f"{inbox!r} stands where the inbox should")
        return inbox

    async def _close_opened(self) -> None:
        while len(self.screen_stack) > 1:
            await self.pop_screen()

    def open(self, name: str, *about: object) -> None:
        """Open a screen on top of the current one, unless too many are open."""
        if len(self._stack) > OPENED_MAX and self.frame is not None:
            self.frame.strip.tell(f"{OPENED_MAX} screens are open: close one with esc", "warn")
            return
        frame = OPENED[name](self.desk, *about)
        frame.opened = (name, about)
        self._arriving = self.push_screen(frame)

    def action_help(self) -> None:
        if self.frame is not None and not isinstance(self.frame, HelpScreen):
            self.open("help", self.frame.NAME)

    def action_log_of_commands(self) -> None:
        if not isinstance(self.frame, LogScreen):
            self.open("log")

    async def action_back(self) -> None:
        if self.frame is not None and self.frame.escape():
            return
        left, is_inbox = self._left_for_inbox, self.current_mode == ApprovalsScreen.NAME
        if len(self.screen_stack) > 1:
            await self.pop_screen()
        elif left is not None and is_inbox:
            self._left_for_inbox = None
            await self._go_to(left)

    async def action_history(self, by: str) -> None:
        """Go back or forward in the history of screens."""
        place = self._history.go(int(by))
        if place is not None:
            await self._go_to(place)
        elif self.frame is not None:
            self.frame.strip.tell(f"no {'earlier' if int(by) < 0 else 'later'} screen", "dim")

    async def _go_to(self, place: Place) -> None:
        await self.switch_mode(place.mode)
        opened = [frame.opened for frame in self._frames if frame.opened is not None]
        common = 0
        while common < min(len(opened), len(place.opened)) and (
            opened[common] == place.opened[common]
        ):
            common += 1
        for _ in opened[common:]:
            await self.pop_screen()
        for name, about in place.opened[common:]:
            self.open(name, *about)

    def _arrived(self) -> None:
        """Record the current screen in the history, except the help."""
        frames = self._frames
        if frames and not isinstance(frames[-1], HelpScreen):
            self._history.visit(self._place())

    def _place(self) -> Place:
        opened = (frame.opened for frame in self._frames if frame.opened is not None)
        return Place(self.current_mode, tuple(opened))

    def action_copy(self) -> None:
        if self.frame is not None:
            copying.ask(self, self.frame)

    def action_look_at(self) -> None:
        if self.frame is not None:
            looking = copying.look_at(self, self.frame)
            self.run_worker(looking, group="editor", exclusive=True)

    def action_mute(self) -> None:
        """Mute the bell for an hour, or unmute it."""
        now, bell = self.session.clock.now(), self.desk.bell
        if bell.is_muted(now):
            bell.unmute()
        else:
            bell.mute(now)
        if self.frame is not None:
            is_muted = bell.is_muted(now)
            self.frame.strip.tell("bell off for an hour" if is_muted else "bell on", "dim")
        self._repaint()

    def action_next_theme(self) -> None:
        names = list(BY_COLORS[self.session.colors])
        if len(names) == 1:
            if self.frame is not None:
                self.frame.strip.tell(
                    "this terminal has 16 colours: only its own theme fits", "dim"
                )
            return
        after = (names.index(self.session.theme) + 1) % len(names)
        self.session.theme = names[after]
        self.theme = self.desk.palette.theme.name
        self._repaint()

    def action_command_palette(self) -> None:
        if isinstance(self.screen, Frame):
            palette = internals.Palette(id="--command-palette")
            palette.left = self._forget_keys
            self._arriving = self.push_screen(palette)

    async def action_quit(self) -> None:
        """Quit, after asking what should become of the pod in this terminal.

        First it waits for running actions and sends a decision that could still be undone. If any
        of that fails, the app stays open.
        """
        self.desk.recall.send()
        ended = await self._unless_ended(self.desk.acts.settle(within_s=SETTLE_S))
        if ended is None:
            return  # a signal cannot wait that long: the caller of the app settles the rest
        if ended:
            self._forget_keys()  # keys typed during the wait
        if not all(each.is_done for each in ended) and not self._is_ended.is_set():
            if self.frame is not None:
                told = "; ".join(each.told for each in ended)
                self.frame.strip.tell(told, "warn", is_outcome=True)
            return
        self.parting = [each.told for each in ended]
        if self._is_ended.is_set():
            return
        pod, frame = self.session.pod, self.frame
        if pod is None or pod.ended() is not None or frame is None or not frame.strip.is_seen:
            self.exit()  # nobody to ask: the pod keeps running
            return
        question = Choice(f"Quit. Pod {safe(pod.name)}", LEAVING)

        def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
            self._is_leaving = False
            if is_agreed and question.chosen == DRAIN:
                pod.drain()
            if is_agreed:
                self.exit()

        self._is_leaving = True
        frame.strip.ask(question, answered)

    def exit(self, *args: Any, **options: Any) -> None:
        """End the app; the first call sets the exit code."""
        if not self._is_ended.is_set():
            self._is_ended.set()
            super().exit(*args, **options)

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something; return None early when the app is asked to end."""
        task, ended = asyncio.create_task(work), asyncio.create_task(self._is_ended.wait())
        try:
            await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            ended.cancel()

    @on(Terminal.Stopping)
    async def action_to_shell(self) -> None:
        """Suspend to the shell, after sending a decision that could still be undone."""
        frame, driver = self.frame, self._driver
        with driver.stopping() if isinstance(driver, Terminal) else nullcontext():
            if frame is None or await self.desk.recall.is_clear(frame.strip):
                self.action_suspend_process()

    def action_suspend_process(self) -> None:
        if isinstance(self._driver, Terminal):
            self._driver.may_stop = True
        super().action_suspend_process()

    def _look_at_pod(self) -> None:
        """Report once that the pod has ended, and withdraw the question about it."""
        pod, frame = self.session.pod, self.frame
        ended = None if pod is None else pod.ended()
        if pod is None or ended is None or frame is None or self._has_told_end:
            return
        self._has_told_end = True
        log_key = shown(self.desk.keys.named("log").keys[0])
        told = safe(f"✗ pod {pod.name} {ended} · {log_key} shows where its log is")
        if self._is_leaving:
            frame.strip.withdraw(told)
        frame.strip.tell(told, "fail")

    def action_help_quit(self) -> None:
        """Ctrl-C: an ordinary key, because the app owns the terminal."""
        if self.frame is not None:
            quit_key = self.desk.keys.named("quit").keys[0]
            self.frame.strip.tell(f"press {quit_key} to quit", "dim")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:  # noqa: ARG002 -- Textual's
        """Return none: `KeyCommands` has them all."""
        return ()

    def on_app_focus(self) -> None:
        self.poller.is_watched = True
        self.poller.wake()
        if self.frame is not None:
            self.frame.watched()

    def on_app_blur(self) -> None:
        self.poller.is_watched = False

    # --- polling and painting

    @property
    def frame(self) -> Frame | None:
        """The front screen below a palette; None before there is one."""
        frames = self._frames
        return frames[-1] if frames else None

    @property
    def _frames(self) -> Sequence[Frame]:
        return [each for each in self._stack if isinstance(each, Frame)]

    @property
    def _stack(self) -> Sequence[Screen[Any]]:
        has_one = self.is_running and self._screen_stacks.get(self.DEFAULT_MODE)
        return self.screen_stack if has_one else ()

    async def _look_at_head(self) -> bool:
        return self._take_head(await self.desk.backend.head())

    def _take_head(self, head: Head) -> bool:
        """Store the new head; return whether it shows anything different."""
        self.poller.has_head()
        self.session.tell_time(head.now)
        before, self.desk.head = self.desk.head, head
        if before is None or before.waits != head.waits:
            self._entitle(f"({head.waits}) cortex" if head.waits else "cortex")
        mono = self.session.clock.now()
        if self.desk.bell.rings(head.approvals, head.first_expiry, at=head.now, now=mono):
            self.bell()
        return before is None or attrs.evolve(before, now=head.now) != head

    async def _look(self) -> bool | None:
        return None if self.frame is None else await self.frame.look()

    def _told(self, error: CortexError | None, is_news: bool) -> None:  # noqa: FBT001 -- the poller's
        frame = self.frame
        if error is not None and frame is not None:
            frame.strip.tell(f"✗ {failed(error)}", "fail")
        if is_news or (frame is not None and frame.has_other):
            self._repaint()

    def _repaint(self) -> None:
        frame = self.frame
        if frame is not None and frame.is_mounted:
            frame.repaint()

    async def _tick(self) -> None:
        while True:
            now = self.session.clock.now()
            await self.session.clock.wait(asyncio.Event(), until=now + TICK_S)
            self._look_at_pod()
            self._repaint()
