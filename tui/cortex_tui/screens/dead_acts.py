"""Retrying and discarding dead letters: counted first, then why, then agreed to."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex_tui.acts import Act
from cortex_tui.backend.protocol import LetterRow
from cortex_tui.desk import Desk
from cortex_tui.model.letters import DryRun, retries_of, why_no_retry
from cortex_tui.model.reason import ReasonQuestion
from cortex_tui.render.letter_rows import error_words, letter_words, on_retry
from cortex_tui.screens.dead_batch import Batch
from cortex_tui.widgets.strip_line import StripLine

ACT_MAX: Final = 5_000
"""Letters of one act; the oldest ones."""
READ_MAX: Final = 500
"""Letters that are read in one statement before they are retried."""
RETRY: Final = "retry"
DISCARD: Final = "discard"
_DONE: Final = {RETRY: "retried", DISCARD: "discarded"}

Began = Callable[[Batch[Any]], None]


async def dry_run(desk: Desk, verb: str, row: LetterRow) -> DryRun:
    """Count what an act on all letters of an error would do. Raises `CortexError`s."""
    dead = desk.backend.dead
    found = await dead.choose(row["fingerprint"], limit=ACT_MAX + 1)
    job_ids, has_more = tuple(found[:ACT_MAX]), len(found) > ACT_MAX
    if verb == DISCARD:
        return DryRun(job_ids=job_ids, left_out={}, has_more=has_more)
    rows: list[LetterRow] = []
    for start in range(0, len(job_ids), READ_MAX):
        rows += await dead.of_jobs(job_ids[start : start + READ_MAX])
    return retries_of(rows, has_more=has_more)


async def ask_group(
    desk: Desk, strip: StripLine, verb: str, row: LetterRow, *, began: Began
) -> None:
    """Count, then ask for an act on all letters of an error; `began` gets what runs."""
    strip.tell("counting …", "dim")
    try:
        found = await dry_run(desk, verb, row)
    except CortexError as error:
        strip.tell(f"✗ {safe(error.message)}", "fail")
        return
    if not strip.screen.is_current or strip.is_asking:
        return  # nobody is asked who is not looking
    if not found.job_ids:
        strip.tell(_nothing(found), "warn")
        return
    strip.tell("")
    how = " from their last checkpoint" if verb == RETRY else f" · {error_words(row)}"
    if found.left_out:
        which: tuple[str, ...] = tuple(map(str, found.job_ids))
    else:
        which = ("--fingerprint", row["fingerprint"], "--limit", str(len(found.job_ids)))
    _ask(desk, strip, verb, found, text=found.words(verb, how=how), which=which, began=began)


def ask_one(desk: Desk, strip: StripLine, verb: str, row: LetterRow, *, began: Began) -> None:
    """Ask for an act on one letter."""
    if verb == RETRY and (why := why_no_retry(row)):
        strip.tell(f"a retry of {safe(letter_words(row))} would fail the same way: {why}", "warn")
        return
    how = on_retry(row) if verb == RETRY else error_words(row)
    found = DryRun(job_ids=(row["job_id"],), left_out={})
    text, which = f"{verb} {letter_words(row)}: {how}", (str(row["job_id"]),)
    _ask(desk, strip, verb, found, text=text, which=which, began=began)


def _ask(
    desk: Desk,
    strip: StripLine,
    verb: str,
    found: DryRun,
    *,
    text: str,
    which: Sequence[str],
    began: Began,
) -> None:
    if (refusal := desk.acts.why_not()) is not None:
        strip.tell(refusal, "warn")
        return
    question = ReasonQuestion(safe(text), is_required=True, wanted=found.wanted)

    def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
        if not is_agreed:
            strip.tell("nothing was done", "dim")
            return
        batch = _batch(desk, strip, verb, found.job_ids, reason=question.reason)
        began(batch)
        act = Act(
            question=text,
            command=("dead", verb, *which, "--reason", question.reason, "--yes"),
            work=batch.run,
        )
        desk.acts.agreed(strip, act)

    strip.ask(question, answered)


def _batch(
    desk: Desk, strip: StripLine, verb: str, job_ids: Sequence[UUID], *, reason: str
) -> Batch[Any]:
    dead, by = desk.backend.dead, desk.session.actor
    if verb == RETRY:
        return Batch(
            desk,
            strip,
            dead.resubmissions(job_ids),
            work=lambda some: dead.retry(some, by=by, reason=reason),
            done=_DONE[verb],
        )
    return Batch(
        desk,
        strip,
        job_ids,
        work=lambda some: dead.discard(some, by=by, reason=reason),
        done=_DONE[verb],
    )


def _nothing(found: DryRun) -> str:
    if not found.left_out:
        return "no letter of this error waits any more"
    whys = ", ".join(f"{count:,} {why}" for why, count in found.left_out.items())
    return f"no retry could help: {whys}; X discards them"
