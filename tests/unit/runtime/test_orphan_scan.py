"""When a pod looks for jobs that it owns and does not run."""

from cortex.runtime.jobs.dispatcher import APART_S, LATE_S, OrphanScan


def looks_in(looks: OrphanScan, *, begin: float, end: float, lost_count: int = 0) -> list[float]:
    """The instants of looks when it is asked ten times a second."""
    found = []
    for number in range(int(10 * begin), int(10 * end)):
        now = number / 10
        if looks.is_due(now, lost_count=lost_count):
            looks.begun(now, lost_count=lost_count)
            found.append(now)
    return found


def test_scan_repeats_after_a_doubt_for_as_long_as_a_claim_may_take() -> None:
    looks = OrphanScan(apart_s=1.0)
    assert looks_in(looks, begin=0, end=10) == [0.0]
    looks.doubted(10.0)
    assert looks_in(looks, begin=10, end=10 + LATE_S + APART_S - 1) == [
        10.0 + second for second in range(int(LATE_S))
    ]


def test_scan_without_a_doubt_is_rare() -> None:
    looks = OrphanScan(apart_s=1.0)
    found = looks_in(looks, begin=0, end=3 * APART_S)
    assert found == [0.0, APART_S, 2 * APART_S]


def test_lost_ending_triggers_a_scan_at_once() -> None:
    looks = OrphanScan(apart_s=1.0)
    assert looks_in(looks, begin=0, end=1) == [0.0]
    assert looks_in(looks, begin=1, end=2, lost_count=1) == [1.0]
