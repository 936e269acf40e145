"""Counted events and their labels, both bounded."""

from decimal import Decimal
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from cortex.actors.runner import Run
from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.errors import OutcomeUnknownError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Claim, Finish, JobStatus, Operation, Release, Suspend
from cortex.domain.usage import Usage
from cortex.runtime.metrics import metrics_catalogue
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.metrics.metrics_catalogue import METRICS, Metric
from cortex.runtime.metrics.metrics_series import SERIES_MAX, Counts, Histograms
from tests.support.records.factories import a_claim, a_lease
from tests.support.scrape import Scrape, read


def scrape(*families: Family) -> Scrape:
    class All(Collector):
        def collect(self) -> Any:
            return families

    registry = CollectorRegistry()
    registry.register(All())
    return read(generate_latest(registry))


def page_of(metrics: Metrics) -> Scrape:
    return scrape(*metrics.families())


def failed(claim: Claim, code: str = "job_failed") -> Finish:
    return Finish(
        lease=claim.lease,
        status=JobStatus.FAILED,
        error="no",
        code=code,
        error_class="TRANSIENT_INFRA",
    )


def completed(claim: Claim) -> Finish:
    return Finish(lease=claim.lease, status=JobStatus.COMPLETED, result="1")


def test_metric_names_are_unique_and_show_their_unit() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) > 30
    for metric in METRICS:
        assert metric.name.startswith("cortex_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_pod_counts_exactly_the_declared_metrics() -> None:
    """All but the gauges, which the page adds."""
    output = {each.name for each in Metrics().families()}
    declared = {m.name.removesuffix("_total") for m in METRICS if m.kind != "gauge"}
    assert output == declared


def test_two_pods_of_one_process_do_not_mix() -> None:
    one, other = Metrics(job_types=["work"]), Metrics(job_types=["work"])
    one.claimed([a_claim()])
    assert page_of(one)["cortex_claims_total", "work"] == 1
    assert page_of(other)["cortex_claims_total", "work"] == 0


def test_a_histogram_counts_into_buckets_that_add_up() -> None:
    histograms = Histograms(Metric("cortex_x_seconds", "histogram", "x", (), (0.1, 1.0)))
    for value in (0.1, 0.1, 0.5, 7.0):
        histograms.add((), value)
    page = scrape(histograms.family())
    buckets = [page["cortex_x_seconds_bucket", le] for le in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 3, 4]
    assert page["cortex_x_seconds_count"] == 4
    assert page["cortex_x_seconds_sum"] == pytest.approx(7.7)


def test_number_of_series_is_bounded_without_loss() -> None:
    counts = Counts(Metric("cortex_x_total", "counter", "x", ("a", "b")))
    histograms = Histograms(Metric("cortex_y", "histogram", "y", ("a",), (1,)))
    for n in range(2 * SERIES_MAX):
        counts.add((str(n), "x"))
        histograms.add((str(n),), 0)
    page = scrape(counts.family(), histograms.family())
    assert len(page.values) == (SERIES_MAX + 1) + 4 * (SERIES_MAX + 1)
    assert page["cortex_x_total", "other", "other"] == SERIES_MAX
    assert page["cortex_y_count", "other"] == SERIES_MAX


def test_a_claim_waited_in_the_queue_only_the_first_time() -> None:
    metrics = Metrics()
    metrics.claimed([a_claim(due_for_s=3.0), a_claim(lease=a_lease(2), due_for_s=900.0)])
    page = page_of(metrics)
    assert page["cortex_claims_total", "work"] == 2
    assert page["cortex_queue_wait_seconds_count"] == 1
    assert page["cortex_queue_wait_seconds_sum"] == 3


@pytest.mark.parametrize(
    "claim, layer",
    [
        (a_claim(), None),
        (a_claim(lease=a_lease(4)), None),  # handed back three times: no retries
        (a_claim(attempts_spent=2), "worker"),
        (a_claim(retry_count=1), "application"),
        (a_claim(retry_count=1, attempts_spent=2), "application"),
    ],
)
def test_success_after_a_retry_counts_as_one(claim: Claim, layer: str | None) -> None:
    metrics = Metrics()
    metrics.ended(claim, completed(claim), ran_s=2.0)
    page = page_of(metrics)
    assert page["cortex_jobs_ended_total", "work", "COMPLETED"] == 1
    assert page["cortex_job_attempts_sum"] == claim.lease.attempt
    found = {each: page.get("cortex_retries_succeeded_total", each) for each in ("worker", "step")}
    assert found == {"worker": layer == "worker", "step": 0}
    assert page.sum("cortex_retries_succeeded_total") == (layer is not None)
    assert page.sum("cortex_retry_seconds_sum") == (2.0 if layer else 0)


def test_a_failed_job_is_an_error_and_a_dead_letter() -> None:
    metrics = Metrics()
    claim = a_claim(due_for_s=1.0)
    metrics.ended(claim, failed(claim), ran_s=2.0)
    page = page_of(metrics)
    assert page["cortex_jobs_ended_total", "work", "FAILED"] == 1
    assert page["cortex_dead_letters_total", "work"] == 1
    assert page["cortex_attempt_errors_total", "work"] == 1
    assert page["cortex_errors_total", "TRANSIENT_INFRA", "job_failed"] == 1
    assert page["cortex_job_seconds_sum", "work"] == 3


@pytest.mark.parametrize("code", ["made_up_by_a_job", "", None])
def test_unknown_error_code_counts_as_other(code: str | None) -> None:
    metrics = Metrics()
    claim = a_claim()
    ending = Finish(lease=claim.lease, status=JobStatus.FAILED, error="no", code=code)
    metrics.ended(claim, ending, ran_s=0)
    assert page_of(metrics)["cortex_errors_total", "PERMANENT", "other"] == 1


def release(claim: Claim, **fields: Any) -> Release:
    return Release(lease=claim.lease, **fields)


def suspend(claim: Claim, **fields: Any) -> Suspend:
    return Suspend(lease=claim.lease, **{"delay_s": 1.0, "is_counted": False, **fields})


CLAIM = a_claim()


@pytest.mark.parametrize(
    "ending, rises",
    [
        (None, {}),
        (release(CLAIM, outcome="handed_back"), {}),
        (
            release(CLAIM, outcome="failed", error_class="TRANSIENT_INFRA", code="timed_out"),
            {"cortex_retries_total", "cortex_attempt_errors_total", "cortex_errors_total"},
        ),
        (
            suspend(CLAIM, is_counted=True, error_class="TRANSIENT_APP", code="transient"),
            {"cortex_retries_total", "cortex_attempt_errors_total", "cortex_errors_total"},
        ),
        (suspend(CLAIM, waiting_on="llm:gone"), {"cortex_suspensions_total"}),
    ],
)
def test_each_ending_raises_its_own_counters(ending: Operation | None, rises: set[str]) -> None:
    metrics = Metrics()
    metrics.ended(CLAIM, ending, ran_s=1.0)
    page = page_of(metrics)
    risen = {key[0] for key, value in page.values.items() if value}
    assert risen == set(rises)


@pytest.mark.parametrize(
    "waiting_on, kind",
    [("llm:x", "llm"), ("budget:ana", "budget"), ("what:ever", "other"), (None, "other")],
)
def test_suspensions_are_labelled_by_kind(waiting_on: str | None, kind: str) -> None:
    metrics = Metrics()
    metrics.ended(CLAIM, suspend(CLAIM, waiting_on=waiting_on), ran_s=0)
    assert page_of(metrics)["cortex_suspensions_total", kind] == 1


def test_runs_of_background_work_are_counted_by_runner() -> None:
    def run(*, items: int = 0, is_skipped: bool = False, error: Exception | None = None) -> Run:
        return Run(
            name="retries",
            longest_s=30.0,
            started_at=0.0,
            duration_s=0.5,
            items=items,
            is_skipped=is_skipped,
            error=error,
        )

    metrics = Metrics()
    metrics.runner_ran(run(items=3), unix_s=100.0)
    metrics.runner_ran(run(error=ValueError("wrong")), unix_s=200.0)
    metrics.runner_ran(run(is_skipped=True), unix_s=300.0)
    page = page_of(metrics)
    names = ("runs", "items", "errors", "skipped")
    counts = [page[f"cortex_runner_{name}_total", "retries"] for name in names]
    assert counts == [2, 3, 1, 1]
    assert metrics.runner_successes == {("retries",): 100.0}
    assert metrics.runner_intervals == {("retries",): 30.0}


def test_jobs_of_other_pods_are_counted_where_they_are_found() -> None:
    metrics = Metrics()
    metrics.recovered("taken_over", freed=3)
    metrics.recovered("swept", freed=2, failed=1)
    metrics.blocked(4)
    page = page_of(metrics)
    assert page["cortex_recovery_blocked_total",] == 4
    assert page["cortex_jobs_recovered_total", "taken_over"] == 3
    assert page["cortex_jobs_recovered_total", "swept"] == 2
    assert page["cortex_retries_total", "application"] == 2
    assert page["cortex_dead_letters_total", "other"] == 1
    assert page["cortex_errors_total", "TRANSIENT_INFRA", "lease_expired"] == 1


@pytest.mark.parametrize(
    "model, name",
    [
        ("claude-haiku-4-5", "claude-haiku-4-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("somebody-elses", "other"),
    ],
)
def test_models_are_those_with_a_price(model: str, name: str) -> None:
    metrics = Metrics()
    used = Usage(input_tokens=7, cache_read_tokens=2)
    metrics.model_called(model, outcome="kept", seconds=1.5, usage=used, cost_usd=Decimal("0.25"))
    page = page_of(metrics)
    assert page["cortex_llm_seconds_sum", name, "kept"] == 1.5
    assert page["cortex_llm_tokens_total", name, "input"] == 7
    assert page["cortex_llm_tokens_total", name, "cache_read"] == 2
    assert page["cortex_llm_cost_usd_total", name] == 0.25


async def test_tools_are_timed_however_they_end() -> None:
    async def fails() -> None:
        raise RuntimeError("out of paper")

    async def works() -> str:
        return "done"

    metrics = Metrics()
    assert await metrics.timed("print", works) == "done"
    with pytest.raises(RuntimeError, match="out of paper"):
        await metrics.timed("print", fails)
    page = page_of(metrics)
    assert page["cortex_tool_seconds_count", "print", "completed"] == 1
    assert page["cortex_tool_seconds_count", "print", "failed"] == 1
    assert page["cortex_tool_errors_total", "print"] == 1


def test_the_rest_is_counted_under_its_labels() -> None:
    metrics = Metrics()
    failure = Failure(cls=FailureClass.TRANSIENT_APP, code="overloaded", message="later")
    metrics.call_failed(failure, is_repeated=True)
    metrics.call_failed(failure, is_repeated=False)
    metrics.call_made_good()
    metrics.breaker_opened("http:example.org")
    metrics.database_failed(OutcomeUnknownError("gone"))
    metrics.effect_ended("mail", "completed")
    metrics.approval_decided(ApprovalStatus.DENIED, waited_s=60.0)
    metrics.http_answered(route="/v1/jobs/{id}", method="GET", status=200, seconds=0.1)
    metrics.http_answered(route=None, method="BREW", status=404, seconds=0.1)
    page = page_of(metrics)
    assert page["cortex_errors_total", "TRANSIENT_APP", "overloaded"] == 2
    assert page["cortex_retries_total", "step"] == 1
    assert page["cortex_retries_succeeded_total", "step"] == 1
    assert page["cortex_breaker_openings_total", "http"] == 1
    assert page["cortex_database_errors_total", "outcome_unknown"] == 1
    assert page["cortex_effects_total", "mail", "completed"] == 1
    assert page["cortex_approvals_decided_total", "DENIED"] == 1
    assert page["cortex_approval_seconds_sum", "DENIED"] == 60
    assert page["cortex_http_requests_total", "/v1/jobs/{id}", "GET", "200"] == 1
    assert page["cortex_http_requests_total", "other", "other", "404"] == 1


def test_no_label_holds_free_text() -> None:
    free = {"id", "job", "job_id", "tenant", "agent", "key", "path", "user", "message", "pod"}
    assert not {label for metric in METRICS for label in metric.labels} & free
    assert metrics_catalogue.OTHER == "other"
