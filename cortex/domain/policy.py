"""Defaults of each job type: worker attempts, application retries and the job's time-out."""

from typing import Final

import attrs

from cortex.domain.errors import UsageError


@attrs.frozen(kw_only=True)
class JobPolicy:
    """How often and how long a job of one type may run."""

    worker_attempts: int = 3
    max_retries: int = 3
    timeout_s: int = 3600

    def check(self, job_type: str) -> None:
        """Raise `UsageError` that names the job type, the field, the value and its limits."""
        for field, low, high in LIMITS:
            value = getattr(self, field)
            if not low <= value <= high:
                raise UsageError(
                    f"job type {job_type!r}: {field} is {value}, outside {low} to {high}"
                )


LIMITS: Final = (("worker_attempts", 1, 100), ("max_retries", 0, 100), ("timeout_s", 1, 604_800))

DEFAULT: Final = JobPolicy()

POLICIES: Final[dict[str, JobPolicy]] = {
    "http_request": JobPolicy(worker_attempts=5, max_retries=3, timeout_s=600),
    "llm_generate": JobPolicy(worker_attempts=3, max_retries=5, timeout_s=3600),
    "run_agent": JobPolicy(worker_attempts=3, max_retries=5, timeout_s=3600),
    "execute_tool": JobPolicy(worker_attempts=3, max_retries=3, timeout_s=1200),
}


def policy_for(job_type: str) -> JobPolicy:
    """Return the policy of a job type; types without a row of their own get the default."""
    return POLICIES.get(job_type, DEFAULT)
