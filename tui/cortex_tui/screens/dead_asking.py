"""Questions before dead letters are retried or discarded: count, reason, confirmation.

A single letter is settled at once. All letters of an error are settled by a job.
"""

from collections.abc import Awaitable, Callable, Sequence

from textual.events import Key

from cortex.domain.bulk import LIMIT_MAX, RATE_DEFAULT, BulkRequest, BulkVerb
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, PayloadEdit
from cortex.domain.errors import CortexError
from cortex.domain.job_filter import of_letters, parse_filter, term
from cortex.domain.safe import safe
from cortex.view.dead_letters import on_retry
from cortex.view.verbs import RETRY_LETTERS
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model import bulk
from cortex_tui.model.reason import ReasonQuestion
from cortex_tui.render.dead_letter_rows import error_briefly, letter_words
from cortex_tui.render.words import failed
from cortex_tui.screens.jobs_bulk import COUNTING, begun
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.strip_line import StripLine

Work = Callable[[str], Awaitable[str]]
"""Takes the reason; returns the outcome."""


async def ask_group(
    context: AppContext,
    strip: StripLine,
    verb: BulkVerb,
    row: DeadLetterGroup,
    *,
    typed: Sequence[Key],
) -> None:
    """Count, then ask to confirm an operation on all letters of an error.

    `typed`: the return value of the strip's `expect`.
    """
    try:
        text = of_letters(term("fingerprint", row.fingerprint))
        found = await context.backend.jobs.choose(verb, parse_filter(text), limit=LIMIT_MAX)
    except CortexError as error:
        strip.show(f"✗ {failed(error)}", "fail")
        return
    if not strip.may_ask:
        strip.drop(COUNTING)
        return  # the operator has left this screen
    if not found.job_ids:
        strip.show("no dead letter of this error waits any more", "warn")
        return
    how = " from their last checkpoint" if verb is BulkVerb.RETRY else f" · {error_briefly(row)}"
    which = ("--fingerprint", row.fingerprint, "--limit", str(len(found.job_ids)))
    by = context.session.actor

    async def begin(reason: str) -> str:
        request = BulkRequest.counted(
            verb, found.job_ids, jobs=text, at=found.at, reason=reason, rate_per_s=RATE_DEFAULT
        )
        return begun(await context.backend.jobs.begin(request, by=by))

    _ask(
        context,
        strip,
        verb,
        text=bulk.letters_question(verb, found, how=how),
        which=which,
        work=begin,
        wanted=bulk.wanted(found),
        typed=typed,
    )


def ask_one(
    context: AppContext,
    strip: StripLine,
    verb: BulkVerb,
    row: DeadLetter,
    *,
    command: Sequence[str] = (),
    what: str = "",
    typed: Sequence[Key] = (),
) -> None:
    """Ask to confirm an operation on one letter.

    `command`: the words of another command that does the same. `what`: consequences beyond those
    that the letter states. `typed`: the return value of the strip's `expect`.
    """
    how = on_retry(row) if verb is BulkVerb.RETRY else error_briefly(row)
    job_id, by, dead = row.job_id, context.session.actor, context.backend.dead
    settle = dead.retry if verb is BulkVerb.RETRY else dead.discard
    how = f"{what}; {how}" if what else how
    _ask(
        context,
        strip,
        verb,
        text=f"{verb.value} {letter_words(row)}: {how}",
        which=(str(job_id),),
        work=lambda reason: settle(job_id, by=by, reason=reason),
        command=command,
        typed=typed,
    )


def ask_edited(
    context: AppContext,
    strip: StripLine,
    row: DeadLetter,
    edit: PayloadEdit,
    *,
    answered: Callable[[], None],
) -> None:
    """Ask to confirm a retry with another payload; calls `answered` after any answer."""
    text = f"retry {letter_words(row)} with your payload: {on_retry(row)}"
    question = ReasonQuestion(safe(text), is_required=RETRY_LETTERS.is_reason_required)
    job_id, by = row.job_id, context.session.actor

    def end(is_agreed: bool) -> None:  # noqa: FBT001 -- what the strip calls
        answered()
        if not is_agreed:
            strip.show("nothing was done", "dim")
            return
        reason = question.reason
        action = Action(
            question=text,
            command=(
                *("dead", "retry", str(job_id), "--payload", "-"),
                *(*because(reason), "--yes"),
            ),
            stdin=edit.payload,
            work=lambda: context.backend.dead.retry(job_id, by=by, reason=reason, edit=edit),
        )
        context.actions.agreed(strip, action)

    strip.ask(question, end)


def _ask(
    context: AppContext,
    strip: StripLine,
    verb: BulkVerb,
    *,
    text: str,
    which: Sequence[str],
    work: Work,
    wanted: str = "y",
    typed: Sequence[Key] = (),
    command: Sequence[str] = (),
) -> None:
    def act(reason: str) -> Action:
        words = (*(command or ("dead", verb.value)), *which, *because(reason), "--yes")
        return Action(question=text, command=words, work=lambda: work(reason))

    propose(context, strip, text, act, verb=RETRY_LETTERS, wanted=wanted, typed=typed)
