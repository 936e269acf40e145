"""Everything that changes something for others: asked first, done once, kept as a command.

An act names what it acts on by id, taken when it was proposed: the list may move meanwhile. It is
refused for `--read-only` and while the database does not answer, when it is proposed and once more
when it is agreed to.
"""

import asyncio
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Final, Protocol

import attrs

from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.domain.safe import safe
from cortex_tui.model.question import Asks, Question
from cortex_tui.session import Session

KEPT_MAX: Final = 500


@attrs.frozen(kw_only=True)
class Act:
    """Something to do."""

    question: str
    """One line that names the thing; may hold text of jobs."""
    command: tuple[str, ...]
    """The arguments of `cortex` that do the same, but for those below."""
    name: str | None = None
    """What it acts on, if others chose how that is called: it may look like an option."""
    options: tuple[str, ...] = ()
    stdin: str = ""
    """What the command reads; "": nothing."""
    work: Callable[[], Awaitable[str]]
    """Does it in one transaction; returns what became of it. Raises `CortexError`s."""
    wanted: str = "y"
    """What has to be typed to agree."""
    is_bulk: bool = False
    """It goes on for a while, in batches: others are done meanwhile, but no other one like it."""

    def typed(self, *, actor: str) -> str:
        """Return the command as one would type it in a shell."""
        names = () if self.name is None else (self.name,)
        options = (*self.options, "--as", actor)
        if self.name is not None and self.name.startswith("-"):
            words = (*self.command, *options, "--", *names)
        else:
            words = (*self.command, *names, *options)
        line = shlex.join(("cortex", *words))
        return f"{line} <<< {shlex.quote(self.stdin)}" if self.stdin else line


@attrs.frozen(kw_only=True)
class Done:
    """An act that was agreed to, and how it ended."""

    number: int
    at: datetime
    """By the database's clock."""
    command: str
    """As one would type it."""
    told: str
    style: str

    @property
    def is_done(self) -> bool:
        """It was done, for certain."""
        return self.style == "done"


class Asker(Protocol):
    """The line at the bottom of a screen."""

    def ask(self, question: Asks, answered: Callable[[bool], None]) -> None: ...

    def tell(self, text: str, style: str) -> None: ...


class Acts:
    """Proposes and does acts; `log` keeps the newest ones, the newest first.

    One is done at a time, and beside it one on many things.
    """

    def __init__(
        self, session: Session, *, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`start` runs a coroutine beside the app."""
        self._session = session
        self._start = start
        self._turn, self._bulk_turn = asyncio.Lock(), asyncio.Lock()
        self._under_way = self._bulk_under_way = 0
        """Of all that were agreed to and are not over, and of those the ones on many things."""
        self._number = 0
        self.log: deque[Done] = deque(maxlen=KEPT_MAX)
        self.done: Callable[[], None] = lambda: None
        """Called after each act: what is shown is to be looked at again."""

    def propose(self, asker: Asker, act: Act) -> None:
        """Ask for an act, or say why it cannot be."""
        if (refusal := self.why_not(is_bulk=act.is_bulk)) is not None:
            asker.tell(refusal, "warn")
            return
        question = Question(safe(act.question), wanted=act.wanted)
        asker.ask(question, lambda is_agreed: self._answered(asker, act, is_agreed=is_agreed))

    def _answered(self, asker: Asker, act: Act, *, is_agreed: bool) -> None:
        if not is_agreed:
            asker.tell("nothing was done", "dim")
        else:
            self.agreed(asker, act)

    def agreed(self, asker: Asker, act: Act, *, waits: bool = False) -> None:
        """Do an act that was agreed to, or say why it cannot be.

        `waits`: after the one that is under way, if any; what refuses it then stands in the log.
        """
        if not waits and (refusal := self.why_not(is_bulk=act.is_bulk)) is not None:
            asker.tell(refusal, "warn")
            return
        asker.tell(f"{safe(act.question)} …", "dim")
        self._under_way += 1
        self._bulk_under_way += act.is_bulk
        self._start(self._counted(asker, act))

    async def _counted(self, asker: Asker, act: Act) -> None:
        try:
            await self.finish(asker, act)
        finally:
            self._under_way -= 1
            self._bulk_under_way -= act.is_bulk

    async def finish(self, asker: Asker, act: Act) -> Done:
        """Do an act in its turn, tell and keep what became of it."""
        async with self._bulk_turn if act.is_bulk else self._turn:
            told, style = await self._done(act)
        self._number += 1
        done = Done(
            number=self._number,
            at=self._session.now,
            command=act.typed(actor=self._session.actor),
            told=safe(told),
            style=style,
        )
        self.log.appendleft(done)
        asker.tell(done.told, style)
        self.done()
        return done

    async def _done(self, act: Act) -> tuple[str, str]:
        if (refusal := self._session.why_not_act()) is not None:
            return f"✗ {refusal}", "fail"
        try:
            return f"✓ {await act.work()}", "done"
        except OutcomeUnknownError as error:
            return f"? nobody knows whether it was done: {error.message}", "warn"
        except CortexError as error:
            hint = f" · {error.hint}" if error.hint else ""
            return f"✗ {error.message}{hint}", "fail"

    def why_not(self, *, is_bulk: bool = False) -> str | None:
        """Say why nothing can be done now, or nothing on many things; None: it can."""
        singles = self._under_way - self._bulk_under_way
        if self._bulk_under_way if is_bulk else singles:
            return "the act before is still under way"
        return self._session.why_not_act()
