"""Everything that changes something for others: asked first, done once, kept as a command.

An act names what it acts on by id, taken when it was proposed: the list may move meanwhile. It is
refused for `--read-only` and while the database does not answer, when it is proposed and once more
when it is agreed to.
"""

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
    """The arguments of `cortex` that do the same."""
    work: Callable[[], Awaitable[str]]
    """Does it in one transaction; returns what became of it. Raises `CortexError`s."""
    wanted: str = "y"
    """What has to be typed to agree."""


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


class Asker(Protocol):
    """The line at the bottom of a screen."""

    def ask(self, question: Asks, answered: Callable[[bool], None]) -> None: ...

    def tell(self, text: str, style: str) -> None: ...


class Acts:
    """Proposes and does acts, one at a time; `log` keeps the newest ones, the newest first."""

    def __init__(
        self, session: Session, *, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`start` runs a coroutine beside the app."""
        self._session = session
        self._start = start
        self._is_busy = False
        self._number = 0
        self.log: deque[Done] = deque(maxlen=KEPT_MAX)
        self.done: Callable[[], None] = lambda: None
        """Called after each act: what is shown is to be looked at again."""

    def propose(self, asker: Asker, act: Act) -> None:
        """Ask for an act, or say why it cannot be."""
        if (refusal := self.why_not()) is not None:
            asker.tell(refusal, "warn")
            return
        question = Question(safe(act.question), wanted=act.wanted)
        asker.ask(question, lambda is_agreed: self._answered(asker, act, is_agreed=is_agreed))

    def _answered(self, asker: Asker, act: Act, *, is_agreed: bool) -> None:
        if not is_agreed:
            asker.tell("nothing was done", "dim")
        else:
            self.agreed(asker, act)

    def agreed(self, asker: Asker, act: Act) -> None:
        """Do an act that was agreed to, or say why it cannot be."""
        if (refusal := self.why_not()) is not None:
            asker.tell(refusal, "warn")
            return
        self._is_busy = True
        asker.tell(f"{safe(act.question)} …", "dim")
        self._start(self._do(asker, act))

    async def _do(self, asker: Asker, act: Act) -> None:
        try:
            told, style = f"✓ {await act.work()}", "done"
        except OutcomeUnknownError as error:
            told, style = f"? nobody knows whether it was done: {error.message}", "warn"
        except CortexError as error:
            hint = f" · {error.hint}" if error.hint else ""
            told, style = f"✗ {error.message}{hint}", "fail"
        finally:
            self._is_busy = False
        self._number += 1
        self.log.appendleft(
            Done(
                number=self._number,
                at=self._session.now,
                command=shlex.join(("cortex", *act.command, "--as", self._session.actor)),
                told=safe(told),
                style=style,
            )
        )
        asker.tell(safe(told), style)
        self.done()

    def why_not(self) -> str | None:
        """Say why nothing can be done now; None: it can."""
        if self._is_busy:
            return "the act before is still under way"
        return self._session.why_not_act()
