"""The filter for jobs that people type, the same on the command line and in the API.

    status:retry agent:invoice-* age>10m code:rate_limit,overloaded created<2026-01-31 id:9f3a1c
    letter:unresolved fingerprint:3fa9 class:permanent ended<2h

Terms stand side by side and all must hold. Values of one key, with commas or repeated, are
alternatives. `*` stands for any text; quotes keep blanks and commas together: `queue:"big jobs"`.

Dead letters are failed jobs whose `letter` is unresolved: a saved filter, `DEAD`.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import APPROVAL
from cortex.domain.budget import WAITING_PREFIX as BUDGET
from cortex.domain.dead_letter import UNRESOLVED, DeadLetterState
from cortex.domain.effect import QUOTA, UNKNOWN_EFFECT
from cortex.domain.errors import UsageError
from cortex.domain.failure import FailureClass
from cortex.domain.job import JobStatus
from cortex.domain.job_limits import LIMIT
from cortex.domain.known_tool import TRUST
from cortex.domain.phrases import parse_span
from cortex.domain.redaction import LONE_SURROGATE
from cortex.domain.waiting import BATCH, CHILD, CODE, PERSON, SIGNAL, SLEEP

SHOWN_CHARS_MAX: Final = 80
"""Of a word in an error."""
TEXT_MAX: Final = 2_000
"""Characters of a whole filter."""
VALUES_MAX: Final = 50
"""Of one key."""
ID_DIGITS_MIN: Final = 4

STATE_WORDS: Final = {
    JobStatus.PENDING: "pend",
    JobStatus.RUNNING: "run",
    JobStatus.WAITING_FOR_APPROVAL: "appr",
    JobStatus.RETRY: "retry",
    JobStatus.COMPLETED: "done",
    JobStatus.FAILED: "fail",
    JobStatus.CANCELLED: "canc",
}
"""The short names of states for typing; `appr` is every wait for a person.

For many jobs that wait, people read the word for what they wait for: `Wait`."""


class Wait(StrEnum):
    """What a job waits for, if it is neither a retry nor a breaker: shown instead of its state."""

    ASKS = "asks"
    """A request for approval."""
    EFFECT = "effect"
    """An effect whose outcome is unknown."""
    BUDGET = "budget"
    """A budget or a quota that is spent."""
    PERSON = "person"
    """Anything else that a person has to do: give an account credit, accept a changed tool."""
    SLEEP = "sleep"
    """A timer of its own code, which no person has to end."""
    SIGNAL = "signal"
    """A signal, which something outside sends."""
    CHILD = "child"
    """Jobs that it has submitted, which end."""
    LIMIT = "limit"
    """Room in a limit of its type."""
    BATCH = "batch"
    """A model call in a batch, which its provider ends within a day."""
    CODE = "code"
    """Code that can take it: no living pod has such."""


def wait_of(status: JobStatus, waiting_on: str | None) -> Wait | None:  # noqa: PLR0911 -- a table
    """Return the wait that people see, from a job's state and `waiting_on`; None: its state."""
    on = waiting_on or ""
    if on == CODE:
        return Wait.CODE
    if on.startswith(LIMIT) and not status.is_terminal:
        return Wait.LIMIT
    if status not in (JobStatus.WAITING_FOR_APPROVAL, JobStatus.RETRY):
        return None
    if on.startswith((BUDGET, QUOTA)):
        return Wait.BUDGET
    if on.startswith(TRUST):
        return Wait.PERSON
    if on.startswith((SIGNAL, CHILD)):
        return Wait.SIGNAL if on.startswith(SIGNAL) else Wait.CHILD
    if on.startswith(APPROVAL):
        return Wait.ASKS  # also beside a timer
    if status is JobStatus.RETRY:
        return {SLEEP: Wait.SLEEP, BATCH: Wait.BATCH}.get(on)
    if on.startswith(UNKNOWN_EFFECT):
        return Wait.EFFECT
    return Wait.PERSON if on.startswith(PERSON) else Wait.ASKS


@attrs.frozen
class StateTerm:
    """One value of `status:`: a state, optionally only of jobs that wait for something."""

    status: JobStatus
    waiting_on: str = ""
    """Prefix of `waiting_on`; "": any."""
    is_bare: bool = False
    """Only of jobs that people see in this state: no word of `Wait` says more of them."""

    @property
    def pattern(self) -> str:
        """The LIKE pattern for `STATUS|waiting_on`."""
        return f"{self.status.value}|{self.waiting_on}%"


