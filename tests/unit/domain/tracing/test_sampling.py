"""Which traces are recorded: decided by the trace id alone, by every pod alike."""

import pytest

from cortex.domain.tracing.sampling import Sampler
from cortex.domain.tracing.traceparent import TraceParent
from tests.support.records.rows import new_id

SPAN = "00f067aa0ba902b7"


def sampled(sampler: Sampler, submitted: str | None = None) -> bool:
    return sampler.decided(TraceParent.of_job(new_id(), submitted)).is_sampled


def named(name: str, argument: str = "") -> Sampler:
    sampler = Sampler.named(name, argument)
    assert sampler is not None
    return sampler


@pytest.mark.parametrize(
    "name, alone, in_sampled, in_unsampled",
    [
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
    ],
)
def test_a_trace_of_the_submitters_follows_it_if_it_may(
    name: str, alone: bool, in_sampled: bool, in_unsampled: bool
) -> None:
    sampler = named(name)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert sampled(sampler) is alone
    assert sampled(sampler, f"00-{trace}-{SPAN}-01") is in_sampled
    assert sampled(sampler, f"00-{trace}-{SPAN}-00") is in_unsampled


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.75, 1.0])
def test_a_ratio_holds_for_ids_of_jobs(ratio: float) -> None:
    """Half of such an id is no random number: the time, and fixed bits."""
    sampler = named("parentbased_traceidratio", str(ratio))
    share = sum(sampled(sampler) for _ in range(2000)) / 2000
    assert share == pytest.approx(ratio, abs=0.05 if 0 < ratio < 1 else 0)


def test_a_decision_is_the_same_every_time_and_for_more_the_larger_the_ratio() -> None:
    spans = [TraceParent.of_job(new_id(), None) for _ in range(200)]
    few, many = named("traceidratio", "0.2"), named("traceidratio", "0.6")
    chosen = {each for each in spans if few.decided(each).is_sampled}
    assert chosen == {each for each in spans if few.decided(each).is_sampled}
    assert chosen < {each for each in spans if many.decided(each).is_sampled}


@pytest.mark.parametrize(
    "name, argument", [("sometimes", ""), ("traceidratio", "2"), ("traceidratio", "nan")]
)
def test_no_sampler_has_that_name(name: str, argument: str) -> None:
    assert Sampler.named(name, argument) is None
