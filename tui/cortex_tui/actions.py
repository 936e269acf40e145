"""Actions that change something for others: confirmed first, run once, logged as a command.

An action holds the id of its object, taken when it was proposed, because the list may move
meanwhile. It is refused with `--read-only` and while the database does not answer: both when it is
proposed and when it is confirmed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import attrs

from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.domain.safe import safe
from cortex_tui import shell
from cortex_tui.model.question import Prompt, Question
from cortex_tui.render.words import failed
from cortex_tui.session import Session

KEPT_MAX: Final = 500
BUSY: Final = "the last action is still under way"
UNKNOWN: Final = "? outcome unknown"


@attrs.frozen(kw_only=True)
class Action:
    """A change that the operator can confirm."""

    question: str
    """One line that names the object; may hold text from jobs."""
    command: tuple[str, ...]
    """The arguments of the equivalent `cortex` command, without `name`."""
    name: str | None = None
    """The object's name if others chose it: it may look like an option."""
    options: tuple[str, ...] = ()
    stdin: str = ""
    """The input of the command, or ""."""
    work: Callable[[], Awaitable[str]]
    """Does it in one transaction; returns the outcome. Raises `CortexError`s."""
    wanted: str = "y"
    """What to type to confirm."""

    def typed(self, *, label: str | None) -> str:
        """Return the shell command that does the same, with the label of the person."""
        names = () if self.name is None else (self.name,)
        options = (*self.options, *(() if label is None else ("--as", label)))
        if self.name is not None and self.name.startswith("-"):
            words = (*self.command, *options, "--", *names)
        else:
            words = (*self.command, *names, *options)
        line = shell.line(("cortex", *words))
        return f"{line} <<< {shell.quoted(self.stdin)}" if self.stdin else line


@attrs.frozen(kw_only=True)
class ActionResult:
    """A confirmed action and its outcome."""

    number: int
    at: datetime
    """By the database's clock."""
    command: str
    """As typed in a shell."""
    outcome: str
    style: str

    @property
    def is_done(self) -> bool:
        """Whether it certainly succeeded."""
        return self.style == "done"


@attrs.frozen(kw_only=True)
class InterruptedAction:
    """The outcome of an action that was running when the operator quit."""

    action: Action
    done: ActionResult | None
    """None: it was cancelled, or a fault of the UI ended it."""

    @property
    def is_done(self) -> bool:
        """Whether it certainly succeeded."""
        return self.done is not None and self.done.is_done

    @property
    def outcome(self) -> str:
        """Return the outcome as one safe line."""
        if self.done is not None:
            return f"{safe(self.action.question)}: {self.done.outcome}"
        return f"{safe(self.action.question)}: {UNKNOWN}"


class Asker(Protocol):
    """The line at the bottom of a screen."""

    def ask(self, question: Prompt, answered: Callable[[bool], None]) -> None: ...

    def show(self, text: str, style: str, *, is_outcome: bool = False) -> None: ...


