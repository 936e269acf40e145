"""The dead letters of a command: named or filtered, shown, confirmed, and reported afterwards.

Named dead letters are processed at once. A filter submits a job of type `bulk`: see
`cortex.cli.choice`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.cli.asking import confirm_count
from cortex.cli.bulk import BulkWords
from cortex.cli.changes import ChangeRequest
from cortex.cli.choice import BulkCommand, JobsRequest
from cortex.cli.dead.filters import nothing_matches
from cortex.cli.screen.output import Output
from cortex.domain.bulk import BulkVerb
from cortex.domain.dead_letter import (
    EFFECTS_STAY,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterHead,
    DeadLetterState,
)
from cortex.domain.idempotency import error_from
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import dead_letters, jobs
from cortex.store.job_choice import JobChoice, choose
from cortex.view.cells import Cell
from cortex.view.dead_letters import letters_text
from cortex.view.resource import Field
from cortex.view.resources.dead_letters import ERRORS, LETTERS

SHOWN_MAX: Final = 20
"""Above this number, people see only the errors."""


ACTS: Final = {
    BulkVerb.RETRY: BulkCommand(
        verb=BulkVerb.RETRY,
        words=BulkWords(operation="dead.retry.bulk", would="would be retried", done="retried"),
    ),
    BulkVerb.DISCARD: BulkCommand(
        verb=BulkVerb.DISCARD,
        words=BulkWords(
            operation="dead.discard.bulk", would="would be discarded", done="discarded"
        ),
    ),
}


@attrs.frozen
class ChosenDeadLetters:
    """The dead letters to process."""

    letters: list[DeadLetter]
    choice: JobChoice
    empty: str = ""
    """Message if there are none."""


def find(call: Session, request: JobsRequest, verb: BulkVerb) -> ChosenDeadLetters:
    """Find the dead letters: by id in any state, by a filter the unresolved ones."""
    if request.names:
        ids = list(dict.fromkeys(call(jobs.find, name) for name in request.names))
        choice = JobChoice(job_ids=ids, refused={}, has_more=False)
    else:
        choice = call(choose, verb, request.which, limit=request.limit)
    letters = call(dead_letters.of_jobs, choice.job_ids)
    empty = "" if letters else nothing_matches(call, request.which)
    return ChosenDeadLetters(letters, choice, empty)


def agree(
    chosen: ChosenDeadLetters, change: ChangeRequest, request: JobsRequest, verb: BulkVerb
) -> None:
    """Ask for confirmation; exit for any answer but yes."""
    count = len(chosen.letters)
    if not count:
        return
    if count == 1:
        (letter,) = chosen.letters
        question = f"{verb} {short_id(letter.job_id)}: {letter.error_message}"
    else:
        errors = len({letter.fingerprint for letter in chosen.letters})
        kinds = "the same error" if errors == 1 else f"{errors} different errors"
        question = f"{verb} {count:,} dead letters with {kinds}"
    if verb is BulkVerb.RETRY:
        question = f"{question}; {EFFECTS_STAY}"
    if request.names:
        change.confirm(question)
    else:
        confirm_count(safe(question), count, change.options, is_agreed=change.is_agreed)


def preview(chosen: ChosenDeadLetters, output: Output, verb: BulkVerb) -> None:
    """Show what would be processed, and how many."""
    if _are_listed(chosen.letters, output):
        output.resource(LETTERS, chosen.letters, empty=chosen.empty)
    else:
        _errors(chosen.letters, output, LETTERS.fields)
    more = "; more match: raise --limit" if chosen.choice.has_more else ""
    text = f"{letters_text(len(chosen.letters))} would be {verb.done}"
    output.say(f"dry run: {text}{more}", "dim")


def report(
    call: Session, results: Sequence[Mapping[str, Any]], output: Output, verb: BulkVerb
) -> None:
    """Show the result for named dead letters. Raises the first error."""
    errors = {UUID(each["job_id"]): each["error"] for each in results}
    letters = call(dead_letters.of_jobs, list(errors))
    rows = [_Done(letter, error=errors[letter.job_id]) for letter in letters]
    if _are_listed(letters, output):
        output.listing("letters", DONE_COLUMNS, rows, empty="")
    else:
        _errors(letters, output, DONE_COLUMNS)
    for error in errors.values():
        if error is not None:
            raise error_from(error)
    stay = f"; {EFFECTS_STAY}" if verb is BulkVerb.RETRY else ""
    output.say(f"{verb.done} {letters_text(len(rows))}{stay}", "dim")


def _are_listed(letters: Sequence[DeadLetter], output: Output) -> bool:
    """Whether each dead letter is listed; for many, people get only the errors."""
    return not output.is_for_people or len(letters) <= SHOWN_MAX


def _errors(letters: Sequence[DeadLetter], output: Output, columns: Sequence[Field[Any]]) -> None:
    """Write the errors of dead letters, the most frequent first."""
    alike: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        alike.setdefault(letter.fingerprint, []).append(letter)
    groups = sorted(map(_group, alike.values()), key=lambda group: -group.count)
    names = {"fingerprint", "count", *(column.name for column in columns)} - {"job_id"}
    shown = [column for column in ERRORS.fields if column.name in names and column.is_default]
    output.listing(ERRORS.noun, shown, groups, empty="")


def _group(letters: Sequence[DeadLetter]) -> DeadLetterGroup:
    newest = max(letters, key=lambda letter: letter.created_at)
    head = {field.name: getattr(newest, field.name) for field in attrs.fields(DeadLetterHead)}
    return DeadLetterGroup(
        **head,
        count=len(letters),
        escalated_count=sum(each.state is DeadLetterState.ESCALATED for each in letters),
        first_at=min(each.created_at for each in letters),
        last_at=newest.created_at,
        is_all=True,
    )


@attrs.frozen
class _Done:
    """A dead letter, and its error if it was not processed."""

    letter: DeadLetter
    error: Mapping[str, Any] | None


def _outcome(row: _Done) -> Cell:
    letter = row.letter
    if row.error is not None:
        return Cell(safe(str(row.error["message"])), "fail")
    if letter.retried_as is not None:
        return Cell(f"continues as {short_id(letter.retried_as)}", "done")
    return Cell(letter.state.lower(), "dim")


DONE_COLUMNS: Final[Sequence[Field[_Done]]] = (
    Field(
        name="job_id",
        title="id",
        value=lambda r: r.letter.job_id,
        shown=lambda r: Cell(short_id(r.letter.job_id), "bold"),
    ),
    Field(name="type", value=lambda r: r.letter.type, least=8),
    Field(
        name="error_message",
        title="error",
        value=lambda r: r.letter.error_message,
        shown=lambda r: Cell(safe(r.letter.error_message)),
        least=12,
    ),
    Field(
        name="outcome",
        title="what happens",
        value=lambda r: _outcome(r).text,
        shown=_outcome,
        least=20,
        is_for_people=True,
    ),
    Field(
        name="retried_as",
        title="new job",
        value=lambda r: r.letter.retried_as,
        is_default=False,
    ),
    Field(name="state", value=lambda r: r.letter.state, is_default=False),
    Field(name="fingerprint", value=lambda r: r.letter.fingerprint, is_default=False),
    Field(
        name="error",
        value=lambda r: None if r.error is None else r.error["code"],
        is_default=False,
    ),
)
