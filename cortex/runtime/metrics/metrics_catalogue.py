"""Every metric of a pod: its name, labels and meaning. docs/reference/metrics.md lists them.

Labels have few values, whatever jobs and people write: no ids, and `other` for names unknown to the
pod. A metric of the whole system instead of one pod says so: aggregate it with `max`, not `sum`.
"""

from typing import Final, Literal

import attrs

OTHER: Final = "other"

Kind = Literal["counter", "gauge", "histogram"]

QUICK_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""For operations that should take milliseconds."""
SLOW_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""For models and tools: up to the longest limit of one call."""
LONG_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)
"""For the life of a job, and for waiting on people."""
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
ATTEMPTS: Final = (1, 2, 3, 4, 5, 7, 10, 20)


@attrs.frozen
class Metric:
    """The declaration of one metric."""

    name: str
    """As exported: a counter's name ends in `_total`."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, for a histogram."""


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
    "cortex_queue_wait_seconds", "time from a job's due time to its first attempt", buckets=LONG_S
)
JOB_TIME: Final = _histogram(
    "cortex_job_seconds", "time from a job's due time to its end", "type", buckets=LONG_S
)
JOB_ATTEMPTS: Final = _histogram("cortex_job_attempts", "attempts per ended job", buckets=ATTEMPTS)
SUSPENSIONS: Final = _counter(
    "cortex_suspensions_total",
    "attempts suspended without a retry: for a breaker, a budget, a person",
    "kind",
)
RECOVERED: Final = _counter(
    "cortex_jobs_recovered_total", "jobs taken from dead or silent pods", "how"
)
BLOCKED: Final = _counter(
    "cortex_recovery_blocked_total",
    "jobs of dead or silent pods that could not be taken because their rows were locked; per check",
)

# --- failures

ERRORS: Final = _counter(
    "cortex_errors_total",
    "failures of attempts, and of calls that were repeated or reported to a model",
    *("class", "code"),
)
ATTEMPT_ERRORS: Final = _counter(
    "cortex_attempt_errors_total", "attempts that ended with an error", "type"
)
TOOL_ERRORS: Final = _counter("cortex_tool_errors_total", "failed tool calls", "tool")
RETRIES: Final = _counter(
    "cortex_retries_total", "retries: of a task, of a job, or of a call in its step", "layer"
)
RETRIES_SUCCEEDED: Final = _counter(
    "cortex_retries_succeeded_total", "jobs and calls that succeeded after a retry",
    "layer",
)  # fmt: skip
RETRY_TIME: Final = _histogram(
    "cortex_retry_seconds",
    "time from a job's due time to its success, for retried jobs",
    "layer",
    buckets=LONG_S,
)
BREAKER_OPENINGS: Final = _counter(
    "cortex_breaker_openings_total", "circuit breakers opened by calls of this pod", "kind"
)
DEAD_LETTERS: Final = _counter("cortex_dead_letters_total", "jobs that failed for good", "type")

# --- messages

MESSAGES: Final = _counter(
    "cortex_outbox_attempts_total",
    "attempts of this pod to send a message: sent, retried, failed or handed_back",
    "channel",
    "outcome",
)
MESSAGE_TIME: Final = _histogram(
    "cortex_outbox_seconds", "duration of attempts to send a message", "channel", buckets=SLOW_S
)

# --- calls

STEP_TIME: Final = _histogram(
    "cortex_step_seconds", "duration of committed steps", "kind", buckets=SLOW_S
)
MODEL_TIME: Final = _histogram(
    "cortex_llm_seconds", "duration of model calls: kept, failed or cancelled", "model", "outcome",
    buckets=SLOW_S,
)  # fmt: skip
MODEL_TOKENS: Final = _counter(
    "cortex_llm_tokens_total", "tokens used by model calls", "model", "kind"
)
MODEL_COST: Final = _counter(
    "cortex_llm_cost_usd_total",
    "cost of model calls in US dollars, where the price is known",
    "model",
)
TOOL_TIME: Final = _histogram(
    "cortex_tool_seconds", "duration of tool calls: completed, failed or cancelled",
    *("tool", "outcome"),
    buckets=SLOW_S,
)  # fmt: skip
EFFECTS: Final = _counter("cortex_effects_total", "effects by outcome", "tool", "outcome")
APPROVALS_REQUESTED: Final = _counter(
    "cortex_approvals_requested_total", "approvals requested by jobs", "risk"
)
APPROVALS_DECIDED: Final = _counter(
    "cortex_approvals_decided_total", "approvals by decision", "decision"
)
APPROVAL_TIME: Final = _histogram(
    "cortex_approval_seconds",
    "time from an approval request to its decision",
    "decision",
    buckets=LONG_S,
)

# --- logs of jobs

LOG_LINES: Final = _counter("cortex_log_lines_total", "log lines of jobs that were stored")
LOG_DROPPED: Final = _counter(
    "cortex_log_lines_dropped_total",
    "log lines of jobs that were dropped: over the rate or the size of an attempt, because the "
    "database was away or refused them, or too late",
    "reason",
)

