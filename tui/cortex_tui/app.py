"""The app: its screens and what they share. `run` starts it on a terminal."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from textual import events, on
from textual.driver import Driver
from textual.filter import LineFilter, NoColor

from cortex_tui import internals
from cortex_tui.actions import Actions
from cortex_tui.app_context import AppContext
from cortex_tui.backend.store import StoreBackend
from cortex_tui.key_router import KeyRouter
from cortex_tui.key_table import KeyTable
from cortex_tui.line_filter import SafeFilter
from cortex_tui.navigation import Navigation
from cortex_tui.palette import BY_COLORS
from cortex_tui.palette_commands import KeyCommands
from cortex_tui.quitting import Quitting
from cortex_tui.recall import Recall
from cortex_tui.refresher import Refresher
from cortex_tui.screens import copying
from cortex_tui.screens.approvals import ApprovalsScreen
from cortex_tui.screens.breakers import BreakersScreen
from cortex_tui.screens.dead import DeadLettersScreen, DeadScreen
from cortex_tui.screens.effects import EffectsScreen
from cortex_tui.screens.fields import FieldsScreen
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.help import HelpScreen
from cortex_tui.screens.job import JobScreen
from cortex_tui.screens.jobs import JobsScreen
from cortex_tui.screens.limits import LimitsScreen
from cortex_tui.screens.log import LogScreen
from cortex_tui.screens.logs import LogsScreen
from cortex_tui.screens.messages import MessagesScreen
from cortex_tui.screens.pauses import PausesScreen
from cortex_tui.screens.pods import PodsScreen
from cortex_tui.screens.pulse import PulseScreen
from cortex_tui.screens.schedules import SchedulesScreen
from cortex_tui.screens.tree import TreeScreen
from cortex_tui.session import Session
from cortex_tui.terminal import Terminal

SCREENS: Final[Mapping[str, type[Frame]]] = {
    "pulse": PulseScreen,
    "jobs": JobsScreen,
    "approvals": ApprovalsScreen,
    "dead": DeadScreen,
    "pods": PodsScreen,
    "breakers": BreakersScreen,
    "schedules": SchedulesScreen,
    "effects": EffectsScreen,
    "messages": MessagesScreen,
}
"""Base screens, reached by number or name; each keeps its state."""
OPENED: Final[Mapping[str, Callable[..., Frame]]] = {
    "job": JobScreen,
    "jobs": JobsScreen,
    "effects": EffectsScreen,
    "fields": FieldsScreen,
    "help": HelpScreen,
    "log": LogScreen,
    "logs": LogsScreen,
    "letters": DeadLettersScreen,
    "limits": LimitsScreen,
    "pauses": PausesScreen,
    "tree": TreeScreen,
}
"""Screens that open on top of another one, with arguments; esc closes them."""
FIRST: Final = "pulse"


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
        backend: StoreBackend,
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
        beside = partial(self.run_worker, exit_on_error=True)
        actions = Actions(session, start=beside)
        self.navigation = Navigation(
            self, make=lambda name, *about: OPENED[name](self.context, *about)
        )
        self.context = AppContext(
            session=session,
            backend=backend,
            keys=keys or KeyTable(),
            actions=actions,
            recall=Recall(session, actions, start=beside),
            wake=lambda: self.refresher.poller.wake(),  # noqa: PLW0108 -- made below
            open=self.navigation.open,
            take_head=lambda head: self.refresher.take_head(head),  # noqa: PLW0108 -- as well
            seek=self.navigation.seek,
            arrived=self.navigation.visit,
        )
        actions.done = self.context.wake
        self._router = KeyRouter(
            self,
            session,
            self.navigation,
            focused=self.on_app_focus,
            otherwise=super().on_event,
        )
        self.quitting = Quitting(
            self, self.context, self.navigation, drop_typed=self._router.drop_typed
        )
        self.refresher = Refresher(
            self, self.context, self.navigation, tick=self.quitting.watch_pod
        )
        self._last_filters: list[LineFilter] = [SafeFilter(is_ascii=session.is_ascii)]
        if not has_color:
            self._last_filters.append(NoColor())
        for name, kind in SCREENS.items():
            self.add_mode(name, partial(kind, self.context))
        for palette in BY_COLORS[session.colors].values():
            self.register_theme(palette.theme)
        self.theme = self.context.palette.theme.name

    @property
    def frame(self) -> Frame | None:
        """The front screen below a palette; None before there is one."""
        return self.navigation.frame

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filter out whatever would control the terminal, from every widget."""
        return [*super().get_line_filters(), *self._last_filters]

    def on_mount(self) -> None:
        resumed = self.app_resume_signal
        resumed.subscribe(self, lambda _: self.refresher.resume(), immediate=True)
        self.refresher.start()

    def on_app_focus(self) -> None:
        self.refresher.focus()

    def on_app_blur(self) -> None:
        self.refresher.blur()

    def exit(self, *args: Any, **options: Any) -> None:
        """End the app; the first call sets the exit code."""
        if not self.quitting.is_ended.is_set():
            self.quitting.is_ended.set()
            super().exit(*args, **options)

    # --- keys

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
            if not self.quitting.is_ended.is_set():  # a screen opened now would have no place
                await self._router.press(event)
        else:
            await super().on_event(event)

    # --- what the keys do everywhere

    async def action_show(self, name: str) -> None:
        """Show a base screen, or open another one on top."""
        if name in SCREENS:
            await self.navigation.show(name)
        else:
            self.navigation.open(name)

    async def action_most_urgent(self) -> None:
        await self.navigation.go_most_urgent()

    async def action_back(self) -> None:
        await self.navigation.back()

    async def action_history(self, by: str) -> None:
        if not await self.navigation.go(int(by)) and self.frame is not None:
            self.frame.strip.show(f"no {'earlier' if int(by) < 0 else 'later'} screen", "dim")

    def action_help(self) -> None:
        if self.frame is not None and not isinstance(self.frame, HelpScreen):
            self.navigation.open("help", self.frame.NAME)

    def action_log_of_commands(self) -> None:
        if not isinstance(self.frame, LogScreen):
            self.navigation.open("log")

    def action_command_palette(self) -> None:
        if isinstance(self.screen, Frame):
            palette = internals.Palette(id="--command-palette")
            palette.left = self._router.drop_typed
            self.navigation.push(palette)

    def action_fields(self) -> None:
        if self.frame is not None:
            selected = self.frame.resource()
            if selected is None or selected.shape is None:
                self.frame.strip.show(copying.NOTHING, "dim")
            else:
                self.navigation.open("fields")

    def action_copy(self) -> None:
        if self.frame is not None:
            copying.ask(self, self.frame)

    def action_look_at(self) -> None:
        if self.frame is not None:
            looking = copying.look_at(self, self.frame)
            self.run_worker(looking, group="editor", exclusive=True)

    def action_mute(self) -> None:
        """Mute the bell for an hour, or unmute it."""
        now, bell = self.session.clock.now(), self.context.bell
        if bell.is_muted(now):
            bell.unmute()
        else:
            bell.mute(now)
        if self.frame is not None:
            is_muted = bell.is_muted(now)
            self.frame.strip.show("bell off for an hour" if is_muted else "bell on", "dim")
        self.refresher.repaint()

    def action_next_theme(self) -> None:
        names = list(BY_COLORS[self.session.colors])
        if len(names) == 1:
            if self.frame is not None:
                self.frame.strip.show(
                    "this terminal has 16 colours: only its own theme fits", "dim"
                )
            return
        after = (names.index(self.session.theme) + 1) % len(names)
        self.session.theme = names[after]
        self.theme = self.context.palette.theme.name
        self.refresher.repaint()

    async def action_quit(self) -> None:
        await self.quitting.quit()

    def action_help_quit(self) -> None:
        """Ctrl-C: an ordinary key, because the app owns the terminal."""
        if self.frame is not None:
            quit_key = self.context.keys.named("quit").keys[0]
            self.frame.strip.show(f"press {quit_key} to quit", "dim")

    @on(Terminal.Stopping)
    async def action_to_shell(self) -> None:
        """Suspend to the shell, after sending a decision that could still be undone."""
        frame, driver = self.frame, self._driver
        with driver.stopping() if isinstance(driver, Terminal) else nullcontext():
            if frame is None or await self.context.recall.is_clear(frame.strip):
                self.action_suspend_process()

    def action_suspend_process(self) -> None:
        if isinstance(self._driver, Terminal):
            self._driver.may_stop = True
        super().action_suspend_process()