class Actions:
    """Proposes and runs actions; `log` keeps the newest ones, the newest first.

    At most one action runs at a time.
    """

    def __init__(
        self, session: Session, *, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`start` runs a coroutine alongside the app."""
        self._session = session
        self._start = start
        self._turn = asyncio.Lock()
        self._under_way: dict[asyncio.Task[ActionResult], Action] = {}
        self._unsettled: dict[asyncio.Task[ActionResult], Action] = {}
        """The actions that a cancelled `settle` waited for; the next call reports them, too."""
        self._number = 0
        self.log: deque[ActionResult] = deque(maxlen=KEPT_MAX)
        self.faults: list[Exception] = []
        """Faults of the UI, which end the app: the few that occur until it has ended."""
        self.done: Callable[[], None] = lambda: None
        """Called after each action, to refresh the screen."""

    def propose(self, asker: Asker, action: Action) -> None:
        """Ask for confirmation, or say why the action is not possible."""
        if (refusal := self.why_not()) is not None:
            asker.show(refusal, "warn")
            return
        question = Question(safe(action.question), wanted=action.wanted)
        asker.ask(question, lambda is_agreed: self._answered(asker, action, is_agreed=is_agreed))

    def _answered(self, asker: Asker, action: Action, *, is_agreed: bool) -> None:
        if not is_agreed:
            asker.show("nothing was done", "dim")
        else:
            self.agreed(asker, action)

    def agreed(self, asker: Asker, action: Action, *, waits: bool = False) -> None:
        """Run a confirmed action, or say why it is not possible.

        `waits`: queue it behind a running action; a refusal then goes to the log.
        """
        if not waits and (refusal := self.why_not()) is not None:
            asker.show(refusal, "warn")
            return
        asker.show(f"{safe(action.question)} …", "dim")
        self._start(_until_done(self._begun(asker, action)))

    def _begun(self, asker: Asker, action: Action) -> asyncio.Task[ActionResult]:
        """Start an action. It survives the end of the app and the cancellation of its callers."""
        task = asyncio.create_task(self._finish(asker, action))
        self._under_way[task] = action
        task.add_done_callback(self._under_way.pop)
        return task

    async def finish(self, asker: Asker, action: Action) -> ActionResult:
        """Run an action in its turn, show and log its outcome; cancellation does not stop it."""
        return await asyncio.shield(self._begun(asker, action))

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    async def settle(self, *, within_s: float) -> Sequence[InterruptedAction]:
        """Wait for running actions to end.

        Actions that take longer are cancelled, and their outcome is unknown. If this call is
        cancelled, the actions continue, and the next call also returns those that ended meanwhile.
        """
        actions = self._unsettled | self._under_way
        if not actions:
            return ()
        self._unsettled = actions
        _, late = await asyncio.wait(actions, timeout=within_s)
        for task in late:
            task.cancel()
        if late:
            _, late = await asyncio.wait(late, timeout=within_s)
        self._unsettled = {}
        cut_off = {task for task in actions if task in late or task.cancelled() or task.exception()}
        return [
            InterruptedAction(action=action, done=None if task in cut_off else task.result())
            for task, action in actions.items()
        ]

    async def _finish(self, asker: Asker, action: Action) -> ActionResult:
        is_begun = False
        try:
            async with self._turn:
                is_begun = True
                outcome, style = await self._done(action)
        except asyncio.CancelledError:
            _ = self._keep(action, UNKNOWN if is_begun else "✗ it was not sent", "warn")
            raise
        except Exception as fault:
            self.faults.append(fault)
            _ = self._keep(action, UNKNOWN, "warn")
            raise
        done = self._keep(action, outcome, style)
        asker.show(done.outcome, style, is_outcome=True)
        self.done()
        return done

    def _keep(self, action: Action, outcome: str, style: str) -> ActionResult:
        self._number += 1
        done = ActionResult(
            number=self._number,
            at=self._session.now,
            command=action.typed(label=self._session.identity.label),
            outcome=safe(outcome),
            style=style,
        )
        self.log.appendleft(done)
        return done

    async def _done(self, action: Action) -> tuple[str, str]:
        if (refusal := self._session.why_not_act()) is not None:
            return f"✗ {refusal}", "fail"
        try:
            return f"✓ {await action.work()}", "done"
        except OutcomeUnknownError as error:
            return f"? outcome unknown: {failed(error)}", "warn"
        except CortexError as error:
            return f"✗ {failed(error, with_hint=True)}", "fail"

    def why_not(self) -> str | None:
        """Return why no action is possible now; None if it is."""
        if self._under_way:
            return BUSY
        return self._session.why_not_act()


async def _until_done(task: asyncio.Task[ActionResult]) -> None:
    """Report faults to the app; an action outlives the app."""
    await asyncio.shield(task)
