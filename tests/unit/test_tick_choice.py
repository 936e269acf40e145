"""Which runners a tick runs, and how its pod's time is divided."""

import pytest

from cortex.cli.run.tick import NAMES, chosen_names
from cortex.config import Settings
from cortex.domain.errors import UsageError
from cortex.runtime.tick_process import within


def test_all_shards_together_run_everything_and_no_singleton_twice() -> None:
    for count in (1, 2, 3, 7):
        shards = [chosen_names(Settings(tick_shard=f"{i}/{count}")) for i in range(count)]
        chosen = [name for shard in shards for name in shard]
        assert set(chosen) == set(NAMES)
        twice = {name for name in chosen if chosen.count(name) > 1}
        assert twice <= {"dispatch", "outbox"}
        assert all("dispatch" in shard for shard in shards)


def test_runners_are_chosen_by_name() -> None:
    assert chosen_names(Settings(tick_runners=" retries, dispatch,")) == ("retries", "dispatch")
    with pytest.raises(UsageError, match="there is no runner 'retrys'"):
        chosen_names(Settings(tick_runners="retrys"))


@pytest.mark.parametrize("shard", ["2/2", "0/0", "1", "a/b", "-1/2", "1/2/3", "0/1001", ""])
def test_a_wrong_shard_is_refused(shard: str) -> None:
    with pytest.raises(UsageError, match="tick_shard"):
        Settings(tick_shard=shard)


@pytest.mark.parametrize("left_s", [2.0, 6.0, 60.0, 480.0])
def test_a_pod_ends_within_its_time(left_s: float) -> None:
    ends, claims_s = within(Settings(), left_s)
    assert claims_s >= 0.25 * left_s
    assert claims_s + ends.drain_s + ends.close_s <= left_s + 1e-6
    assert ends.drain_s <= Settings().drain_s
