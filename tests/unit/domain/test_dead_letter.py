"""The triage's decision on a failed job, and the description of a retry."""

import json
from typing import Any

import pytest

from cortex.domain.dead_letter import (
    REMEDIES,
    DeadLetterState,
    FailureCause,
    PayloadEdit,
    judge,
    prospect,
)
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.domain.failure import CODES


def a_cause(**fields: Any) -> FailureCause:
    return FailureCause(**{"code": "job_failed", "message": "it broke"} | fields)


@pytest.mark.parametrize(
    "cause, state",
    [
        (a_cause(), DeadLetterState.OPEN),
        (a_cause(error_class="PERMANENT"), DeadLetterState.OPEN),
        (a_cause(error_class="PERMANENT", code="usage"), DeadLetterState.ESCALATED),
        (a_cause(error_class="PERMANENT", code="not_found"), DeadLetterState.ESCALATED),
        (a_cause(error_class="PERMANENT", code="forbidden"), DeadLetterState.ESCALATED),
        (a_cause(error_class="TRANSIENT_APP", code="not_found"), DeadLetterState.OPEN),
        (a_cause(error_class="TRANSIENT_APP", is_escalated=True), DeadLetterState.ESCALATED),
        (a_cause(error_class="PERMANENT", code="poison"), DeadLetterState.OPEN),
        (
            a_cause(code="invalid_value", message="payload of 'x' lacks url"),
            DeadLetterState.ARCHIVED,
        ),
        (a_cause(code="invalid_value", message="payload.n is no int"), DeadLetterState.ARCHIVED),
        (a_cause(code="invalid_value", message="result holds nan"), DeadLetterState.OPEN),
        (a_cause(code="job_failed", message="payload lost in the mail"), DeadLetterState.OPEN),
    ],
)
def test_each_cause_has_its_verdict(cause: FailureCause, state: DeadLetterState) -> None:
    verdict = judge(cause)
    assert verdict.state is state
    assert (verdict.reason is None) == (state is DeadLetterState.OPEN)


@pytest.mark.parametrize(
    "cause, step, output",
    [
        (a_cause(), None, "restarts"),
        (a_cause(), "3 fetch", "continues after step 3 fetch"),
        (
            a_cause(error_class="TRANSIENT_APP", source="llm:x", breaker="OPEN"),
            "3 fetch",
            "continues after step 3 fetch, then waits: the breaker of llm:x is OPEN",
        ),
        (
            a_cause(error_class="TRANSIENT_APP", source="llm:x", breaker="CLOSED"),
            "3 fetch",
            "continues after step 3 fetch",
        ),
        (
            a_cause(error_class="PERMANENT", code="forbidden"),
            None,
            "restarts; will fail again unless the credentials are fixed",
        ),
        (
            a_cause(error_class="PERMANENT", code="rejected"),
            "1 a",
            "continues after step 1 a; will fail again unless its code or agent changes",
        ),
        (
            a_cause(error_class="PERMANENT", code="authentication", source="llm:x", breaker="OPEN"),
            "1 a",
            (
                "continues after step 1 a, waits while the breaker of llm:x is OPEN; "
                "will fail again unless the credentials are fixed"
            ),
        ),
        (
            a_cause(
                error_class="PERMANENT", code="invalid_request", source="llm:x", breaker="HALF_OPEN"
            ),
            None,
            (
                "restarts, waits while the breaker of llm:x is HALF_OPEN; "
                "will fail again unless its code or agent changes"
            ),
        ),
        (
            a_cause(error_class="INVALID_OUTPUT", code="invalid_output", asks_again_after=4),
            "5 model",
            "asks the model again after step 4",
        ),
        (
            a_cause(error_class="PERMANENT", code="rejected", asks_again_after=0),
            "1 model",
            "asks the model again",
        ),
        (
            a_cause(error_class="PERMANENT", code="diverged"),
            "1 a",
            "fails again unless it restarts or its code changes: --from-start",
        ),
        (
            a_cause(code="invalid_value", message="payload of 'x' lacks url"),
            None,
            "fails again unless its payload is edited or its code changes: --payload FILE",
        ),
    ],
)
def test_a_retry_is_foretold_in_one_line(
    cause: FailureCause, step: str | None, output: str
) -> None:
    assert prospect(cause, step=step) == output


def test_archived_letters_wait_for_a_decision_like_the_others() -> None:
    waiting = [state for state in DeadLetterState if state.is_unresolved]
    assert waiting == ["OPEN", "ESCALATED", "ARCHIVED"]


def test_a_payload_edit_records_the_first_differences_briefly() -> None:
    old = {"url": "a", "n": 1, "gone": True}
    edit = PayloadEdit.of("work", old, '{"url": "' + "b" * 1000 + '", "n": 1.0, "new": null}')
    assert [each.field for each in edit.changes] == ["url", "n", "gone", "new"]
    (url, number, gone, new) = json.loads(edit.record)
    assert (url["old"], len(url["new"])) == ('"a"', 500)
    assert (number, gone) == (
        {"field": "n", "old": "1", "new": "1.0"},
        {"field": "gone", "old": "true", "new": None},
    )
    assert new == {"field": "new", "old": None, "new": "null"}
    many = PayloadEdit.of("work", {}, json.dumps({str(n): n for n in range(300)}))
    assert len(json.loads(many.record)) == 100


@pytest.mark.parametrize("job_type, payload", [("work", '{"n": 1}'), ("bulk", "{}")])
def test_a_payload_that_is_the_same_or_has_a_command_of_its_own_is_refused(
    job_type: str, payload: str
) -> None:
    with pytest.raises(UsageError):
        PayloadEdit.of(job_type, {"n": 1}, payload)


def test_remedies_cover_only_known_permanent_codes() -> None:
    assert set(REMEDIES) - set(CODES) == {UsageError.code, ForbiddenError.code}
    assert not [code for code in REMEDIES if code in CODES and CODES[code].cls.is_transient]
