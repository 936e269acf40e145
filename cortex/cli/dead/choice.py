"""The dead letters of a command: named or filtered, shown, confirmed, and reported afterwards.

Named dead letters are processed at once. A filter submits a job of type `bulk`: see
`cortex.cli.dead.begin`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import click

from cortex.cli.asking import REASON_MAX, acting_name, as_option, confirm, confirm_count
from cortex.cli.dead.filters import filtered, nothing_matches
from cortex.cli.idempotent import idempotent
from cortex.cli.options import Options, Text
from cortex.cli.pace import Rate
from cortex.cli.screen.output import Output
from cortex.domain.bulk import LIMIT_DEFAULT, LIMIT_MAX, RATE_DEFAULT, BulkVerb
from cortex.domain.dead_letter import (
    EFFECTS_STAY,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterHead,
    DeadLetterState,
    DryRun,
)
from cortex.domain.errors import UsageError
from cortex.domain.idempotency import error_from
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import dead_letters, jobs
from cortex.view.cells import Cell
from cortex.view.dead_letters import letters_text
from cortex.view.resource import Field
from cortex.view.resources.dead_letters import ERRORS, LETTERS
from cortex.view.verbs import RETRY_LETTERS

SHOWN_MAX: Final = 20
"""Above this number, people see only the errors."""


@attrs.frozen(kw_only=True)
class DeadLetterRequest:
    """The input of every command that changes dead letters."""

    names: tuple[str, ...]
    which: DeadLetterFilter
    limit: int
    rate: float
    is_dry_run: bool
    is_agreed: bool
    reason: str | None
    by: str
    key: str | None

    @property
    def request(self) -> dict[str, Any]:
        """Everything that makes two requests the same."""
        which = attrs.asdict(self.which)
        return {"names": sorted(self.names), "which": which, "limit": self.limit} | {
            "by": self.by,
            "reason": self.reason,
        }


_OPTIONS: Final = (
    click.argument("names", metavar="[ID…]", nargs=-1),
    filtered,
    click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be done."),
    click.option(
        "--limit",
        type=click.IntRange(1, LIMIT_MAX),
        default=LIMIT_DEFAULT,
        show_default=True,
        metavar="N",
        help="At most N dead letters, the oldest first.",
    ),
    click.option(
        "--rate",
        type=Rate(),
        default=RATE_DEFAULT,
        show_default=True,
        metavar="N",
        help="Rate limit, in dead letters per second.",
    ),
    click.option(
        "--reason",
        type=Text(REASON_MAX),
        metavar="TEXT",
        help=RETRY_LETTERS.reason,
    ),
    click.option("--yes", "is_agreed", is_flag=True, help=RETRY_LETTERS.asks),
    as_option,
    idempotent,
)


def acting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that changes dead letters; it gets them as `request`.

    Raises `UsageError` for neither ids nor a filter, for both, and for no reason.
    """

    @functools.wraps(command)
    def packed(*args: Any, actor: str | None, idempotency_key: str | None, **given: Any) -> None:
        names = tuple(
            field.name for field in attrs.fields(DeadLetterRequest) if field.name in given
        )
        packed_ones = {name: given.pop(name) for name in names}
        request = DeadLetterRequest(**packed_ones, by=acting_name(actor), key=idempotency_key)
        if bool(request.names) == (request.which != DeadLetterFilter()):
            raise UsageError(
                "give ids or a filter, not both" if request.names else ("no dead letters given"),
                hint="an id, or a filter such as --fingerprint F: cortex dead ls",
            )
        if request.reason is None and not request.is_dry_run:
            raise UsageError(
                "give the reason: it is stored with each dead letter", hint="--reason TEXT"
            )
        command(*args, request=request, **given)

    for option in reversed(_OPTIONS):
        packed = option(packed)
    return packed


@attrs.frozen
class ChosenDeadLetters:
    """The dead letters to process."""

    letters: list[DeadLetter]
    has_more: bool
    """Whether more dead letters match than the limit allows."""
    empty: str = ""
    """Message if there are none."""
    last_id: UUID | None = None
    """The job of the newest one."""

    @property
    def ids(self) -> list[UUID]:
        return [letter.job_id for letter in self.letters]


def choose(call: Session, request: DeadLetterRequest) -> ChosenDeadLetters:
    """Find the dead letters: by id in any state, by a filter the unresolved ones."""
    if request.names:
        ids = list(dict.fromkeys(call(jobs.find, name) for name in request.names))
        return ChosenDeadLetters(call(dead_letters.of_jobs, ids), has_more=False)
    found = call(dead_letters.choose, request.which, limit=request.limit + 1)
    if not found:
        return ChosenDeadLetters([], has_more=False, empty=nothing_matches(call, request.which))
    dry_run = DryRun.first(found, limit=request.limit)
    letters = call(dead_letters.of_jobs, dry_run.job_ids)
    return ChosenDeadLetters(letters, dry_run.has_more, last_id=dry_run.last_id)


def agree(
    chosen: ChosenDeadLetters, request: DeadLetterRequest, options: Options, verb: BulkVerb
) -> None:
    """Ask for confirmation; exit for any answer but yes."""
    word, count = verb.value, len(chosen.letters)
    if count == 1:
        (letter,) = chosen.letters
        question = f"{word} {short_id(letter.job_id)}: {letter.error_message}"
    else:
        errors = len({letter.fingerprint for letter in chosen.letters})
        kinds = "the same error" if errors == 1 else f"{errors} different errors"
        question = f"{word} {count:,} dead letters with {kinds}"
    if verb is BulkVerb.RETRY:
        question = f"{question}; {EFFECTS_STAY}"
    if request.names:
        confirm(safe(question), options, is_agreed=request.is_agreed)
    else:
        confirm_count(safe(question), count, options, is_agreed=request.is_agreed)


def preview(chosen: ChosenDeadLetters, output: Output, verb: BulkVerb) -> None:
    """Show what would be processed, and how many."""
    if _are_listed(chosen.letters, output):
        output.resource(LETTERS, chosen.letters, empty=chosen.empty)
    else:
        _errors(chosen.letters, output, LETTERS.fields)
    more = "; more match: raise --limit" if chosen.has_more else ""
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