_APPR: Final = JobStatus.WAITING_FOR_APPROVAL
_OF_PEOPLE: Final = (APPROVAL, UNKNOWN_EFFECT, BUDGET, QUOTA, PERSON, TRUST)
"""What a job in that state waits for, if people end its wait; signals and children also do so."""
_WAITS: Final[Mapping[str, tuple[StateTerm, ...]]] = {
    Wait.ASKS: tuple(StateTerm(status, APPROVAL) for status in (_APPR, JobStatus.RETRY)),
    Wait.EFFECT: (StateTerm(_APPR, UNKNOWN_EFFECT),),
    Wait.BUDGET: tuple(
        StateTerm(status, prefix)
        for status in (_APPR, JobStatus.RETRY)
        for prefix in (BUDGET, QUOTA)
    ),
    Wait.PERSON: (StateTerm(_APPR, PERSON), StateTerm(JobStatus.RETRY, TRUST)),
    Wait.SLEEP: (StateTerm(JobStatus.RETRY, SLEEP),),
    Wait.SIGNAL: tuple(StateTerm(status, SIGNAL) for status in (_APPR, JobStatus.RETRY)),
    Wait.CHILD: tuple(StateTerm(status, CHILD) for status in (_APPR, JobStatus.RETRY)),
    Wait.BATCH: (StateTerm(JobStatus.RETRY, BATCH),),
    Wait.LIMIT: tuple(
        StateTerm(status, LIMIT)
        for status in (JobStatus.PENDING, JobStatus.RETRY, JobStatus.WAITING_FOR_APPROVAL)
    ),
    Wait.CODE: tuple(
        StateTerm(status, CODE)
        for status in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRY)
    ),
}
STATE_NAMES: Final = (*STATE_WORDS.values(), *Wait)
"""The words of `status:` that people type."""
_STATES: Final[Mapping[str, tuple[StateTerm, ...]]] = {
    **{status.value.lower(): (StateTerm(status),) for status in JobStatus},
    **{word: (StateTerm(status),) for status, word in STATE_WORDS.items()},
    STATE_WORDS[_APPR]: tuple(StateTerm(_APPR, prefix) for prefix in _OF_PEOPLE),
    STATE_WORDS[JobStatus.RETRY]: (StateTerm(JobStatus.RETRY, is_bare=True),),
    **_WAITS,
}


LETTER_STATES: Final[Mapping[str, tuple[DeadLetterState, ...]]] = {
    **{state.value.lower(): (state,) for state in DeadLetterState},
    "unresolved": UNRESOLVED,
    "all": tuple(DeadLetterState),
}
"""The words of `letter:` that people type."""


