from attrs import define

from cortex.http.framework.limits import Buckets, LockOut, Rate, household


@define
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    buckets: Buckets[str] = Buckets(Rate(burst=3, per_s=2), now=clock)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    clock.now += 0.5
    assert [buckets.take("a") for _ in range(2)] == [0, 0.5]
    clock.now += 100
    assert [buckets.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_the_memory_of_buckets_is_bounded_and_forgets_the_oldest() -> None:
    buckets: Buckets[int] = Buckets(Rate(burst=1, per_s=0.1), keys_max=100, now=Clock())
    assert buckets.take(0) == 0
    for key in range(1, 100):
        buckets.take(key)
    assert buckets.take(0) > 0  # seen just now, so it is not the oldest
    for key in range(100, 1000):
        buckets.take(key)
    assert len(buckets) == 100
    assert buckets.take(999) > 0


def test_misses_lock_a_key_for_a_while() -> None:
    clock = Clock()
    lock: LockOut[str] = LockOut(misses_max=3, for_s=60, now=clock)
    assert [lock.miss("a") for _ in range(3)] == [False, False, True]
    assert (lock.locked_s("a"), lock.locked_s("b")) == (60, 0)
    clock.now = 59
    assert lock.locked_s("a") == 1
    clock.now = 60
    assert lock.locked_s("a") == 0
    assert [lock.miss("a") for _ in range(3)] == [False, False, True]


def test_misses_far_apart_do_not_lock() -> None:
    clock = Clock()
    lock: LockOut[str] = LockOut(misses_max=3, for_s=60, now=clock)
    for _ in range(10):
        assert not lock.miss("a")
        clock.now += 31


def test_the_memory_of_misses_is_bounded() -> None:
    lock: LockOut[int] = LockOut(misses_max=2, for_s=60, keys_max=10, now=Clock())
    for key in range(100):
        lock.miss(key)
    assert len(lock) == 10


def test_an_address_counts_as_its_household() -> None:
    assert household("192.0.2.7") == "192.0.2.7"
    assert household("2001:db8:1:2:aaaa::1") == household("2001:db8:1:2:bbbb::2")
    assert household("2001:db8:1:2::1") != household("2001:db8:1:3::1")
    assert household("::ffff:192.0.2.7") == "192.0.2.7"
    assert household("unknown") == "unknown"
