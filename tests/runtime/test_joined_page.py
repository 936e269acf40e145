"""One metrics page for several workers."""

from cortex.runtime.metrics.joined_page import JoinedPage

PAGE = """\
# HELP cortex_claims_total attempts begun
# TYPE cortex_claims_total counter
cortex_claims_total{{type="a b"}} {claims}
# HELP cortex_job_attempts attempts per ended job
# TYPE cortex_job_attempts histogram
cortex_job_attempts_bucket{{le="1.0"}} {claims}
cortex_job_attempts_count {claims}
# HELP cortex_slots most jobs that this pod runs at once
# TYPE cortex_slots gauge
cortex_slots 10.0
# HELP cortex_breaker_state 0 closed, 1 half-open, 2 open
# TYPE cortex_breaker_state gauge
cortex_breaker_state{{breaker="{breaker}"}} {state}
# HELP cortex_jobs unfinished jobs of the whole system
# TYPE cortex_jobs gauge
cortex_jobs{{status="PENDING"}} {jobs}
"""


def test_joined_page_adds_counters_and_keeps_one_system_figure() -> None:
    page = JoinedPage()
    page.take(2, PAGE.format(claims="5.0", breaker="tool:x", state="2.0", jobs="8.0"))
    page.take(1, PAGE.format(claims="3.0", breaker="tool:x", state="1.0", jobs="7.0"))
    wanted = PAGE.format(claims="8.0", breaker="tool:x", state="2.0", jobs="7.0")
    assert page.text() == wanted.replace("slots 10.0", "slots 20.0")


def test_a_series_that_only_one_worker_has_is_shown_with_its_metric() -> None:
    page = JoinedPage()
    page.take(1, PAGE.format(claims="3.0", breaker="tool:x", state="0.0", jobs="7.0"))
    page.take(2, PAGE.format(claims="3.0", breaker="tool:y", state="2.0", jobs="7.0"))
    assert (
        '# TYPE cortex_breaker_state gauge\ncortex_breaker_state{breaker="tool:x"} 0.0\n'
        'cortex_breaker_state{breaker="tool:y"} 2.0\n' in page.text()
    )


def test_counts_of_workers_that_died_stay_and_their_gauges_go() -> None:
    page = JoinedPage()
    for claims in ("3.0", "4.0"):
        page.take(2, PAGE.format(claims=claims, breaker="tool:x", state="2.0", jobs="7.0"))
        page.end(2)
    page.end(3)
    page.take(1, PAGE.format(claims="1.0", breaker="tool:x", state="0.0", jobs="9.0"))
    assert page.text() == PAGE.format(claims="8.0", breaker="tool:x", state="0.0", jobs="9.0")
