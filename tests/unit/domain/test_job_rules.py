"""States, retries and limits of jobs: the figures of the specification."""

from math import exp, isclose
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.backoff import Backoff
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.job import TRANSITIONS, JobStatus
from cortex.domain.policy import (
    DEFAULT,
    LIMITS,
    POLICIES,
    TIMEOUT_MAX_S,
    JobPolicy,
    policy_for,
)
from cortex.domain.retry import worker_delay_s
from tests.support.records.factories import a_claim

TERMINAL = {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}


def test_three_states_are_terminal_and_no_way_leads_out_of_them() -> None:
    assert {status for status in JobStatus if status.is_terminal} == TERMINAL
    assert all(not TRANSITIONS[status] for status in TERMINAL)


def test_every_state_has_transitions_and_none_returns_to_pending() -> None:
    assert set(TRANSITIONS) == set(JobStatus)
    assert all(JobStatus.PENDING not in after for after in TRANSITIONS.values())
    assert all(before not in after for before, after in TRANSITIONS.items())


def test_every_state_that_is_not_terminal_can_be_cancelled() -> None:
    assert all(JobStatus.CANCELLED in TRANSITIONS[s] for s in set(JobStatus) - TERMINAL)


def test_worker_delays_are_those_of_the_specification() -> None:
    output = [2.7, 7.4, 20.1, 54.6, 148.4, 403.4, 1096.6, 2981, 8103, 22026]
    delays = [worker_delay_s(n) for n in range(1, 11)]
    assert [round(d, 1 if d < 2000 else 0) for d in delays] == output


@given(st.integers(min_value=10, max_value=10**9))
def test_worker_delays_stop_growing_after_ten(attempts_spent: int) -> None:
    assert isclose(worker_delay_s(attempts_spent), exp(10))


@pytest.mark.parametrize(
    "job_type, attempts, retries, backoff, times",
    [
        ("run_agent", 3, 5, (5, 300, 3), (3600, 300, 30)),
        ("llm_generate", 3, 5, (5, 300, 3), (3600, 300, 30)),
        ("run_flow", 3, 5, (5, 300, 3), (1800, 120, 30)),
        ("execute_tool", 3, 3, (2, 120, 2), (1200, 120, 10)),
        ("http_request", 5, 3, (1, 60, 2), (600, 120, 30)),
        ("send_notification", 10, 5, (2, 60, 2), (300, 15, 10)),
        ("approval_notify", 10, 5, (2, 60, 2), (300, 15, 10)),
        ("webhook_dispatch", 5, 3, (1, 60, 2), (600, 120, 30)),
        ("anything_else", 3, 3, (1, 300, 2), (3600, 120, 30)),
    ],
)
def test_policies_are_those_of_the_specification(
    job_type: str,
    attempts: int,
    retries: int,
    backoff: tuple[float, float, float],
    times: tuple[int, float, float],
) -> None:
    base_s, cap_s, multiplier = backoff
    timeout_s, call_s, connect_s = times
    assert policy_for(job_type) == JobPolicy(
        worker_attempts=attempts,
        max_retries=retries,
        backoff=Backoff(base_s=base_s, cap_s=cap_s, multiplier=multiplier),
        timeout_s=timeout_s,
        call_s=call_s,
        connect_s=connect_s,
    )


@pytest.mark.parametrize("job_type", [*POLICIES, "mine"])
def test_a_policy_survives_its_own_json(job_type: str) -> None:
    policy = policy_for(job_type)
    assert JobPolicy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize("job_type", sorted(POLICIES))
def test_a_known_type_gets_at_most_half_as_much_time_again(job_type: str) -> None:
    known = policy_for(job_type)
    longest_s = int(1.5 * known.timeout_s)
    attrs.evolve(known, timeout_s=longest_s).check(job_type)
    with pytest.raises(UsageError, match=f"timeout_s is {longest_s + 1}"):
        attrs.evolve(known, timeout_s=longest_s + 1).check(job_type)


@pytest.mark.parametrize("job_type", sorted(POLICIES))
def test_our_own_policies_are_within_the_limits(job_type: str) -> None:
    policy_for(job_type).check(job_type)


@pytest.mark.parametrize("field", [*LIMITS, "timeout_s"])
def test_policy_out_of_bounds_is_refused_with_its_field(field: str) -> None:
    low, high = LIMITS.get(field, (1, TIMEOUT_MAX_S))
    for fits in (low, high):
        with_field(field, fits).check("mine")
    for off in (low - 1, high + 1):
        with pytest.raises(UsageError) as caught:
            with_field(field, off).check("mine")
        message = caught.value.message
        assert all(part in message for part in ("'mine'", field, f"{off:g}", f"{high:g}"))


def with_field(field: str, value: float) -> JobPolicy:
    """The default policy with one figure changed, in its backoff or beside it."""
    changed: dict[str, Any] = {field: value}
    if field in attrs.fields_dict(Backoff):
        return attrs.evolve(DEFAULT, backoff=attrs.evolve(DEFAULT.backoff, **changed))
    return attrs.evolve(DEFAULT, **changed)


def test_records_cannot_be_changed() -> None:
    claim = a_claim()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        claim.lease.attempt = 2  # type: ignore[misc]


def test_a_lost_lease_is_not_swallowed_by_job_code() -> None:
    assert not issubclass(LeaseLost, Exception)


def test_error_codes_are_unique_and_a_hint_is_shown_with_the_message() -> None:
    families: list[type[CortexError]] = [CortexError, *_below(CortexError)]
    ours = [each for each in families if each.__module__ == CortexError.__module__]
    assert len({each.code for each in ours}) == len(ours)
    error = UsageError("this is off", hint="do that")
    assert str(error) == error.message == "this is off"
    assert error.__notes__ == ["hint: do that"]


def _below(family: type[CortexError]) -> list[type[CortexError]]:
    return [each for sub in family.__subclasses__() for each in (sub, *_below(sub))]
