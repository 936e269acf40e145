"""Counts what a pod does; each pod has its own counts, so that several can share a process.

Every method is called on the trio thread, takes well under a microsecond per job, never waits and
never fails. `metrics_page` exports the counts; `metrics_catalogue` explains them.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from http import HTTPMethod
from typing import Final, TypeVar

from prometheus_client.core import Metric as Family

from cortex.actors.runner import Run
from cortex.domain import breaker, errors
from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.dead_letter import DECISIONS
from cortex.domain.errors import CortexError
from cortex.domain.failure import CODES, Failure, FailureClass
from cortex.domain.job import Claim, Finish, JobStatus, Operation, Release, StepDone, Suspend
from cortex.domain.messages.subscription import Channel
from cortex.domain.prices import LIST_PRICES, PriceTable
from cortex.domain.usage import Usage
from cortex.durable.calls import Unmetered
from cortex.durable.job_log import Why
from cortex.runtime.metrics import metrics_catalogue as catalogue
from cortex.runtime.metrics.metrics_catalogue import OTHER
from cortex.runtime.metrics.metrics_series import Counts, Histograms

T = TypeVar("T")

LAYERS: Final = ("worker", "application", "step")
MESSAGE_OUTCOMES: Final = ("sent", "retried", "failed", "handed_back")
WAITS: Final = frozenset(
    {*breaker.POLICIES, "budget", "quota", "effects", "effect", "approval", "person"}
)
"""Prefixes, before the colon, of the names that jobs wait for."""
POISON: Final = "poison"
LEASE_EXPIRED: Final = "lease_expired"
KNOWN_CODES: Final = (
    frozenset(CODES)
    | {
        each.code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, CortexError)
    }
    | {"job_timed_out", POISON, LEASE_EXPIRED}
)


class Metrics(Unmetered):
    """The counts of one pod; implements `cortex.durable.calls.Meter`."""

    def __init__(self, *, job_types: Sequence[str] = (), prices: PriceTable = LIST_PRICES) -> None:
        """A model without a price is `other`; job types are those that the pod can claim."""
        self._prices = prices
        types = [(each,) for each in job_types]
        ends = [(each, to.value) for each in job_types for to in JobStatus if to.is_terminal]
        layers = [(each,) for each in LAYERS]
        self._claims = Counts(catalogue.CLAIMS, types)
        self._jobs_ended = Counts(catalogue.JOBS_ENDED, ends)
        self._queue_wait = Histograms(catalogue.QUEUE_WAIT)
        self._job_time = Histograms(catalogue.JOB_TIME)
        self._job_attempts = Histograms(catalogue.JOB_ATTEMPTS)
        self._suspensions = Counts(catalogue.SUSPENSIONS)
        self._recovered = Counts(catalogue.RECOVERED)
        self._blocked = Counts(catalogue.BLOCKED)
        self._errors = Counts(catalogue.ERRORS)
        self._attempt_errors = Counts(catalogue.ATTEMPT_ERRORS, types)
        self._tool_errors = Counts(catalogue.TOOL_ERRORS)
        self._retries = Counts(catalogue.RETRIES, layers)
        self._retries_succeeded = Counts(catalogue.RETRIES_SUCCEEDED, layers)
        self._retry_time = Histograms(catalogue.RETRY_TIME)
        kinds = [(each,) for each in breaker.POLICIES]
        self._breaker_openings = Counts(catalogue.BREAKER_OPENINGS, kinds)
        self._dead_letters = Counts(catalogue.DEAD_LETTERS, [*types, (OTHER,)])
        channels = [(each.value, word) for each in Channel for word in MESSAGE_OUTCOMES]
        self._messages = Counts(catalogue.MESSAGES, channels)
        self._message_time = Histograms(catalogue.MESSAGE_TIME)
        self._step_time = Histograms(catalogue.STEP_TIME)
        self._model_time = Histograms(catalogue.MODEL_TIME)
        self._model_tokens = Counts(catalogue.MODEL_TOKENS)
        self._model_cost = Counts(catalogue.MODEL_COST)
        self._tool_time = Histograms(catalogue.TOOL_TIME)
        self._effects = Counts(catalogue.EFFECTS)
        self._approvals_requested = Counts(catalogue.APPROVALS_REQUESTED)
        self._approvals_decided = Counts(catalogue.APPROVALS_DECIDED)
        self._approval_time = Histograms(catalogue.APPROVAL_TIME)
        self._commit_time = Histograms(catalogue.COMMIT_TIME)
        self._commit_size = Histograms(catalogue.COMMIT_SIZE)
        self._log_lines = Counts(catalogue.LOG_LINES, [()])
        self._log_dropped = Counts(catalogue.LOG_DROPPED, [(each.value,) for each in Why])
        self._database_errors = Counts(catalogue.DATABASE_ERRORS)
        self._loop_lag = Histograms(catalogue.LOOP_LAG)
        self._runner_runs = Counts(catalogue.RUNNER_RUNS)
        self._runner_items = Counts(catalogue.RUNNER_ITEMS)
        self._runner_errors = Counts(catalogue.RUNNER_ERRORS)
        self._runner_skipped = Counts(catalogue.RUNNER_SKIPPED)
        self._runner_time = Histograms(catalogue.RUNNER_TIME)
        self.runner_successes: dict[tuple[str, ...], float] = {}
        """When each runner last succeeded, in Unix seconds."""
        self.runner_intervals: dict[tuple[str, ...], float] = {}
        self._http_requests = Counts(catalogue.HTTP_REQUESTS)
        self._http_time = Histograms(catalogue.HTTP_TIME)

    def families(self) -> Iterator[Family]:
        """Yield all counts as Prometheus families."""
        for each in vars(self).values():
            if isinstance(each, Counts | Histograms):
                yield each.family()

    # --- jobs

    def claimed(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.add((claim.type,))
            if claim.lease.attempt == 1:
                self._queue_wait.add((), claim.due_for_s)

    def ended(self, claim: Claim, ending: Operation | None, *, ran_s: float) -> None:
        """An attempt has ended after `ran_s` seconds; None: another attempt owns the job."""
        match ending:
            case Finish():
                self._finished(claim, ending, ran_s)
            case Release(error_class=str()):
                self._retries.add(("worker",))
                self._failed(claim, ending.error_class, ending.code)
            case Suspend():
                self._suspended(claim, ending)
            case _:  # handed back, or lost: neither an end nor a failure
                pass

    def recovered(self, how: str, *, freed: int, failed: int = 0) -> None:
        """Jobs were taken from another pod: `taken_over` when it died, `swept` when it is silent.

        `failed` of them failed, because their retries were spent.
        """
        self._recovered.add((how,), freed)
        if how == "swept":
            self._retries.add(("application",), freed)
        if failed:
            self._errors.add((FailureClass.TRANSIENT_INFRA.value, LEASE_EXPIRED), failed)
            self.failed_without_attempt(failed)

    def expired(self, count: int) -> None:
        """Jobs of living pods were ended because they outlived their time-out."""
        self._errors.add((FailureClass.TRANSIENT_APP.value, "job_timed_out"), count)
        self.failed_without_attempt(count)

    def blocked(self, count: int) -> None:
        """`count` jobs of lost pods cannot be taken now, since another session holds their rows."""
        self._blocked.add((), count)

    def failed_without_attempt(self, count: int = 1) -> None:
        """`count` jobs failed while no pod ran them."""
        self._dead_letters.add((OTHER,), count)
        self._jobs_ended.add((OTHER, JobStatus.FAILED.value), count)

    # --- calls and steps

    def committed(self, operations: int, seconds: float) -> None:
        """A batch of progress was committed, after `seconds`."""
        self._commit_size.add((), operations)
        self._commit_time.add((), seconds)

    def step_committed(self, step: StepDone) -> None:
        self._step_time.add((step.kind,), step.duration_s)

    def call_failed(self, failure: Failure, *, is_repeated: bool) -> None:
        """A call failed and the attempt goes on, or waits for the breaker that the call opened."""
        self._errors.add((failure.cls.value, _code(failure.code)))
        if is_repeated:
            self._retries.add(("step",))

    def call_made_good(self) -> None:
        """A call that had failed in its step succeeded."""
        self._retries_succeeded.add(("step",))

    def model_called(
        self, model: str, *, outcome: str, seconds: float, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        name = self._prices.name_of(model) or OTHER
        self._model_time.add((name, outcome), seconds)
        for kind, count in usage.tokens().items():
            self._model_tokens.add((name, kind.removesuffix("_tokens")), count)
        if cost_usd is not None:
            self._model_cost.add((name,), float(cost_usd))

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None:
        if outcome == "failed":
            self._tool_errors.add((tool,))
        self._tool_time.add((tool, outcome), seconds)

    def effect_ended(self, tool: str, outcome: str) -> None:
        """An effect of a known tool ended with this outcome, an `EffectStatus` in lower case."""
        self._effects.add((tool, outcome))

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None:
        """A request was decided or expired, `waited_s` seconds after it was made."""
        self._approvals_decided.add((decision.value,))
        self._approval_time.add((decision.value,), waited_s)

    # --- logs of jobs

    def lines_stored(self, count: int) -> None:
        self._log_lines.add((), count)

    def lines_dropped(self, why: Why, count: int) -> None:
        self._log_dropped.add((why.value,), count)

    # --- the pod

    def breaker_opened(self, name: str) -> None:
        self._breaker_openings.add((name.partition(":")[0],))

    def message_ended(self, channel: str, outcome: str, seconds: float) -> None:
        self._messages.add((channel, outcome))
        self._message_time.add((channel,), seconds)

    def database_failed(self, error: CortexError) -> None:
        """A call did not reach the database, or it is unknown whether it did."""
        self._database_errors.add((_code(error.code),))

    def loop_late(self, seconds: float) -> None:
        """The event loop was `seconds` late."""
        self._loop_lag.add((), seconds)

    def runner_ran(self, run: Run, *, unix_s: float) -> None:
        """A run of background work has just ended."""
        labels = (run.name,)
        self.runner_intervals[labels] = run.longest_s
        if run.is_skipped:
            self._runner_skipped.add(labels)
            return
        self._runner_runs.add(labels)
        self._runner_time.add(labels, run.duration_s)
        if run.error is None:
            self._runner_items.add(labels, run.items)
            self.runner_successes[labels] = unix_s
        else:
            self._runner_errors.add(labels)

    def http_answered(self, *, route: str | None, method: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the declared template, None if there is none."""
        name = route or OTHER
        verb = method if method in HTTPMethod.__members__ else OTHER
        self._http_requests.add((name, verb, str(status)))
        self._http_time.add((name,), seconds)

    # --- within

    def _finished(self, claim: Claim, ending: Finish, ran_s: float) -> None:
        self._jobs_ended.add((claim.type, ending.status))
        self._job_attempts.add((), claim.lease.attempt)
        self._job_time.add((claim.type,), claim.due_for_s + ran_s)
        if ending.status is JobStatus.FAILED:
            if ending.code not in DECISIONS:
                self._dead_letters.add((claim.type,))
            self._failed(claim, ending.error_class, ending.code)
        elif ending.status is JobStatus.COMPLETED and (
            claim.retry_count or claim.attempts_spent > 1
        ):
            layer = "application" if claim.retry_count else "worker"
            self._retries_succeeded.add((layer,))
            self._retry_time.add((layer,), claim.due_for_s + ran_s)

    def _failed(self, claim: Claim, class_: str | None, code: str | None) -> None:
        self._attempt_errors.add((claim.type,))
        self._errors.add((class_ or FailureClass.PERMANENT.value, _code(code)))

    def _suspended(self, claim: Claim, ending: Suspend) -> None:
        if ending.is_counted:
            self._retries.add(("application",))
        else:
            kind = (ending.waiting_on or "").partition(":")[0]
            self._suspensions.add((kind if kind in WAITS else OTHER,))
        for request in ending.requests:
            self._approvals_requested.add((request.risk.value,))
        if ending.error_class is not None:
            self._failed(claim, ending.error_class, ending.code)


def _code(code: str | None) -> str:
    """Return a documented code; other codes, which jobs may define, become `other`."""
    return code if code in KNOWN_CODES else OTHER