# --- the pod

COMMIT_TIME: Final = _histogram(
    "cortex_commit_seconds", "duration of committing one batch of progress", buckets=QUICK_S
)
COMMIT_SIZE: Final = _histogram(
    "cortex_commit_operations", "operations per committed batch", buckets=SIZES
)
DATABASE_ERRORS: Final = _counter(
    "cortex_database_errors_total", "failed calls of Postgres", "code"
)
LOOP_LAG: Final = _histogram(
    "cortex_loop_lag_seconds", "lag of the event loop, measured ten times a second", buckets=QUICK_S
)
HTTP_REQUESTS: Final = _counter(
    "cortex_http_requests_total", "HTTP requests answered", "route", "method", "status"
)
HTTP_TIME: Final = _histogram(
    "cortex_http_request_seconds", "duration of HTTP requests", "route", buckets=SLOW_S
)
RUNNER_RUNS: Final = _counter(
    "cortex_runner_runs_total", "runs of background work in this pod, failed ones too", "runner"
)
RUNNER_ITEMS: Final = _counter(
    "cortex_runner_items_total", "items that background work handled", "runner"
)
RUNNER_ERRORS: Final = _counter(
    "cortex_runner_errors_total", "failed runs of background work", "runner"
)
RUNNER_SKIPPED: Final = _counter(
    "cortex_runner_skipped_total",
    "runs of background work skipped because another process was doing it",
    "runner",
)
RUNNER_TIME: Final = _histogram(
    "cortex_runner_seconds", "duration of runs of background work", "runner", buckets=SLOW_S
)
RUNNER_SUCCESS: Final = _gauge(
    "cortex_runner_last_success_timestamp_seconds",
    "when background work last succeeded in this pod; the latest of all pods counts",
    "runner",
)
RUNNER_INTERVAL: Final = _gauge(
    "cortex_runner_interval_seconds", "the longest time between two runs of it", "runner"
)
BUILD: Final = _gauge("cortex_build_info", "always 1", "version", "python")
SLOTS: Final = _gauge("cortex_slots", "most jobs that this pod runs at once")
RUNNING: Final = _gauge("cortex_running", "jobs that this pod runs now")
THREADS_LEFT: Final = _gauge(
    "cortex_threads_left_behind",
    "threads of sync functions that a time-out has left behind; a pod with 450 of them drains",
)
BREAKER_STATE: Final = _gauge(
    "cortex_breaker_state",
    "0 closed, 1 half-open, 2 open; whole system, breakers that this pod has observed open",
    "breaker",
)

DATABASE_TROUBLE: Final = _gauge(
    "cortex_database_trouble_seconds",
    "for how long this pod's calls to Postgres have had this trouble; 0 without trouble",
    "trouble",
)

# --- the whole system, as the database has it

DATABASE_UP: Final = _gauge(
    "cortex_database_up", "1 if the last query of the figures below succeeded"
)
DATABASE_AGE: Final = _gauge("cortex_database_age_seconds", "age of the figures below")
JOBS: Final = _gauge(
    "cortex_jobs",
    "unfinished jobs of the whole system by stored state: those that sleep or wait for signals, "
    "children or code are in RETRY or WAITING_FOR_APPROVAL, see cortex_waiting_jobs",
    "status",
)
DUE: Final = _gauge(
    "cortex_due_jobs", "tasks of the whole system that a pod could claim, without paused queues"
)
OLDEST_DUE: Final = _gauge(
    "cortex_oldest_due_seconds", "for how long the oldest of these tasks has been due"
)
STRANDED: Final = _gauge(
    "cortex_stranded_tasks",
    "jobs that wait for a type, tools or code that no living pod has",
)
WAITING: Final = _gauge(
    "cortex_waiting_jobs",
    "jobs of the whole system that wait for a signal, a child, a limit or the end of a sleep, "
    "each count up to a limit",
    "word",
)
PAUSES_OLD: Final = _gauge("cortex_pauses_old", "pauses that are older than a day")
LETTERS: Final = _gauge(
    "cortex_dead_letters_unresolved", "unresolved dead letters of the whole system", "state"
)
RUNNER_LATE: Final = _gauge(
    "cortex_runner_late",
    "1 if background work has not succeeded in any process for five of its intervals",
    "runner",
)

OUTBOX: Final = _gauge(
    "cortex_outbox_messages", "messages of the whole system, each count up to a limit", "state"
)
OUTBOX_OLDEST: Final = _gauge(
    "cortex_outbox_oldest_pending_seconds", "age of the oldest message that waits; 0: none does"
)
SCHEDULES_MISSED: Final = _gauge(
    "cortex_schedules_missed",
    "schedules that missed an instant, as was noticed within the last hour; without built-in ones",
)

METRICS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Metric))
"""All metrics, in the order of this file."""
