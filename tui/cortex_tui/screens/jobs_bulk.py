"""A bulk operation on jobs: counted by the server, confirmed with that count, run in batches.

Only the jobs that were counted are changed: counting fixes their ids.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

from textual.events import Key

from cortex.domain.errors import ConflictError, CortexError, OutcomeUnknownError
from cortex.domain.job_filter import Refusal
from cortex.store.job_choice import BATCH, BulkDone, JobChoice, PartlyDoneError
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model import bulk
from cortex_tui.model.bulk import ACT_MAX, DONE, JobsVerb, Selection
from cortex_tui.render.words import failed
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.strip_line import StripLine

COUNTING: Final = "counting …"


class JobsBulk:
    """Takes a selection of the list, asks with its count, and runs the operation."""

    def __init__(self, desk: AppContext, strip: StripLine, *, began: Callable[[], None]) -> None:
        """`began` is called when an operation was confirmed."""
        self._desk, self._strip, self._began = desk, strip, began
        self._run: BulkRun | None = None

    def stop(self) -> bool:
        """Stop the operation after its current batch; return whether there is one."""
        return self._run is not None and self._run.stop()

    def ask(
        self, verb: JobsVerb, selection: Selection, *, is_wanted: Callable[[], bool]
    ) -> Coroutine[Any, Any, None]:
        """Return the coroutine that counts, then asks, unless `is_wanted` returns False by then.

        From now on it keeps the keys that are typed ahead.
        """
        typed = self._strip.expect(COUNTING)
        return self._ask(verb, selection, is_wanted=is_wanted, typed=typed)

    async def _ask(
        self,
        verb: JobsVerb,
        selection: Selection,
        *,
        is_wanted: Callable[[], bool],
        typed: Sequence[Key],
    ) -> None:
        jobs, strip = self._desk.backend.jobs, self._strip
        try:
            if selection.job_ids:
                choice = await jobs.choose_marked(verb, selection.job_ids)
            else:
                choice = await jobs.choose(verb, selection.which, limit=ACT_MAX)
        except CortexError as error:
            strip.show(f"✗ {failed(error)}", "fail")
            return
        if not strip.may_ask or not is_wanted():
            strip.drop(COUNTING)
            return
        if not choice.job_ids:
            strip.show(bulk.nothing(verb, choice), "warn")
            return
        propose(
            self._desk,
            strip,
            bulk.question(verb, choice),
            lambda reason: self._action(verb, selection, choice, reason),
            is_required=False,
            wanted=bulk.wanted(choice),
            typed=typed,
            is_bulk=True,
        )

    def _action(
        self, verb: JobsVerb, selection: Selection, choice: JobChoice, reason: str
    ) -> Action:
        """Return the confirmed operation."""
        run = BulkRun(self._desk, self._strip, verb, choice.job_ids, reason=reason)
        self._run = run
        self._began()
        return Action(
            question=bulk.question(verb, choice),
            command=("jobs", verb, *selection.arguments, *because(reason), "--yes"),
            work=run.run,
            is_bulk=True,
            stop=run.stop,
            progress=run.progress,
        )


class BulkRun:
    """Runs a confirmed operation; each batch is its own transaction."""

    def __init__(
        self,
        desk: AppContext,
        strip: StripLine,
        verb: JobsVerb,
        job_ids: Sequence[UUID],
        *,
        reason: str,
    ) -> None:
        self._desk, self._strip, self._verb = desk, strip, verb
        self._left = list(job_ids)
        self._reason = reason
        self._changed = self._asked = self._resubmitted = 0
        self._refused: Counter[Refusal] = Counter()
        self._is_running = self._is_stopping = False

    def stop(self) -> bool:
        """Stop after the current batch; return whether there is one."""
        if self._is_running and not self._is_stopping:
            self._strip.show(f"stopping · {self.progress()}", "warn")
        self._is_stopping = True
        return self._is_running

    async def run(self) -> str:
        """Run it; return the outcome. Raises `CortexError` if not all batches started."""
        self._is_running = True
        try:
            while self._left and not self._is_stopping:
                await self._one()
                if self._left and not self._is_stopping:
                    self._strip.mention(f"{self.progress()} · esc stops", "accent")
        finally:
            self._is_running = False
        if self._left:
            raise ConflictError(self.progress())
        return self.progress()

    async def _one(self) -> None:
        session = self._desk.session
        if (refusal := session.why_not_act()) is not None:
            raise ConflictError(f"{self.progress()}; {refusal}")
        batch, jobs = self._left[:BATCH], self._desk.backend.jobs
        try:
            done = await jobs.act_on(self._verb, batch, by=session.actor, reason=self._reason)
        except PartlyDoneError as error:
            self._count(error.done, of=error.done.changed + sum(error.done.refused.values()))
            raise self._broken_off(error.cause) from error
        except CortexError as error:
            raise self._broken_off(error) from error
        self._count(done, of=len(batch))

    def _count(self, done: BulkDone, *, of: int) -> None:
        del self._left[:of]
        self._changed += done.changed
        self._asked += done.asked
        self._resubmitted += done.resubmitted
        self._refused.update(done.refused)

    def _broken_off(self, error: CortexError) -> CortexError:
        kind = OutcomeUnknownError if isinstance(error, OutcomeUnknownError) else ConflictError
        return kind(f"{self.progress()}; then: {error.message}")

    def progress(self) -> str:
        """Return the progress."""
        heirs = self._resubmitted
        text = f"{self._changed - self._asked - heirs:,} {DONE[self._verb]}"
        if heirs:
            text += f", {heirs:,} go on in new jobs"
        if self._asked:
            text += f", {self._asked:,} asked: their pods stop them"
        text += bulk.refused_words(self._refused) + (" meanwhile" if self._refused else "")
        return text + (f", {len(self._left):,} not begun" if self._left else "")
