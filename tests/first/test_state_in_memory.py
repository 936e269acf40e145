"""What a replay publishes: the database and the record in memory agree, and nothing is lost."""

import json
import random
from typing import Any

import trio

from cortex.domain.job import Publish
from cortex.domain.published import JobProgress
from cortex.durable.published import Published
from cortex.postgres.database import Profile
from cortex.store import published
from cortex.testing.published import PublishedRecord
from tests.signals.conftest import Stage
from tests.support.records.factories import a_lease
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

KEYS = [f"k{number}" for number in range(5)]


async def test_replay_publishes_what_a_killed_pod_had_not_sent() -> None:
    record, job_id, is_replaying = PublishedRecord(), new_id(), False

    def attempt(number: int) -> Published:
        return Published(
            a_lease(number, job_id=job_id),
            record,
            is_replaying=lambda: is_replaying,
            token=trio.lowlevel.current_trio_token(),
        )

    killed = attempt(1)
    killed.state.update({"branch": "waits", "draft": 1, "phase": "load"})
    killed.progress(JobProgress(done=1, total=3))
    await killed.send()
    killed.state["branch"] = "done"
    del killed.state["draft"]
    killed.progress(JobProgress(done=2, total=3))
    # A step that is on record does not run again.
    record.state["phase"] = "loaded"

    is_replaying, heir = True, attempt(2)
    heir.state.update({"branch": "waits", "draft": 1, "phase": "load"})
    heir.progress(JobProgress(done=1, total=3))
    heir.state["branch"] = "done"
    del heir.state["draft"]
    heir.progress(JobProgress(done=2, total=3))
    is_replaying = False
    await heir.send()
    assert record.state == {"branch": "done", "phase": "loaded"}
    assert record.progress == JobProgress(done=2, total=3)


def change_of(dice: random.Random, number: int) -> dict[str, Any]:
    """Return the fields of a change: each key is assigned, or removed, in one way at most."""
    ways: list[list[str]] = [[], [], [], []]
    keys = [*KEYS, *(f"once{number}.{each}" for each in range(12))]
    for key in dice.sample(keys, dice.randrange(len(keys))):
        dice.choice(ways).append(key)
    has_progress = dice.random() < 0.5
    return {
        "changes": json.dumps(dict.fromkeys(ways[0], number)),
        "defaults": json.dumps(dict.fromkeys(ways[1], number)),
        "removed": tuple(ways[2]),
        "removed_again": tuple(ways[3]),
        "progress": JobProgress(done=number, total=99.0) if has_progress else None,
        "is_default": dice.random() < 0.5,
        "counts": json.dumps({key: dice.randrange(1, 4) for way in [*ways, [""]] for key in way}),
    }


def test_database_and_memory_keep_the_same_of_each_change(shared_database: str) -> None:
    dice, record = random.Random(20261129), PublishedRecord()
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as session:
        stage = Stage(shared_database, session)
        lease = stage.running().lease
        for number in range(1, 40):
            change = Publish(lease=lease, number=number, **change_of(dice, number))
            record.take(change)
            owners = session(published.publish, pod_id=stage.pod_id, changes=[change])
            assert owners == {lease.job_id}
            shown = session(published.of_job, lease.job_id)
            assert shown is not None
            assert (shown.state, shown.progress) == (record.state, record.progress)
            (row,) = sql(
                shared_database,
                "SELECT counts FROM cortex.job_published WHERE job_id = $1",
                lease.job_id,
            )
            assert json.loads(row["counts"]) == record.counts
    assert len(record.counts) > len(KEYS)