@attrs.frozen(kw_only=True)
class JobFilter:
    """All of these must hold; an empty one leaves its criterion out."""

    states: tuple[StateTerm, ...] = ()
    """One of them must fit."""
    types: tuple[str, ...] = ()
    """Patterns in which `*` stands for any text; those below, too. One of them must fit."""
    agents: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    tenant: str | None = None
    """Only this tenant's, exactly: what the caller may see, and no term of the text."""
    tags: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    """Codes of the errors that they failed with."""
    classes: tuple[FailureClass, ...] = ()
    """Classes of those errors."""
    letters: tuple[DeadLetterState, ...] = ()
    """States of their dead letters."""
    fingerprints: tuple[str, ...] = ()
    """Beginnings of the fingerprints of their dead letters."""
    pods: tuple[str, ...] = ()
    """Names of the pods that run them, or ran them last."""
    id_suffixes: tuple[str, ...] = ()
    """Hexadecimal digits, 4 to 32."""
    older_than_s: float | None = None
    """Submitted more than this many seconds ago."""
    newer_than_s: float | None = None
    created_after: datetime | None = None
    """Aware, and excluded; the next one, too."""
    created_before: datetime | None = None
    ended_before_s: float | None = None
    """Ended more than this many seconds ago."""
    ended_within_s: float | None = None
    """Ended at most this many seconds ago."""

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The states of `states`, each once, in their order."""
        return tuple(dict.fromkeys(each.status for each in self.states))

    @property
    def state_patterns(self) -> list[str] | None:
        """LIKE patterns for `STATUS|waiting_on`; None: the states alone decide.

        One that begins with `!` excludes what the others match.
        """
        if not any(each.waiting_on or each.is_bare for each in self.states):
            return None
        wanted = [each.pattern for each in self.states]
        whole = {each.status for each in self.states if not (each.waiting_on or each.is_bare)}
        others = [
            each.pattern
            for terms in _WAITS.values()
            for each in terms
            if StateTerm(each.status, is_bare=True) in self.states and each.status not in whole
        ]
        return [*wanted, *(f"!{each}" for each in others if each not in wanted)]

    @property
    def is_about_progress(self) -> bool:
        """A job that matches may no longer match after its state changes."""
        is_about_failures = bool(self.codes or self.classes) or self.letter_patterns is not None
        return bool(self.states) or is_about_failures or self.is_about_ends

    @property
    def is_about_ends(self) -> bool:
        """Only jobs that have ended can match."""
        return self.ended_before_s is not None or self.ended_within_s is not None

    @property
    def is_about_letters(self) -> bool:
        """It names states of dead letters: it selects these, not other jobs."""
        return bool(self.letters)

    @property
    def is_unresolved(self) -> bool:
        """No dead letter that was retried or discarded can match, if any is named or none is."""
        return all(state.is_unresolved for state in self.letters)

    @property
    def letter_patterns(self) -> list[str] | None:
        """LIKE patterns for `STATE|fingerprint` of a dead letter; None: it need not have one."""
        if not (self.letters or self.fingerprints):
            return None
        states = [each.value for each in self.letters] or ["%"]
        return [f"{state}|{each}%" for state in states for each in self.fingerprints or ("",)]

    def with_states(self, *statuses: JobStatus) -> "JobFilter":
        """Return the filter with these states instead of its own."""
        return attrs.evolve(self, states=tuple(StateTerm(status) for status in statuses))


DEAD: Final = JobFilter(letters=UNRESOLVED)
"""The saved filter of dead letters: failed jobs that wait for a decision."""


def parse_filter(text: str) -> JobFilter:
    """Read a filter; "" matches every job. Raises `UsageError` that names the term."""
    _refuse_unusable(text)
    fields: dict[str, Any] = {}
    for key, sign, values in _terms(text):
        field, read = _reader(key, sign)
        for value in values:
            read(fields, field, value)
    for field, value in fields.items():
        if isinstance(value, tuple) and len(value) > VALUES_MAX:
            raise UsageError(f"{len(value)} {field} are more than {VALUES_MAX}")
    return JobFilter(**fields)


def of_letters(text: str) -> str:
    """Return a valid filter for dead letters: the unresolved ones, unless it names their states."""
    return text if parse_filter(text).letters else f"letter:unresolved {text}".strip()


def with_terms(text: str, terms: Mapping[str, str]) -> str:
    """Return a valid filter with more terms, for these exact values.

    Raises `UsageError` for a key that it has already: two terms of one key are alternatives.
    """
    taken = {key for key, _, _ in _terms(text)}
    for key, value in terms.items():
        if key in taken:
            raise UsageError(
                f"{key} is in the filter {_shown(text)!r} already", hint="give it once"
            )
        if "*" in value:
            raise UsageError(
                f"{key} {_shown(value)!r} is no exact value", hint=f"a pattern is a filter: {key}:…"
            )
    return " ".join((text, *(term(key, value) for key, value in terms.items()))).strip()


def term(key: str, value: str) -> str:
    """Return a term that matches a text: `pod:eu-2`, `queue:"big jobs"`."""
    if re.fullmatch(r"[\w.:/@-]+", value):
        return f"{key}:{value}"
    quoted = value.replace('"', '"\'"\'"')  # the quotation mark alone in the other quotes
    return f'{key}:"{quoted}"'


def with_only(text: str, key: str, value: str) -> str:
    """Return a valid filter with this term instead of those of its key."""
    others = [match[0].strip() for match in _TERM.finditer(text) if match["key"].lower() != key]
    return " ".join([*others, term(key, value)])


def parse_state(word: str) -> tuple[StateTerm, ...]:
    """Return the meaning of a word: `run`, `RUNNING`, `effect`. Raises `UsageError`.

    `RETRY` in capitals is the state as it is stored, with all that waits in it; `retry` is what
    people see as such.
    """
    if word.strip() == JobStatus.RETRY:
        return (StateTerm(JobStatus.RETRY),)
    return _word(word, _STATES, "state", STATE_NAMES)


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def parse_fingerprint(text: str) -> str:
    """Return the beginning of a fingerprint in lower case. Raises `UsageError`."""
    digits = text.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{4,12}", digits, re.ASCII):
        raise UsageError(f"{_shown(text)!r} is not a fingerprint or its first 4 digits")
    return digits


Meaning = TypeVar("Meaning")
_PLURALS: Final = {"state": "states", "class": "classes", "state of a dead letter": "states"}


def _word(
    word: str, meanings: Mapping[str, Meaning], kind: str, shown: Sequence[str] = ()
) -> Meaning:
    """Return the meaning of a word. Raises `UsageError` that suggests another one."""
    meaning = meanings.get(word.strip().lower())
    if meaning is None:
        close = difflib.get_close_matches(word.lower(), meanings, n=1)
        known = f"{_PLURALS[kind]}: {', '.join(shown or meanings)}"
        hint = f"did you mean {close[0]!r}?" if close else known
        raise UsageError(f"unknown {kind} {_shown(word)!r}", hint=hint)
    return meaning


# --- terms

_TERM: Final = re.compile(
    r"""\s* (?P<key>[^\s:<>"',]+) (?P<sign>[:<>])
        (?P<values> (?: "[^"]*" | '[^']*' | [^\s"',] | , )+ )""",
    re.VERBOSE,
)
_VALUE: Final = re.compile(r""" "([^"]*)" | '([^']*)' | ([^"',]+) | (,) """, re.VERBOSE)
_KEYS: Final = (
    "status:STATE type:T agent:NAME queue:Q tenant:NAME tag:TAG code:CODE class:CLASS pod:NAME "
    "age>10m created<DATE ended<2h id:… letter:STATE fingerprint:F"
)


def _refuse_unusable(text: str) -> None:
    if len(text) > TEXT_MAX:
        raise UsageError(f"a filter of {len(text):,} characters is longer than {TEXT_MAX:,}")
    if "\0" in text or LONE_SURROGATE.search(text):
        raise UsageError("the filter holds characters that no job can have")


def _terms(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield key, sign and values of each term."""
    at, end = 0, len(text.rstrip())
    while at < end:
        term = _TERM.match(text, at)
        if term is None:
            rest = text[at:].strip()
            raise UsageError(
                f"{_shown(rest)!r} is no part of a filter", hint=f"a key and a value: {_KEYS}"
            )
        at = term.end()
        yield term["key"].lower(), term["sign"], _values(term)


def _values(term: re.Match[str]) -> list[str]:
    """Split at commas outside quotes; quoted and plain pieces that touch are one value."""
    values = [""]
    for piece in _VALUE.finditer(term["values"]):
        if piece[4]:
            values.append("")
        else:
            values[-1] += piece[1] or piece[2] or piece[3] or ""
    if not all(values):
        raise UsageError(f"a value is missing in {_shown(term[0].strip())!r}")
    return values


# --- keys

_Read = Callable[[dict[str, Any], str, str], None]


def _add_text(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = (*fields.get(field, ()), value)


def _add_state(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = tuple(dict.fromkeys((*fields.get(field, ()), *parse_state(value))))


def _add_suffix(fields: dict[str, Any], field: str, value: str) -> None:
    digits = value.lstrip("…~*").lower().replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{ID_DIGITS_MIN},32}}", digits, re.ASCII):
        raise UsageError(
            f"{_shown(value)!r} is not the id of a job, or the end of one",
            hint=f"give at least its last {ID_DIGITS_MIN} digits",
        )
    fields[field] = (*fields.get(field, ()), digits)


def _add_class(fields: dict[str, Any], field: str, value: str) -> None:
    found = _word(value, {each.value.lower(): (each,) for each in FailureClass}, "class")
    fields[field] = tuple(dict.fromkeys((*fields.get(field, ()), *found)))


def _add_letter(fields: dict[str, Any], field: str, value: str) -> None:
    found = _word(value, LETTER_STATES, "state of a dead letter")
    fields[field] = tuple(dict.fromkeys((*fields.get(field, ()), *found)))


def _add_fingerprint(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = (*fields.get(field, ()), parse_fingerprint(value))


def _larger_span(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = max(parse_span(value), fields.get(field, 0.0))


def _smaller_span(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = min(parse_span(value), fields.get(field, float("inf")))


def _later(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = max(_instant(value), fields.get(field, _instant(value)))


def _earlier(fields: dict[str, Any], field: str, value: str) -> None:
    fields[field] = min(_instant(value), fields.get(field, _instant(value)))


def _instant(text: str) -> datetime:
    """Read a date or an instant; without a zone it is UTC."""
    try:
        instant = datetime.fromisoformat(text)
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{_shown(text)!r} is neither a date nor an instant",
            hint="such as 2026-01-31 or 2026-01-31T12:30:00Z",
        ) from error


_READERS: Final[Mapping[str, Mapping[str, tuple[str, _Read]]]] = {
    "status": {":": ("states", _add_state)},
    "type": {":": ("types", _add_text)},
    "agent": {":": ("agents", _add_text)},
    "queue": {":": ("queues", _add_text)},
    "tenant": {":": ("tenants", _add_text)},
    "tag": {":": ("tags", _add_text)},
    "code": {":": ("codes", _add_text)},
    "class": {":": ("classes", _add_class)},
    "pod": {":": ("pods", _add_text)},
    "id": {":": ("id_suffixes", _add_suffix)},
    "age": {">": ("older_than_s", _larger_span), "<": ("newer_than_s", _smaller_span)},
    "created": {">": ("created_after", _later), "<": ("created_before", _earlier)},
    "ended": {">": ("ended_before_s", _larger_span), "<": ("ended_within_s", _smaller_span)},
    "letter": {":": ("letters", _add_letter)},
    "fingerprint": {":": ("fingerprints", _add_fingerprint)},
}

TEXT_KEYS: Final = tuple(key for key, signs in _READERS.items() if ":" in signs)
"""Keys that a colon and a value follow."""
KEY_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "status": STATE_NAMES,
    "class": tuple(each.value.lower() for each in FailureClass),
    "letter": tuple(LETTER_STATES),
}
"""All values of the keys that have few."""


def _reader(key: str, sign: str) -> tuple[str, _Read]:
    if key not in _READERS:
        close = difflib.get_close_matches(key, _READERS, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"unknown key {_shown(key)!r} in the filter",
            hint=f"{meant}known: {', '.join(_READERS)}",
        )
    if sign not in _READERS[key]:
        takes = " or ".join(f"{key}{each}" for each in _READERS[key])
        raise UsageError(f"{key}{sign} is invalid in a filter", hint=f"write {takes}")
    return _READERS[key][sign]


def like(patterns: Sequence[str]) -> list[str] | None:
    """Return LIKE patterns, in which only `*` is special; None: there are none."""
    escaped = (each.translate({ord(c): f"\\{c}" for c in "\\%_"}) for each in patterns)
    return [each.replace("*", "%") for each in escaped] or None


# --- places in lists


@attrs.frozen
class JobCursor:
    """The position where a list of jobs continues: later entries are older, or due later.

    `at` None: when the job was made.
    """

    id: UUID
    at: datetime | None = None


# --- Which of many jobs a bulk operation would change, and why not the others.


UNFINISHED: Final = tuple(status for status in JobStatus if not status.is_terminal)

HEIR: Final = "a new job goes on from its last checkpoint"
HEIRS: Final = "each goes on in a new job, from its last checkpoint"
"""What a retry of failed jobs does, for people who confirm it."""


class Refusal(Enum):
    """Why a job stays unchanged; the value follows their number: `3 had ended`."""

    ENDED = "had ended"
    RUNNING = "running just now"
    WAITING = "waiting for something else"
    UNTRIED = "not tried yet"
    CODE = "waiting for code that fits them"
    DUE = "due already"
    SETTLED = "retried or discarded before"
    TOO_LARGE = "too large to go on from"
    GONE = "not there"


@attrs.frozen(kw_only=True)
class JobSituation:
    """The state of a job with respect to a retry."""

    status: JobStatus
    waiting_on: str | None
    task_state: str | None
    """None: it has no task."""
    is_later: bool
    """Its task is due in the future."""
    is_unfit: bool = False
    """Code has handed it back."""
    is_settled: bool | None = None
    """A failed job was retried or discarded before; None: no new job can continue it."""


_WOULD_WAIT_AGAIN: Final = (Wait.SLEEP, Wait.BATCH, Wait.SIGNAL, Wait.CHILD, Wait.ASKS)
"""What another attempt would find as it is, also beside a time-out."""


def why_not_cancel(status: JobStatus) -> Refusal | None:
    """Return why a job cannot be cancelled; None if it can."""
    return Refusal.ENDED if status.is_terminal else None


def why_not_retry(job: JobSituation) -> Refusal | None:
    """Return why a job cannot be tried again; None if it can, a failed one in a new job."""
    is_between = job.status in (JobStatus.RUNNING, JobStatus.RETRY)
    if job.status is JobStatus.FAILED and job.is_settled is not None:
        return Refusal.SETTLED if job.is_settled else None
    if job.status.is_terminal:
        refusal = Refusal.ENDED
    elif job.status is JobStatus.PENDING:
        refusal = Refusal.UNTRIED
    elif job.task_state == "LOCKED":
        refusal = Refusal.RUNNING
    elif job.task_state is not None:
        if job.is_unfit or (is_between and job.is_later):
            return None
        refusal = Refusal.CODE if job.waiting_on == CODE else Refusal.DUE
    elif wait_of(job.status, job.waiting_on) in _WOULD_WAIT_AGAIN:
        refusal = Refusal.WAITING
    else:
        is_for_person = (job.waiting_on or "").startswith(PERSON)
        return None if job.status is JobStatus.RETRY or is_for_person else Refusal.WAITING
    return refusal
