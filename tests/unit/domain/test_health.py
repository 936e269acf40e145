"""Which figures of the queue are ok, and from where on they are not."""

import pytest

from cortex.domain import health
from cortex.domain.health import THRESHOLDS, Rates, Word, measure


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_figure_is_judged_by_its_thresholds(name: str) -> None:
    threshold = THRESHOLDS[name]
    assert measure(name, threshold.warn_over).word is Word.OK
    assert measure(name, threshold.warn_over * 1.01 or 1).word is Word.WARN
    if threshold.bad_over is None:
        assert measure(name, threshold.warn_over * 1e6 or 1e6).word is Word.WARN
    else:
        assert measure(name, threshold.bad_over).word is Word.WARN
        assert measure(name, threshold.bad_over * 1.01).word is Word.BAD


def test_a_rate_of_few_is_never_bad() -> None:
    assert measure(health.FAILURE_RATE, 1.0, among=health.AMONG_MIN - 1).word is Word.WARN
    assert measure(health.FAILURE_RATE, 1.0, among=health.AMONG_MIN).word is Word.BAD


def test_rates_without_data_are_ok() -> None:
    rates = Rates(completed=0, failed=0, attempt_errors=0, call_retries=0, letters=0).measures()
    assert [(each.value, each.word) for each in rates] == [(None, Word.OK)] * 3


def test_rates_divide_by_what_ended() -> None:
    rates = Rates(completed=80, failed=5, attempt_errors=20, call_retries=10, letters=3).measures()
    failure, churn, dead = rates
    assert (failure.value, failure.among) == (20 / 100, 100)
    assert (churn.value, churn.among) == ((15 + 10) / 100, 100)
    assert (dead.value, dead.among) == (3 / 85, 85)


def test_jobs_failed_without_an_attempt_do_not_lower_the_churn() -> None:
    rates = Rates(completed=90, failed=10, attempt_errors=4, call_retries=0, letters=0).measures()
    assert rates[1].value == 0


def test_the_whole_is_as_bad_as_its_worst_part() -> None:
    assert Word.worst([Word.OK, Word.BAD, Word.WARN]) is Word.BAD
    assert Word.worst([Word.WARN, Word.OK]) is Word.WARN
    assert Word.worst([]) is Word.OK
