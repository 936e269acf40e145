"""The proof that a job survives the death of its pod: killed at each point, it ends the same."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import attrs

from cortex.testing.background import Work
from cortex.testing.clock import Clock
from cortex.testing.crash import Crash
from cortex.testing.job_run import JobRun
from cortex.testing.outcome import PromiseBrokenError, StuckError

SHOWN_MAX: Final = 300
"""Characters of how a run ended."""


@attrs.define
class Crashes:
    """A run of a job without a crash, and then one for each point that it passed."""

    prepare: Callable[[Crash], JobRun]
    clock: Clock
    count: int = 0
    """Points at which it was killed so far."""

    def __iter__(self) -> Iterator[Work]:
        """Yield the runs to do; judges each one after it.

        Raises `PromiseBrokenError` for one that ends otherwise than without a crash, or that breaks
        a promise of an effect, and for a job that fails without a crash.
        """
        __tracebackhide__ = True
        began = self.clock.now
        first = self.prepare(Crash())
        yield first.work
        if first.record.broken is not None:
            raise PromiseBrokenError(f"job {first.job_type.name!r}: {first.record.broken}")
        if first.error is not None:  # what comes after its failure would not be tried at all
            message = f"job {first.job_type.name!r} {_brief(first.end)}, also without a crash"
            raise PromiseBrokenError(message) from first.error
        for at in range(len(first.record.crash.passed)):
            self.clock.now = began
            run = self.prepare(Crash(at))
            run.scripted.answered = dict(first.scripted.answered)
            yield Work(lambda run=run: _until_end(run), run.stop)  # type: ignore[misc]
            broken = run.record.broken
            if broken is None and run.end != first.end:
                broken = f"it {_brief(run.end)}; without a crash it {_brief(first.end)}"
            if broken is not None:
                where = run.record.crash.place or f"at point {at}, which it did not reach again"
                raise PromiseBrokenError(f"job {run.job_type.name!r}, killed {where}: {broken}")
            self.count += 1


def _until_end(run: JobRun) -> None:
    with suppress(StuckError):  # an end like any other
        run.run()


def _brief(end: str) -> str:
    line = end.partition("\n")[0]
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}…"
