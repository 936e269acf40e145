"""The record of runners: sums of all processes, the last run, and lateness."""

import json
from typing import Any

import attrs

from cortex.domain.messages.subscription import Subscription
from cortex.postgres.session import Session
from cortex.store import facts
from cortex.store.background import runners, subscriptions
from cortex.store.background.runners import LastRun, RunnerRow, RunnerRuns
from tests.support.records.rows import move_clock
from tests.support.servers.postgres import sql

OK = LastRun(ago_s=2.0, duration_s=1.5, items=3, error=None)
SKIPPED = RunnerRuns(
    name="retries",
    interval_s=30.0,
    last=None,
    succeeded_ago_s=None,
    run_count=0,
    item_count=0,
    error_count=0,
    skip_count=4,
    busy_s=0.0,
)


def runs(name: str = "retries", last: LastRun = OK, **fields: Any) -> RunnerRuns:
    is_ok = last.error is None
    summed = attrs.evolve(
        SKIPPED,
        name=name,
        last=last,
        succeeded_ago_s=last.ago_s - last.duration_s if is_ok else None,
        run_count=1,
        item_count=last.items,
        error_count=0 if is_ok else 1,
        skip_count=0,
        busy_s=last.duration_s,
    )
    return attrs.evolve(summed, **fields)


def row(store: Session, name: str = "retries") -> RunnerRow:
    (found,) = [each for each in store(runners.page) if each.name == name]
    return found


def test_runs_of_all_processes_add_up_and_the_last_one_is_shown(store: Session) -> None:
    store(runners.record, [SKIPPED], holder="pod a")
    assert (row(store).started_at, row(store).holder, row(store).skip_count) == (None, None, 4)
    store(runners.record, [runs()], holder="pod b")
    failed = LastRun(ago_s=50.0, duration_s=0.5, items=0, error="it broke")
    store(runners.record, [runs(last=failed, run_count=2)], holder="pod c")  # before b's run
    found = row(store)
    assert (found.holder, found.items, found.duration_s, found.error) == ("pod b", 3, 1.5, None)
    sums = (found.run_count, found.item_count, found.error_count, found.skip_count, found.busy_s)
    assert sums == (3, 3, 1, 4, 2.0)
    assert found.succeeded_at is not None
    assert 0.4 < (found.now - found.succeeded_at).total_seconds() < 20
    store(runners.record, [SKIPPED], holder="pod d")
    assert (row(store).holder, row(store).skip_count) == ("pod b", 8), "a skipped run is no run"
    now = attrs.evolve(failed, ago_s=0.0)
    store(runners.record, [runs(last=now)], holder="pod c")
    assert (row(store).holder, row(store).error) == ("pod c", "it broke")


def test_runner_without_success_for_five_intervals_is_recorded_late_once(
    store: Session, database: str
) -> None:
    assert store(runners.record, [runs("a"), runs("b"), SKIPPED], holder="pod") == []
    move_clock(database, 5 * 30 - 5)
    assert not any(each.is_late for each in store(runners.page))
    move_clock(database, 5 * 30 + 5)
    assert all(each.is_late for each in store(runners.page))
    broken = LastRun(ago_s=0.0, duration_s=0.1, items=0, error="it broke")
    late = store(runners.record, [runs("a", broken), runs("b")], holder="pod")
    assert sorted(late) == ["a", "retries"], "b has just succeeded"
    assert store(runners.record, [runs("a", broken), runs("b")], holder="pod") == []
    recorded = [each for each in store(facts.page, since_s=10_000) if each.subtype == "runner_late"]
    assert sorted((each.source, each.data["error"]) for each in recorded) == [
        ("runner:a", "it broke"),
        ("runner:retries", None),
    ]
    store(runners.record, [runs("a")], holder="pod")
    assert not row(store, "a").is_late
    move_clock(database, 1000)
    assert "a" in store(runners.record, [runs("b")], holder="pod"), "a is late once more"


def test_late_runner_is_announced_once_to_subscribers(store: Session, database: str) -> None:
    late = Subscription(name="a", topic="runner.late", channel="log", filter={"runner": "retries"})
    store(subscriptions.put, late, by="test", reason="")
    store(runners.record, [runs("retries"), runs("dispatch")], holder="pod")
    move_clock(database, 1000)
    for _ in range(2):
        store(runners.record, [runs("outbox")], holder="pod")
    rows = sql(database, "SELECT topic, key, payload FROM cortex.outbox")
    assert [(row["topic"], row["key"]) for row in rows] == [("runner.late", "retries")]
    payload = json.loads(rows[0]["payload"])
    assert (payload["runner"], payload["interval_s"]) == ("retries", 30)
    assert "error" not in payload
