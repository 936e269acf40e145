"""A bulk operation on jobs: counted by the server, confirmed with that count, done by a job."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

from textual.events import Key

from cortex.domain.bulk import LIMIT_MAX, BulkVerb
from cortex.domain.errors import CortexError
from cortex.domain.phrases import short_id
from cortex.store.job_choice import JobChoice
from cortex.view.verbs import CANCEL_JOB
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model import bulk
from cortex_tui.model.bulk import Selection
from cortex_tui.render.words import failed
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.strip_line import StripLine

COUNTING: Final = "counting …"


class JobsBulk:
    """Takes a selection of the list, asks with its count, and submits the operation."""

    def __init__(self, context: AppContext, strip: StripLine, *, began: Callable[[], None]) -> None:
        """`began` is called when an operation was confirmed."""
        self._context, self._strip, self._began = context, strip, began

    def ask(
        self, verb: BulkVerb, selection: Selection, *, is_wanted: Callable[[], bool]
    ) -> Coroutine[Any, Any, None]:
        """Return the coroutine that counts, then asks, unless `is_wanted` returns False by then.

        From now on it keeps the keys that are typed ahead.
        """
        typed = self._strip.expect(COUNTING)
        return self._ask(verb, selection, is_wanted=is_wanted, typed=typed)

    async def _ask(
        self,
        verb: BulkVerb,
        selection: Selection,
        *,
        is_wanted: Callable[[], bool],
        typed: Sequence[Key],
    ) -> None:
        jobs, strip = self._context.backend.jobs, self._strip
        try:
            if selection.job_ids:
                choice = await jobs.choose_marked(verb, selection.job_ids)
            else:
                choice = await jobs.choose(verb, selection.which, limit=LIMIT_MAX)
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
            self._context,
            strip,
            bulk.question(verb, choice),
            lambda reason: self._action(verb, selection, choice, reason),
            verb=CANCEL_JOB,
            wanted=bulk.wanted(choice),
            typed=typed,
        )

    def _action(
        self, verb: BulkVerb, selection: Selection, choice: JobChoice, reason: str
    ) -> Action:
        """Return the confirmed operation."""
        request = selection.request(verb, choice, reason=reason)
        backend, by = self._context.backend.jobs, self._context.session.actor
        self._began()

        async def begin() -> str:
            return begun(await backend.begin(request, by=by))

        return Action(
            question=bulk.question(verb, choice),
            command=("jobs", verb, *selection.arguments, *because(reason), "--yes"),
            work=begin,
        )


def begun(job_id: UUID) -> str:
    """Return the outcome of submitting the job of a bulk operation."""
    return f"job {short_id(job_id)} does it, also without you"
