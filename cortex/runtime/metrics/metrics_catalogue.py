"""Every metric of a pod: its name, labels and meaning. docs/reference/metrics.md lists them.

Labels have few values, whatever jobs and people write: no ids, and `other` for names that the pod
does not know. What counts the whole system and not one pod says so: there take `max`, not `sum`.
"""

from typing import Final, Literal

import attrs

OTHER: Final = "other"

Kind = Literal["counter", "gauge", "histogram"]

QUICK_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""For what should take milliseconds."""
SLOW_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""For what a model or a tool takes: up to the longest limit of one call."""
LONG_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)
"""For the life of a job, and for what waits for people."""
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
ATTEMPTS: Final = (1, 2, 3, 4, 5, 7, 10, 20)


@attrs.frozen
class Metric:
    """One metric as it is declared."""

    name: str
    """As it is asked for: a counter's ends in `_total`."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, of a histogram."""


def _counter(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "counter", help_, labels)


def _histogram(name: str, help_: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", help_, labels, buckets)


def _gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help_, labels)


# --- jobs and their attempts

CLAIMS: Final = _counter("cortex_claims_total", "attempts begun", "type")
JOBS_ENDED: Final = _counter("cortex_jobs_ended_total", "jobs that ended", "type", "status")
QUEUE_WAIT: Final = _histogram(
    "cortex_queue_wait_seconds", "from when a job is due to its first attempt", buckets=LONG_S
)
JOB_TIME: Final = _histogram(
    "cortex_job_seconds", "from when a job is due to its end", "type", buckets=LONG_S
)
JOB_ATTEMPTS: Final = _histogram(
    "cortex_job_attempts", "attempts of a job that ended", buckets=ATTEMPTS
)
SUSPENSIONS: Final = _counter(
    "cortex_suspensions_total",
    "attempts that ended to wait without a retry: for a breaker, a budget, a person",
    "kind",
)
RECOVERED: Final = _counter(
    "cortex_jobs_recovered_total", "jobs taken from dead or silent pods", "how"
)
BLOCKED: Final = _counter(
    "cortex_recovery_blocked_total",
    "jobs of dead or silent pods that nobody could take, since somebody held their rows; each look",
)

# --- failures

ERRORS: Final = _counter(
    "cortex_errors_total",
    "failures of attempts, and of calls that were repeated or told to a model",
    *("class", "code"),
)
ATTEMPT_ERRORS: Final = _counter(
    "cortex_attempt_errors_total", "attempts that ended by an error", "type"
)
TOOL_ERRORS: Final = _counter("cortex_tool_errors_total", "calls of tools that failed", "tool")
RETRIES: Final = _counter(
    "cortex_retries_total", "retries: of a task, of a job, or of a call in its step", "layer"
)
RETRIES_SUCCEEDED: Final = _counter(
    "cortex_retries_succeeded_total", "jobs, and calls in their step, that went well after one",
    "layer",
)  # fmt: skip
RETRY_TIME: Final = _histogram(
    "cortex_retry_seconds",
    "from when a job is due to its success, of jobs that were retried",
    "layer",
    buckets=LONG_S,
)
BREAKER_OPENINGS: Final = _counter(
    "cortex_breaker_openings_total", "circuit breakers that calls of this pod opened", "kind"
)
DEAD_LETTERS: Final = _counter("cortex_dead_letters_total", "jobs that failed for good", "type")

# --- calls

STEP_TIME: Final = _histogram(
    "cortex_step_seconds", "steps committed, by what they took before", "kind", buckets=SLOW_S
)
MODEL_TIME: Final = _histogram(
    "cortex_llm_seconds", "calls of models: kept, failed or cancelled", "model", "outcome",
    buckets=SLOW_S,
)  # fmt: skip
MODEL_TOKENS: Final = _counter("cortex_llm_tokens_total", "tokens used", "model", "kind")
MODEL_COST: Final = _counter(
    "cortex_llm_cost_usd_total", "US dollars, where the price is known", "model"
)
TOOL_TIME: Final = _histogram(
    "cortex_tool_seconds", "calls of tools: completed, failed or cancelled", "tool", "outcome",
    buckets=SLOW_S,
)  # fmt: skip
EFFECTS: Final = _counter("cortex_effects_total", "effects by how they ended", "tool", "outcome")
APPROVALS_REQUESTED: Final = _counter(
    "cortex_approvals_requested_total", "approvals that jobs asked for", "risk"
)
APPROVALS_DECIDED: Final = _counter(
    "cortex_approvals_decided_total", "approvals by how they ended", "decision"
)
APPROVAL_TIME: Final = _histogram(
    "cortex_approval_seconds", "from a request to its decision", "decision", buckets=LONG_S
)

# --- the pod

COMMIT_TIME: Final = _histogram(
    "cortex_commit_seconds", "one batch of progress, until it is committed", buckets=QUICK_S
)
COMMIT_SIZE: Final = _histogram("cortex_commit_operations", "operations in it", buckets=SIZES)
DATABASE_ERRORS: Final = _counter(
    "cortex_database_errors_total", "calls that Postgres did not answer well", "code"
)
LOOP_LAG: Final = _histogram(
    "cortex_loop_lag_seconds", "how late the event loop is, ten times a second", buckets=QUICK_S
)
HTTP_REQUESTS: Final = _counter(
    "cortex_http_requests_total", "requests answered", "route", "method", "status"
)
HTTP_TIME: Final = _histogram(
    "cortex_http_request_seconds", "what they took", "route", buckets=SLOW_S
)
BUILD: Final = _gauge("cortex_build_info", "always 1", "version", "python")
SLOTS: Final = _gauge("cortex_slots", "jobs that this pod runs at once at most")
RUNNING: Final = _gauge("cortex_running", "jobs that this pod runs now")
BREAKER_STATE: Final = _gauge(
    "cortex_breaker_state",
    "0 closed, 1 half-open, 2 open; of the whole system, those that this pod has seen open",
    "breaker",
)

DATABASE_TROUBLE: Final = _gauge(
    "cortex_database_trouble_seconds",
    "for how long this pod's calls to Postgres have suffered from it; 0: they do not",
    "trouble",
)

# --- the whole system, as the database has it

DATABASE_UP: Final = _gauge(
    "cortex_database_up", "1 if Postgres told the figures below when it was last asked"
)
DATABASE_AGE: Final = _gauge("cortex_database_age_seconds", "since it told them")
JOBS: Final = _gauge("cortex_jobs", "unfinished jobs of the whole system", "status")
DUE: Final = _gauge(
    "cortex_due_tasks", "tasks of the whole system that any pod could claim: none of paused queues"
)
OLDEST_DUE: Final = _gauge("cortex_oldest_due_seconds", "for how long the oldest of them has been")
LETTERS: Final = _gauge(
    "cortex_dead_letters_unresolved", "dead letters of the whole system that wait", "state"
)

METRICS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Metric))
"""All of them, in the order in which they stand here."""
