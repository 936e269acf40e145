"""What a test sees of a job that has run."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from cortex.domain.published import JobProgress

R_co = TypeVar("R_co", covariant=True)


class StuckError(AssertionError):
    """The job waits for what never comes in this test."""


class PromiseBrokenError(AssertionError):
    """The job does not survive a crash, or does not replay."""


@attrs.frozen(kw_only=True)
class Effect:
    """An effect that the job has begun."""

    key: str
    """The name of its step."""
    tool: str
    """The function or the tool."""
    arguments: object
    """Plain JSON."""
    status: str
    """COMPLETED, FAILED: it was certainly not applied, or UNKNOWN."""
    calls: int
    """How often its function was called."""


@attrs.frozen(kw_only=True)
class Line:
    """A line that the job has written with `ctx.log`."""

    message: str
    """Its text."""
    level: str
    """debug, info, warning, error or critical."""
    fields: dict[str, Any]
    """Beside the text: plain JSON."""
    step: str | None
    """The step that wrote it; None: the handler."""
    attempt: int
    """From 1."""


@attrs.frozen(kw_only=True)
class Run(Generic[R_co]):
    """A job that has ended."""

    type: str
    """The name of its job type."""
    error: BaseException | None
    """Why it failed; None: it completed."""
    attempts: int
    """How often its handler ran: retries and waits begin it anew."""
    steps: list[str]
    """The names of those on record, in the order in which the code asked for them."""
    effects: tuple[Effect, ...]
    """In the order of their steps."""
    logs: tuple[Line, ...]
    """What `ctx.log` wrote, in order."""
    state: dict[str, Any]
    """What `ctx.state` has published at the end, plain JSON by key."""
    progress: JobProgress | None
    """The last `ctx.progress`; None: there was none."""
    chunks: tuple[Any, ...]
    """What `ctx.emit` has emitted, in order: plain JSON."""
    _result: R_co = attrs.field(alias="result", repr=False)
    _replay: Callable[[], None] = attrs.field(alias="replay", repr=False)

    @property
    def result(self) -> R_co:
        """The result in its declared type. Raises the error of a job that failed."""
        if self.error is not None:
            raise self.error
        return self._result

    def replays(self) -> None:
        """Run the handler again from the record, in which nothing may be called twice.

        Raises `PromiseBrokenError` if the code asks for another step, or gives one another input.
        """
        __tracebackhide__ = True
        self._replay()
