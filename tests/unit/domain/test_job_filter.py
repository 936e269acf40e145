"""The filter for jobs: its syntax, and the errors for invalid ones."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.dead_letter import UNRESOLVED, DeadLetterState
from cortex.domain.errors import UsageError
from cortex.domain.failure import FailureClass
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import (
    DEAD,
    STATE_WORDS,
    TEXT_MAX,
    JobFilter,
    StateTerm,
    Wait,
    of_letters,
    parse_filter,
    term,
    wait_of,
    with_only,
)
from cortex.view.jobs import SHOWN, state_shown

RETRY, FAILED = JobStatus.RETRY, JobStatus.FAILED
APPR = JobStatus.WAITING_FOR_APPROVAL
SEEN_RETRY = StateTerm(RETRY, is_bare=True)


@pytest.mark.parametrize(
    "text, which",
    [
        ("", JobFilter()),
        ("  ", JobFilter()),
        (
            "status:retry agent:invoice-* type:x age>10m",
            JobFilter(
                states=(SEEN_RETRY,), agents=("invoice-*",), types=("x",), older_than_s=600.0
            ),
        ),
        ("status:retry,fail", JobFilter(states=(SEEN_RETRY, StateTerm(FAILED)))),
        (
            "status:fail status:RETRY STATUS:Fail",
            JobFilter(states=(StateTerm(FAILED), StateTerm(RETRY))),
        ),
        ("status:sleep", JobFilter(states=(StateTerm(RETRY, "sleep"),))),
        ("status:waiting_for_approval", JobFilter(states=(StateTerm(APPR),))),
        ('queue:"big jobs, slow",q2', JobFilter(queues=("big jobs, slow", "q2"))),
        ("tenant:'it\"s'", JobFilter(tenants=('it"s',))),
        ('type:a"b c"d', JobFilter(types=("ab cd",))),
        ("code:http:500", JobFilter(codes=("http:500",))),
        ("age>1h age>2h age<3d age<1d", JobFilter(older_than_s=7200.0, newer_than_s=86_400.0)),
        (
            "created>2026-01-31 created<2026-02-01T12:30:00+02:00",
            JobFilter(
                created_after=datetime(2026, 1, 31, tzinfo=UTC),
                created_before=datetime(2026, 2, 1, 10, 30, tzinfo=UTC),
            ),
        ),
        ("id:…9F3a1c,0123-4567", JobFilter(id_suffixes=("9f3a1c", "01234567"))),
        ("type:'; DROP TABLE job --'", JobFilter(types=("; DROP TABLE job --",))),
        ("agent:%_\\", JobFilter(agents=("%_\\",))),
        ("letter:unresolved", DEAD),
        (
            "letter:open,Discarded letter:open fingerprint:3FA9,0123456789ab class:permanent",
            JobFilter(
                letters=(DeadLetterState.OPEN, DeadLetterState.DISCARDED),
                fingerprints=("3fa9", "0123456789ab"),
                classes=(FailureClass.PERMANENT,),
            ),
        ),
        (
            "ended<2h ended<1h ended>1m ended>10m",
            JobFilter(ended_within_s=3600.0, ended_before_s=600.0),
        ),
    ],
)
def test_a_filter_is_read(text: str, which: JobFilter) -> None:
    assert parse_filter(text) == which


@pytest.mark.parametrize(
    "text, message, hint",
    [
        ("retry", "'retry' is no part of a filter", "status:S"),
        ("status:run typ:x", "unknown key 'typ'", "did you mean 'type'? known: status, type"),
        ("zzz:x", "unknown key 'zzz'", "known: status"),
        ("status:runing", "unknown state 'runing'", "did you mean"),
        ("status:zzz", "unknown state 'zzz'", "states: pend, run"),
        ("type:", "'type:' is no part", "a key and a value"),
        ("type: x", "'type: x' is no part", "a key and a value"),
        ("type:a,,b", "a value is missing in 'type:a,,b'", ""),
        ("type:,", "a value is missing", ""),
        ('type:""', "a value is missing", ""),
        ('type:"open', "is no part of a filter", ""),
        ('type:a"open', "is no part of a filter", ""),
        ("type>x", "type> is invalid", "write type:"),
        ("age:10m", "age: is invalid", "write age> or age<"),
        ("age>10", "'10' is not a time", ""),
        ("age>9999999w", "'9999999w' is more than 36,500d", ""),
        ("created>soon", "'soon' is neither a date nor an instant", "2026-01-31"),
        ("created>0001-01-01T00:00:00+23:59", "is neither a date", ""),
        ("letter:opne", "unknown state of a dead letter 'opne'", "did you mean 'open'?"),
        ("letter:zz", "unknown state of a dead letter 'zz'", "states: open, escalated"),
        ("class:zz", "unknown class 'zz'", "classes: valid, transient_infra"),
        ("fingerprint:3fa", "'3fa' is not a fingerprint or its first 4 digits", ""),
        ("ended:2h", "ended: is invalid", "write ended> or ended<"),
        ("id:xyz", "'xyz' is not the id of a job", "at least its last 4"),
        ("id:abc", "'abc' is not the id of a job", ""),
        ("id:" + "a" * 33, "is not the id of a job", ""),
        ("type:a\0b", "no job can have", ""),
        ("type:\ud800", "no job can have", ""),
        ("x" * (TEXT_MAX + 1), "is longer than 2,000", ""),
        ("type:" + ",".join("abc"[n % 3] for n in range(51)), "51 types are more than 50", ""),
    ],
)
def test_invalid_filter_is_refused_with_a_hint(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@given(st.text(max_size=200) | st.text(alphabet="status:<>,\"' *ageid019-", max_size=200))
def test_any_text_is_a_filter_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert isinstance(parse_filter(text), JobFilter)


def test_the_words_for_states_are_those_that_are_shown() -> None:
    assert len({state.glyph for state in SHOWN} | {state.word for state in SHOWN}) == 2 * len(SHOWN)
    for state in SHOWN:
        assert parse_filter(f"status:{state.word}").states
    for status, word in STATE_WORDS.items():
        assert parse_filter(f"status:{word}").statuses == (status,)
        assert parse_filter(f"status:{status.value}").statuses == (status,)


@pytest.mark.parametrize(
    "status, waiting_on, shown",
    [
        (APPR, "approval:0f", "◆ asks"),
        (APPR, None, "◆ asks"),
        (APPR, "effect:0f", "? effect"),
        (APPR, "budget:tenant:default:usd:run", "$ budget"),
        (APPR, "person:llm:claude", "! person"),
        (RETRY, "budget:tenant:default:usd:day", "$ budget"),
        (RETRY, "quota:pay:calls:hour", "$ budget"),
        (RETRY, "trust:clerk/notes.create", "! person"),
        (RETRY, "llm:claude", "↻ retry"),
        (RETRY, "effects:all", "↻ retry"),
        (JobStatus.RUNNING, "quota:pay:calls:hour", "● run"),
        (FAILED, "effect:0f", "✗ fail"),
    ],
)
def test_waiting_state_names_what_the_job_waits_for(
    status: JobStatus, waiting_on: str | None, shown: str
) -> None:
    state = state_shown(status, waiting_on)
    assert str(state) == shown
    assert status in parse_filter(f"status:{state.word}").statuses


@pytest.mark.parametrize("value", ["plain", "big jobs", "a,b", 'it\'s "so"', '"', "…"])
def test_quoted_term_matches_its_value_alone(value: str) -> None:
    assert parse_filter(f"{term('tenant', value)} type:x").tenants == (value,)


def test_filter_of_letters_keeps_the_states_that_it_names() -> None:
    assert of_letters("") == "letter:unresolved"
    assert parse_filter(of_letters("type:x")).letters == UNRESOLVED
    assert of_letters("letter:retried type:x") == "letter:retried type:x"


def test_states_and_fingerprints_of_letters_are_matched_together() -> None:
    which = parse_filter("letter:open,retried fingerprint:3fa9,4fa9")
    assert which.letter_patterns == [
        *("OPEN|3fa9%", "OPEN|4fa9%", "RETRIED|3fa9%", "RETRIED|4fa9%")
    ]
    assert parse_filter("fingerprint:3fa9").letter_patterns == ["%|3fa9%"]
    assert parse_filter("status:fail").letter_patterns is None


def test_filter_shows_whether_state_changes_matter() -> None:
    for text in ("status:run", "code:x", "class:budget", "letter:open", "fingerprint:3fa9"):
        assert parse_filter(text).is_about_progress, text
    assert parse_filter("ended<1h").is_about_progress
    assert not parse_filter("type:x age>1h").is_about_progress


def test_a_word_for_a_wait_narrows_its_states_alone() -> None:
    which = parse_filter("status:effect,run,effect")
    assert which.states == (StateTerm(APPR, "effect:"), StateTerm(JobStatus.RUNNING))
    assert which.statuses == (APPR, JobStatus.RUNNING)
    assert which.state_patterns == ["WAITING_FOR_APPROVAL|effect:%", "RUNNING|%"]
    assert parse_filter("status:done,run").state_patterns is None


def test_status_retry_leaves_out_waits_that_people_see_as_such() -> None:
    patterns = parse_filter("status:retry,sleep").state_patterns
    assert patterns is not None
    assert patterns[:2] == ["RETRY|%", "RETRY|sleep%"]
    assert {"!RETRY|signal:%", "!RETRY|child:%", "!RETRY|code%"} <= {*patterns}
    assert "!RETRY|sleep%" not in patterns, "it is asked for"
    assert parse_filter("status:RETRY").state_patterns is None, "the state as it is stored"


def test_words_of_waits_for_people_leave_out_signals_and_children() -> None:
    patterns = parse_filter("status:appr").state_patterns
    assert patterns is not None
    assert "WAITING_FOR_APPROVAL|approval:%" in patterns
    assert not [each for each in patterns if "signal" in each or "child" in each]
    assert parse_filter("status:signal").state_patterns == [
        "WAITING_FOR_APPROVAL|signal:%",
        "RETRY|signal:%",
    ]
    assert wait_of(APPR, "signal:payment") is Wait.SIGNAL
    assert wait_of(JobStatus.RETRY, "signal:payment") is Wait.SIGNAL
    assert wait_of(APPR, "child:resize") is Wait.CHILD
    assert wait_of(JobStatus.RETRY, "approval:1") is Wait.ASKS
    assert wait_of(JobStatus.RUNNING, "signal:payment") is None


@pytest.mark.parametrize(
    "text, output",
    [
        ("", "status:retry"),
        ("status:retry", "status:retry"),
        ("status:run,retry  type:a status:done", "type:a status:retry"),
        (" STATUS:run queue:'status:x, y'", "queue:'status:x, y' status:retry"),
        ("age>10m type:status", "age>10m type:status status:retry"),
    ],
)
def test_a_term_takes_the_place_of_those_of_its_key(text: str, output: str) -> None:
    assert with_only(text, "status", "retry") == output
    assert parse_filter(output).statuses == (JobStatus.RETRY,)
