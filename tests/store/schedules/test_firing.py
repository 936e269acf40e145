"""One job per due instant, whatever the clock and other pods do; overlap, backfill, failures."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.messages.subscription import Channel, Subscription
from cortex.domain.schedules.schedule import Schedule
from cortex.postgres.session import Session
from cortex.store import drains, jobs, pulse, specs, tasks
from cortex.store.background import schedules, subscriptions
from cortex.store.background.schedule_ticks import BACKFILL_BATCH, FiredSchedules, fire_due
from cortex.store.specs import SpecKind
from tests.support.at_once import at_once
from tests.support.life import Life
from tests.support.records.rows import new_id, stop_clock
from tests.support.servers.postgres import sql

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Cluster:
    """A database with a stopped clock, and the schedules in it."""

    def __init__(self, store: Session, dsn: str) -> None:
        self.store = store
        self.dsn = dsn
        sql(dsn, "DELETE FROM cortex.schedule")
        self.at(NOON)

    def at(self, instant: datetime) -> None:
        self.now = instant
        stop_clock(self.dsn, instant)

    def apply(self, **given: Any) -> None:
        made = Schedule.make(**{"name": "s", "cron": "* * * * *", "type": "work", **given})
        self.store(schedules.apply, [made], by="ana", reason="")

    def tick(self, *, limit: int = 200) -> FiredSchedules:
        return self.store(fire_due, limit=limit)

    def fired(self, name: str = "s") -> list[tuple[datetime, str]]:
        """The instants that were not missed, with their outcomes."""
        rows = sql(
            self.dsn,
            "SELECT instant, outcome FROM cortex.schedule_instant "
            "WHERE schedule = $1 AND outcome <> 'MISSED' ORDER BY instant",
            name,
        )
        return [(row["instant"], row["outcome"]) for row in rows]

    def outcomes(self) -> list[str]:
        return [outcome for _, outcome in self.fired()]

    def jobs(self) -> list[dict[str, Any]]:
        rows = sql(
            self.dsn,
            "SELECT i.instant, j.id, j.status::text, j.payload, j.submitted_by, j.cancelled_by, "
            "j.cancel_reason FROM cortex.job j "
            "LEFT JOIN cortex.schedule_instant i ON i.job_id = j.id ORDER BY i.instant",
        )
        return [dict(row) for row in rows]

    def row(self) -> dict[str, Any]:
        return dict(sql(self.dsn, "SELECT * FROM cortex.schedule WHERE name = 's'")[0])

    def end(self, job_id: UUID) -> None:
        self.store(jobs.cancel, job_id, by="li", reason="")

    def complete_one(self) -> bool:
        """Run one job to its end; return whether one was due."""
        pod = new_id()
        claims = self.store(tasks.claim, pod_id=pod, types=["work"], limit=9)
        assert len(claims) <= 1, "jobs of one schedule run one after another"
        for each in claims:
            Life(self.store, self.dsn).finish(pod, each)
        return bool(claims)

    def run_all(self) -> None:
        """Tick, and run the jobs one after another, until nothing is left."""
        for _ in range(200):
            fired = self.tick().instants
            if not self.complete_one() and not fired:
                return
        raise AssertionError("it does not come to rest")


@pytest.fixture
def cluster(store: Session, database: str) -> Cluster:
    return Cluster(store, database)


def test_an_instant_fires_once_however_often_it_is_ticked(cluster: Cluster) -> None:
    cluster.apply()
    assert cluster.tick().next_s == 60
    assert cluster.fired() == []
    cluster.at(NOON + MINUTE)
    assert [cluster.tick().instants for _ in range(3)] == [1, 0, 0]
    assert cluster.fired() == [(NOON + MINUTE, "SUBMITTED")]
    (job,) = cluster.jobs()
    assert job["submitted_by"] == "schedule:s"
    assert job["payload"] == "{}"


def test_a_job_gets_the_instant_that_it_is_for(cluster: Cluster) -> None:
    cluster.apply(instant_as="at", arguments={"a": 1})
    cluster.at(NOON + MINUTE + timedelta(seconds=7))
    cluster.tick()
    assert cluster.jobs()[0]["payload"] == '{"a": 1, "at": "2026-06-01T12:01:00+00:00"}'


def test_eight_at_once_submit_one_job(cluster: Cluster) -> None:
    cluster.apply(backfill="1h")
    for n in range(1, 6):
        cluster.at(NOON + n * MINUTE)
        results = at_once(cluster.dsn, *[lambda db: fire_due(db, limit=200)] * 8)
        assert all(isinstance(each, FiredSchedules) for each in results), results
        cluster.tick()
        assert len(cluster.fired()) == n
        for job in cluster.jobs():
            if job["status"] == "PENDING":
                cluster.end(job["id"])
    assert len(cluster.jobs()) == 5
    assert cluster.outcomes() == ["SUBMITTED"] * 5


def test_clock_moved_back_fires_no_instant_twice(cluster: Cluster) -> None:
    cluster.apply()
    cluster.at(NOON + MINUTE)
    cluster.tick()
    cluster.at(NOON - 30 * MINUTE)
    assert cluster.tick().instants == 0
    cluster.at(NOON + MINUTE)
    assert cluster.tick().instants == 0
    assert len(cluster.jobs()) == 1


def test_an_outage_is_filled_oldest_first_and_a_batch_at_a_time(cluster: Cluster) -> None:
    cluster.apply(backfill="6h", overlap="queue")
    cluster.at(NOON + timedelta(hours=1))
    first = cluster.tick()
    assert first.instants == BACKFILL_BATCH
    assert first.next_s is not None
    assert first.next_s <= 0
    assert cluster.fired()[0] == (NOON + MINUTE, "SUBMITTED")
    assert cluster.outcomes() == ["SUBMITTED"] + ["QUEUED"] * (BACKFILL_BATCH - 1)
    while cluster.tick().instants:
        pass
    assert [at for at, _ in cluster.fired()] == [NOON + n * MINUTE for n in range(1, 61)]


def test_instants_older_than_the_backfill_are_recorded_as_missed(cluster: Cluster) -> None:
    cluster.apply(cron="0 * * * *", backfill="2h")
    watched = Subscription(name="ops", topic="schedule.*", channel=Channel.LOG)
    cluster.store(subscriptions.put, watched, by="ana", reason="")
    cluster.at(NOON + timedelta(hours=5, minutes=30))
    cluster.tick()
    (message,) = sql(cluster.dsn, "SELECT topic, key, payload FROM cortex.outbox")
    assert (message["topic"], message["key"]) == ("schedule.missed", "schedule:s")
    assert '"schedule": "s"' in message["payload"]
    assert '"count": 3' in message["payload"]
    assert [at.hour for at, _ in cluster.fired()] == [16, 17]
    assert cluster.row()["missed_count"] == 3
    assert cluster.row()["missed_at"] == NOON + timedelta(hours=3)
    for minutes, has_missed in ((59, True), (61, False)):
        cluster.at(NOON + timedelta(hours=5, minutes=30 + minutes))
        assert cluster.store(schedules.show, "s").has_missed is has_missed
        assert cluster.store(pulse.figures).missed_schedules == has_missed
    (fact,) = sql(cluster.dsn, "SELECT data FROM cortex.fact WHERE subtype = 'schedule_missed'")
    assert '"count": 3' in fact["data"]


def test_outage_without_backfill_fires_only_the_current_instant(cluster: Cluster) -> None:
    cluster.apply()
    cluster.at(NOON + timedelta(hours=1, seconds=30))
    cluster.tick()
    assert [at for at, _ in cluster.fired()] == [NOON + timedelta(hours=1)]
    assert cluster.row()["missed_count"] == 59
    sql(cluster.dsn, "UPDATE cortex.schedule SET origin = 'built_in' WHERE name = 's'")
    assert not cluster.store(schedules.show, "s").has_missed, "what pods make up for anyway"
    cluster.at(NOON + timedelta(hours=2, seconds=30))
    cluster.tick()
    assert cluster.row()["missed_count"] == 59 + 59
    facts = sql(cluster.dsn, "SELECT data FROM cortex.fact WHERE subtype = 'schedule_missed'")
    assert len(facts) == 1


def test_overlap_skip_leaves_instants_out_while_a_job_is_open(cluster: Cluster) -> None:
    cluster.apply(overlap="skip")
    for n in (1, 2):
        cluster.at(NOON + n * MINUTE)
        cluster.tick()
    cluster.end(cluster.jobs()[0]["id"])
    cluster.at(NOON + 3 * MINUTE)
    cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", "SKIPPED", "SUBMITTED"]
    assert len(cluster.jobs()) == 2


def test_overlap_skip_still_fills_an_outage_one_after_another(cluster: Cluster) -> None:
    cluster.apply(cron="0 * * * *", overlap="skip", backfill="6h")
    cluster.at(NOON + timedelta(hours=3, minutes=10))
    cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", "QUEUED", "QUEUED"]
    for done in (1, 2, 3):
        cluster.end(cluster.jobs()[-1]["id"])
        cluster.tick()
        assert cluster.outcomes().count("SUBMITTED") == min(3, done + 1)
    assert [job["instant"].hour for job in cluster.jobs()] == [13, 14, 15]


def test_overlap_queue_runs_each_instant_after_the_one_before(cluster: Cluster) -> None:
    cluster.apply(overlap="queue")
    for n in (1, 2, 3):
        cluster.at(NOON + n * MINUTE)
        cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", "QUEUED", "QUEUED"]
    assert cluster.tick().next_s == 1
    cluster.end(cluster.jobs()[0]["id"])
    assert cluster.tick().instants == 1
    assert cluster.outcomes() == ["SUBMITTED", "SUBMITTED", "QUEUED"]
    assert cluster.tick().instants == 0


def test_overlap_cancel_previous_cancels_a_waiting_job(cluster: Cluster) -> None:
    cluster.apply(overlap="cancel_previous")
    for n in (1, 2):
        cluster.at(NOON + n * MINUTE)
        cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", "SUBMITTED"]
    first, second = cluster.jobs()
    assert (first["status"], second["status"]) == ("CANCELLED", "PENDING")
    assert first["cancelled_by"] == "schedule:s"
    assert "2026-06-01T12:02:00+00:00" in first["cancel_reason"]


def test_overlap_cancel_previous_asks_the_pod_of_a_running_job(cluster: Cluster) -> None:
    cluster.apply(overlap="cancel_previous")
    cluster.at(NOON + MINUTE)
    cluster.tick()
    (claim,) = cluster.store(tasks.claim, pod_id=new_id(), types=["work"], limit=9)
    cluster.at(NOON + 2 * MINUTE)
    cluster.tick()
    query = "SELECT cancel_requested_at FROM cortex.job WHERE id = $1"
    assert sql(cluster.dsn, query, claim.lease.job_id)[0][0] == NOON + 2 * MINUTE
    assert cluster.outcomes() == ["SUBMITTED", "SUBMITTED"]


def test_paused_schedule_fires_nothing_and_skips_the_pause(cluster: Cluster) -> None:
    cluster.apply(backfill="6h")
    cluster.store(schedules.pause, "s", by="ana", reason="deploy")
    cluster.at(NOON + 30 * MINUTE)
    assert cluster.tick().instants == 0
    cluster.store(schedules.resume, "s", by="ana", reason="done")
    assert cluster.tick().instants == 0
    cluster.at(NOON + 31 * MINUTE)
    cluster.tick()
    assert [at for at, _ in cluster.fired()] == [NOON + 31 * MINUTE]
    assert cluster.row()["missed_count"] == 0


def test_a_job_that_cannot_be_submitted_does_not_stop_the_others(cluster: Cluster) -> None:
    cluster.apply(name="a", type=None, agent=_an_agent(cluster), arguments={"prompt": "x"})
    cluster.apply()
    sql(cluster.dsn, "UPDATE cortex.schedule SET agent = 'gone' WHERE name = 'a'")
    cluster.at(NOON + MINUTE)
    done = cluster.tick()
    assert done.problems == (("a", "a job could not be submitted"),)
    assert cluster.fired() == [(NOON + MINUTE, "SUBMITTED")]
    assert cluster.fired("a") == [(NOON + MINUTE, "FAILED")]
    query = "SELECT error FROM cortex.schedule_instant WHERE schedule = 'a'"
    assert sql(cluster.dsn, query)[0]["error"] == 'agent "gone" does not exist'


def test_a_schedule_that_cannot_be_evaluated_is_left_alone_for_a_minute(cluster: Cluster) -> None:
    cluster.apply(name="a")
    cluster.apply()
    sql(cluster.dsn, "UPDATE cortex.schedule SET zone = 'Mars/Base' WHERE name = 'a'")
    cluster.at(NOON + MINUTE)
    done = cluster.tick()
    assert done.problems == (("a", "'Mars/Base' is not a time zone"),)
    assert done.next_s == 60
    assert cluster.fired() == [(NOON + MINUTE, "SUBMITTED")]
    sql(cluster.dsn, "UPDATE cortex.schedule SET zone = 'UTC' WHERE name = 'a'")
    cluster.at(NOON + 2 * MINUTE)
    cluster.tick()
    assert cluster.fired("a") == [
        (NOON + n * MINUTE, "SUBMITTED" if n == 1 else "SKIPPED") for n in (1, 2)
    ]


def test_jitter_delays_the_job_and_not_the_instant(cluster: Cluster) -> None:
    cluster.apply(cron="0 * * * *", jitter="30m")
    due_at = cluster.row()["due_at"]
    assert cluster.row()["next_at"] == NOON + timedelta(hours=1) < due_at
    cluster.at(due_at - timedelta(milliseconds=1))
    assert cluster.tick().instants == 0
    cluster.at(due_at)
    assert cluster.tick().instants == 1
    assert cluster.fired() == [(NOON + timedelta(hours=1), "SUBMITTED")]


def test_a_trigger_is_no_instant_and_uses_none_up(cluster: Cluster) -> None:
    cluster.apply()
    cluster.at(NOON + MINUTE)
    job_id = cluster.store(schedules.trigger, "s", by="ana", reason="now")
    cluster.store(jobs.cancel, job_id, by="li", reason="")
    cluster.tick()
    rows = cluster.store(schedules.instants, "s")
    assert [(row.instant, row.is_manual) for row in rows] == [
        (NOON + MINUTE + timedelta(microseconds=1), True),
        (NOON + MINUTE, False),
    ]


def test_old_instants_are_forgotten_unless_still_queued(cluster: Cluster) -> None:
    cluster.apply(overlap="queue")
    for n in (1, 2, 3):
        cluster.at(NOON + n * MINUTE)
        cluster.tick()
    cluster.end(cluster.jobs()[0]["id"])
    cluster.tick()
    cluster.at(NOON + timedelta(days=40))
    assert cluster.store(schedules.forget, kept_s=30 * 86_400.0, limit=100) == 1
    assert cluster.outcomes() == ["SUBMITTED", "QUEUED"]


def test_many_schedules_share_one_tick_and_its_limit(cluster: Cluster) -> None:
    for n in range(7):
        cluster.apply(name=f"s{n}")
    cluster.at(NOON + MINUTE)
    assert [cluster.tick(limit=3).instants for _ in range(4)] == [3, 3, 1, 0]


def _an_agent(cluster: Cluster) -> str:
    cluster.store(
        specs.apply, SpecKind.AGENT, new_id=new_id(), name="known", spec={"tools": []}, by="ana"
    )
    return "known"


def test_a_change_of_the_expression_counts_from_now(cluster: Cluster) -> None:
    cluster.apply()
    cluster.at(NOON + 10 * MINUTE)
    cluster.apply(cron="*/30 * * * *", backfill="6h")
    assert cluster.row()["next_at"] == NOON + 30 * MINUTE
    cluster.apply(cron="*/30 * * * *", backfill="1h")
    assert cluster.tick().instants == 0
    assert cluster.row()["backfill_s"] == 3600


def test_change_of_other_fields_keeps_the_due_instant(cluster: Cluster) -> None:
    cluster.apply(backfill="6h")
    cluster.at(NOON + 2 * MINUTE)
    cluster.apply(backfill="6h", arguments={"a": 1})
    assert cluster.row()["next_at"] == NOON + MINUTE


def test_every_field_is_stored_and_read_back(cluster: Cluster) -> None:
    made = Schedule.make(
        name="s", cron="0 3 * * 5L", tz="Europe/Berlin", type="work", arguments={"a": [1, {}]},
        tenant="acme", backfill="6h", overlap="queue", jitter="90s", instant_as="at",
    )  # fmt: skip
    (change,) = cluster.store(schedules.apply, [made], by="ana", reason="why")
    assert change.change == "created"
    row = cluster.store(schedules.show, "s")
    assert row.schedule == made
    assert (row.changed_by, row.reason, row.is_served) == ("ana", "why", False)
    (change,) = cluster.store(schedules.apply, [attrs.evolve(made)], by="li", reason="")
    assert change.change == "unchanged"


def test_a_type_is_served_by_pods_that_take_jobs(cluster: Cluster) -> None:
    cluster.apply()
    life = Life(cluster.store, cluster.dsn)
    pod = life.pod("a", "work")
    sql(cluster.dsn, "UPDATE cortex.pod SET liveness = 'heartbeat', heartbeat_at = cortex.now()")

    def is_served() -> bool:
        return cluster.store(schedules.show, "s").is_served

    assert is_served()
    assert cluster.store(drains.request, pod, by="ana", reason="")
    assert not is_served(), "it takes no jobs"
    assert cluster.store(drains.withdraw, pod, by="ana", reason="")
    assert is_served()
    sql(cluster.dsn, "UPDATE cortex.pod SET state = 'DRAINING'")
    assert not is_served()


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
@pytest.mark.parametrize("back_s", [5, 65], ids=["the last one is on time", "all are late"])
def test_every_instant_of_an_outage_is_made_up_for(
    cluster: Cluster, overlap: str, back_s: int
) -> None:
    cluster.apply(overlap=overlap, backfill="1h")
    cluster.at(NOON + 4 * MINUTE + timedelta(seconds=back_s))
    expected = 4 + (back_s > 60)
    cluster.run_all()
    assert cluster.outcomes() == ["SUBMITTED"] * expected
    assert [job["status"] for job in cluster.jobs()] == ["COMPLETED"] * expected


@pytest.mark.parametrize("overlap", ["skip", "cancel_previous"])
def test_an_outage_of_several_batches_is_made_up_for_to_its_end(
    cluster: Cluster, overlap: str
) -> None:
    cluster.apply(overlap=overlap, backfill="1h")
    missed = BACKFILL_BATCH + 1
    cluster.at(NOON + missed * MINUTE + timedelta(seconds=10))
    cluster.tick()
    cluster.at(cluster.now + timedelta(seconds=2))
    cluster.run_all()
    assert [job["status"] for job in cluster.jobs()] == ["COMPLETED"] * missed


@pytest.mark.parametrize("overlap", ["skip", "cancel_previous"])
def test_new_instant_queues_behind_backfilled_ones(cluster: Cluster, overlap: str) -> None:
    cluster.apply(overlap=overlap, backfill="1h")
    cluster.at(NOON + 4 * MINUTE + timedelta(seconds=30))
    cluster.tick()
    cluster.at(NOON + 5 * MINUTE)
    cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", *["QUEUED"] * 4]
    assert cluster.store(schedules.instants, "s")[0].reason == (
        "made up for: it came while earlier instants were"
    )
    cluster.run_all()
    assert [job["status"] for job in cluster.jobs()] == ["COMPLETED"] * 5


@pytest.mark.parametrize("overlap", ["skip", "cancel_previous"])
def test_jobs_that_last_longer_than_their_interval_end_the_making_up(
    cluster: Cluster, overlap: str
) -> None:
    cluster.apply(overlap=overlap, backfill="1h")
    cluster.at(NOON + 3 * MINUTE + timedelta(seconds=30))
    cluster.tick()
    for n in range(4, 24):
        cluster.at(NOON + n * MINUTE)
        if n % 2:
            cluster.complete_one()
        cluster.tick()
    assert cluster.outcomes().count("QUEUED") <= 1
    if overlap == "skip":
        skipped = [r for r in cluster.store(schedules.instants, "s") if r.outcome == "SKIPPED"]
        assert all("had not ended" in str(each.reason) for each in skipped)


def test_outage_cancels_the_older_job_once_and_backfills_the_rest(
    cluster: Cluster,
) -> None:
    cluster.apply(overlap="cancel_previous", backfill="1h")
    cluster.at(NOON + MINUTE)
    cluster.tick()
    cluster.at(NOON + 4 * MINUTE + timedelta(seconds=5))
    cluster.tick()
    first = cluster.jobs()[0]
    assert first["status"] == "CANCELLED"
    assert "2026-06-01T12:02:00" in first["cancel_reason"]
    cluster.run_all()
    assert [job["status"] for job in cluster.jobs()] == ["CANCELLED", *["COMPLETED"] * 3]


def test_a_job_from_before_an_outage_delays_made_up_instants(cluster: Cluster) -> None:
    cluster.apply(overlap="skip", backfill="1h")
    cluster.at(NOON + MINUTE)
    cluster.tick()
    cluster.at(NOON + 4 * MINUTE + timedelta(seconds=5))
    cluster.tick()
    assert cluster.outcomes() == ["SUBMITTED", *["QUEUED"] * 3]
    cluster.run_all()
    assert [job["status"] for job in cluster.jobs()] == ["COMPLETED"] * 4


def test_skipped_and_missed_instants_have_a_reason(cluster: Cluster) -> None:
    cluster.apply(backfill="1h")
    cluster.at(NOON + MINUTE)
    cluster.tick()
    cluster.at(NOON + 2 * MINUTE)
    cluster.tick()
    skipped, _ = cluster.store(schedules.instants, "s")
    assert (skipped.outcome, skipped.reason) == (
        "SKIPPED",
        "the job of the instant 2026-06-01T12:01:00Z had not ended",
    )
    cluster.at(NOON + timedelta(hours=2))
    cluster.tick()
    rows = cluster.store(schedules.instants, "s", limit=99)
    (missed,) = (each for each in rows if each.outcome == "MISSED")
    late = "no pod ran, and they are older than the backfill period of 1h 00m"
    assert (missed.instant, missed.reason) == (
        NOON + 3 * MINUTE,
        f"57 instants up to 2026-06-01T12:59:00Z were missed: {late}",
    )


def test_a_pause_notes_the_instants_that_fell_into_it(cluster: Cluster) -> None:
    cluster.apply(backfill="6h")
    cluster.store(schedules.pause, "s", by="ana", reason="deploy")
    cluster.at(NOON + 30 * MINUTE)
    cluster.store(schedules.resume, "s", by="ana", reason="done")
    (note,) = cluster.store(schedules.instants, "s")
    assert (note.instant, note.outcome, note.reason) == (
        NOON + MINUTE,
        "MISSED",
        "30 instants up to 2026-06-01T12:30:00Z fell into the pause by ana: deploy",
    )
    assert cluster.row()["missed_count"] == 0


def test_instants_from_before_a_pause_are_made_up_for_after_it(cluster: Cluster) -> None:
    cluster.apply(backfill="6h")
    cluster.at(NOON + 3 * MINUTE + timedelta(seconds=30))
    cluster.store(schedules.pause, "s", by="ana", reason="")
    cluster.at(NOON + 20 * MINUTE + timedelta(seconds=30))
    cluster.tick()
    cluster.store(schedules.resume, "s", by="ana", reason="")
    cluster.at(NOON + 22 * MINUTE)
    cluster.run_all()
    minutes = [job["instant"].minute for job in cluster.jobs()]
    assert minutes == [1, 2, 3, 21, 22]
    assert cluster.row()["missed_count"] == 0
    (note,) = (r for r in cluster.store(schedules.instants, "s") if r.outcome == "MISSED")
    assert str(note.reason).startswith("17 instants up to 2026-06-01T12:20:00Z fell into")


def test_an_instant_in_its_jitter_survives_a_pause(cluster: Cluster) -> None:
    cluster.apply(cron="0 * * * *", jitter="30m")
    due_at = cluster.row()["due_at"]
    cluster.at(due_at - timedelta(seconds=2))
    cluster.store(schedules.pause, "s", by="ana", reason="")
    cluster.at(due_at - timedelta(seconds=1))
    cluster.store(schedules.resume, "s", by="ana", reason="")
    cluster.at(due_at)
    assert cluster.tick().instants == 1
    assert cluster.fired() == [(NOON + timedelta(hours=1), "SUBMITTED")]


def test_a_paused_schedule_releases_no_queued_instant(cluster: Cluster) -> None:
    cluster.apply(overlap="queue")
    for n in (1, 2):
        cluster.at(NOON + n * MINUTE)
        cluster.tick()
    cluster.store(schedules.pause, "s", by="ana", reason="")
    cluster.end(cluster.jobs()[0]["id"])
    result = cluster.tick()
    assert (result.instants, result.next_s) == (0, None)
    cluster.store(schedules.resume, "s", by="ana", reason="")
    assert cluster.tick().instants == 1
    assert cluster.outcomes() == ["SUBMITTED", "SUBMITTED"]


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
@pytest.mark.parametrize(
    "cron, outage, instants",
    [
        ("30 2 * * *", "2026-10-24T23:50", ["10-25T00:30", "10-26T01:30"]),
        ("30 * * * *", "2026-10-24T23:50", ["10-25T00:30", "10-25T01:30", "10-25T02:30"]),
        ("30 2 * * *", "2026-03-28T23:50", ["03-29T01:00", "03-30T00:30"]),
        ("30 * * * *", "2026-03-28T23:50", ["03-29T00:30", "03-29T01:30", "03-29T02:30"]),
    ],
)
def test_an_outage_over_a_change_of_clocks_is_made_up_for_once(
    cluster: Cluster, cron: str, outage: str, instants: list[str], overlap: str
) -> None:
    """02:30 in Berlin comes twice in autumn and not at all in spring."""
    expected = [datetime.fromisoformat(f"2026-{each}").replace(tzinfo=UTC) for each in instants]
    cluster.at(datetime.fromisoformat(outage).replace(tzinfo=UTC))
    cluster.apply(cron=cron, tz="Europe/Berlin", backfill="3d", overlap=overlap)
    cluster.tick()
    cluster.at(expected[-1] + timedelta(minutes=20))
    cluster.run_all()
    assert [(job["instant"], job["status"]) for job in cluster.jobs()] == [
        (each, "COMPLETED") for each in expected
    ]
    assert [instant for instant, _ in cluster.fired()] == expected
