"""Bulk operations on dead letters: fixed at the start, run in whole batches, failures shown."""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.bulk_operation import (
    CANCEL,
    LETTERS_MAX,
    PAUSE,
    RESUME,
    BulkVerb,
    hold_up,
    left,
    progress,
)
from cortex.domain.dead_letter import DeadLetterFilter
from cortex.domain.errors import (
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    UsageError,
)
from cortex.postgres.database import Database, Profile, Record
from cortex.postgres.session import Session, open_session
from cortex.store import bulk_operations, dead_letters
from cortex.store.bulk_operations import UNDER_WAY_MAX
from tests.sql.test_plans import explain
from tests.support.records.bulk_operations import an_act
from tests.support.records.dead_letters import fail, letter, lifecycle
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    move_clock,
    new_id,
    seeded_random,
    steps,
)
from tests.support.servers.postgres import sql

LIVING_POD = """
    INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, state, heartbeat_at)
    VALUES (cortex.uuid7(), 7, 'eu-1', '0', '{work}', 1, 'READY', cortex.now())
"""
REFUSES = """
    CREATE FUNCTION cortex.test_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.origin_id = ANY (TG_ARGV[0]::uuid[]) THEN
            RAISE EXCEPTION 'no such job is wanted';
        END IF;
        RETURN NEW;
    END $$
"""
BREAKS_OFF = """
    CREATE FUNCTION cortex.test_breaks_off() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'broken off';
    END $$
"""
BREAK_OFF = """
    CREATE TRIGGER test_breaks_off BEFORE UPDATE OF done_count ON cortex.dead_act
    FOR EACH ROW EXECUTE FUNCTION cortex.test_breaks_off()
"""
POISON = """
    CREATE TRIGGER test_refuses BEFORE INSERT ON cortex.job
    FOR EACH ROW EXECUTE FUNCTION cortex.test_refuses('{%s}')
"""


def batches(store: Session, dsn: str) -> Iterator[float]:
    """Work off all that can be, one step at a time; yields the seconds until the next batch."""
    passed_s = 0.0
    while (due_s := store(bulk_operations.work_off, new_id=new_id)) is not None:
        yield due_s
        if due_s > 0:
            passed_s += due_s + 0.001
            move_clock(dsn, passed_s)


def work_off(store: Session, dsn: str) -> None:
    assert sum(1 for _ in itertools.islice(batches(store, dsn), 1000)) < 1000


def facts(dsn: str, act_id: int) -> list[str]:
    query = "SELECT subtype FROM cortex.fact WHERE source = $1 ORDER BY id"
    return [row["subtype"] for row in sql(dsn, query, f"dead_act:{act_id}")]


def states(dsn: str, ids: Sequence[UUID]) -> list[str]:
    return [letter(dsn, each)["state"] for each in ids]


def held_up(row: dict[str, Any]) -> str:
    return hold_up(row, row["now"])


# --- doing all of it


@pytest.mark.parametrize("verb", BulkVerb)
def test_each_letter_is_settled_once_in_the_name_of_who_asked(
    store: Session, database: str, verb: BulkVerb
) -> None:
    ids = fail(database, 45, steps=2)
    (later,) = fail(database)
    act_id = store(bulk_operations.begin, an_act(ids, verb))
    work_off(store, database)
    row = store(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], row["failed_count"]) == ("DONE", 45, 0)
    assert row["ended_at"] is not None
    found = letter(database, ids[44])
    assert found["state"] == ("RETRIED" if verb is BulkVerb.RETRY else "DISCARDED")
    assert (found["resolved_by"], found["reason"]) == ("ana", "mended")
    assert len(lifecycle(database, ids[44])) == 1
    assert letter(database, later)["state"] == "OPEN"
    heirs = job_count(database, "origin_id IS NOT NULL")
    assert heirs == (45 if verb is BulkVerb.RETRY else 0)
    if verb is BulkVerb.RETRY:
        assert len(steps(database, found["retried_as"])) == 2
    assert facts(database, act_id) == ["dead_act_began", "dead_act_done"]
    assert_one_truth(database)


def test_how_it_is_retried_is_kept_for_those_who_do_it(store: Session, database: str) -> None:
    ids = fail(database, 2, steps=2)
    store(bulk_operations.begin, an_act(ids, from_start=True))
    work_off(store, database)
    assert steps(database, letter(database, ids[0])["retried_as"]) == []


def test_no_more_letters_a_second_than_asked_for(store: Session, database: str) -> None:
    ids = fail(database, 30)
    store(bulk_operations.begin, an_act(ids, BulkVerb.DISCARD, rate_per_s=10.0))
    pauses = [due_s for due_s in batches(store, database) if due_s > 0]
    assert sum(pauses) == pytest.approx(30 / 10 - 1, abs=0.6), "a second may be made up for"


def test_a_slow_rate_is_one_letter_at_a_time(store: Session, database: str) -> None:
    ids = fail(database, 3)
    store(bulk_operations.begin, an_act(ids, rate_per_s=0.01))
    assert store(bulk_operations.work_off, new_id=new_id) == 0
    due_s = store(bulk_operations.work_off, new_id=new_id)
    assert due_s == pytest.approx(100, abs=5)
    assert states(database, ids) == ["RETRIED", "OPEN", "OPEN"]


def test_acts_take_turns(store: Session, database: str) -> None:
    many, few = fail(database, 200), fail(database, 10)
    big = store(bulk_operations.begin, an_act(many, rate_per_s=50.0))
    small = store(bulk_operations.begin, an_act(few, rate_per_s=50.0))
    for _ in itertools.islice(batches(store, database), 8):
        pass
    assert store(bulk_operations.show, small)["state"] == "DONE"
    assert 0 < store(bulk_operations.show, big)["done_count"] < 200


# --- what goes wrong


def test_what_somebody_else_settled_meanwhile_is_told(store: Session, database: str) -> None:
    ids = fail(database, 3)
    act_id = store(bulk_operations.begin, an_act(ids))
    store(dead_letters.discard, [ids[1]], by="li", reason="old")
    work_off(store, database)
    row = store(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], row["failed_count"]) == ("DONE", 2, 1)
    assert progress(row) == "retried 2 of 3, 1 not"
    (failure,) = store(bulk_operations.failures, act_id, limit=10)
    assert (failure["job_id"], failure["nth"], failure["error_code"]) == (ids[1], 2, "conflict")
    assert "was discarded by li" in failure["error"]
    assert failure["state"] == "DISCARDED"


def test_a_letter_that_the_database_refuses_does_not_hold_up_the_others(
    store: Session, database: str
) -> None:
    ids = fail(database, 21)
    sql(database, REFUSES)
    sql(database, POISON % ids[7])
    act_id = store(bulk_operations.begin, an_act(ids))
    work_off(store, database)
    row = store(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], row["failed_count"]) == ("DONE", 20, 1)
    (failure,) = store(bulk_operations.failures, act_id, limit=10)
    assert (failure["job_id"], failure["error"]) == (ids[7], "no such job is wanted")
    assert states(database, ids).count("RETRIED") == 20
    assert letter(database, ids[7])["state"] == "OPEN"
    assert_one_truth(database)


def test_letters_and_progress_are_written_together_or_not_at_all(
    store: Session, database: str
) -> None:
    ids = fail(database, 5)
    act_id = store(bulk_operations.begin, an_act(ids))
    sql(database, BREAKS_OFF)
    sql(database, BREAK_OFF)
    with pytest.raises(RejectedError, match="broken off"):
        store(bulk_operations.work_off, new_id=new_id)
    assert states(database, ids) == ["OPEN"] * 5
    assert job_count(database, "origin_id IS NOT NULL") == 0
    sql(database, "DROP TRIGGER test_breaks_off ON cortex.dead_act")
    work_off(store, database)
    assert store(bulk_operations.show, act_id)["done_count"] == 5
    assert_one_truth(database)


def test_a_lost_reply_begins_no_second_act_and_does_nothing_twice(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Database.fetch
    lost: list[str] = []

    async def lossy(self: Database, query: str, *args: object) -> list[Record]:
        rows = await really(self, query, *args)
        if query == "dead_acts.begin" and not lost:
            lost.append(query)
            raise OutcomeUnknownError("the reply was lost")
        return rows

    monkeypatch.setattr(Database, "fetch", lossy)
    act_id = store(bulk_operations.begin, an_act(fail(database, 3)))
    assert lost
    assert [row["id"] for row in store(bulk_operations.page, limit=10)] == [act_id]


def test_of_pods_that_work_at_once_each_letter_has_one_turn(database: str) -> None:
    ids = fail(database, 300, steps=1)
    rng = seeded_random()

    def pod(_: int) -> None:
        with open_session(Profile(dsn=database, hot_path=True)) as call:
            while (due_s := call(bulk_operations.work_off, new_id=new_id)) is not None:
                call.pause(min(due_s, rng.uniform(0, 0.02)))

    with open_session(Profile(dsn=database)) as call:
        act_id = call(bulk_operations.begin, an_act(ids))
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(pod, range(4)))
        row = call(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], row["failed_count"]) == ("DONE", 300, 0)
    assert job_count(database, "origin_id IS NOT NULL") == 300
    assert_one_truth(database)


# --- pausing, going on, ending


def test_paused_it_rests_and_goes_on_where_it_was(store: Session, database: str) -> None:
    ids = fail(database, 60)
    act_id = store(bulk_operations.begin, an_act(ids))
    assert store(bulk_operations.work_off, new_id=new_id) == 0
    store(bulk_operations.change, act_id, PAUSE, by="li", reason="wait")
    assert store(bulk_operations.work_off, new_id=new_id) is None
    row = store(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], left(row)) == ("PAUSED", 20, 40)
    assert held_up(row) == 'paused by li: "wait"'
    with pytest.raises(ConflictError, match=f"act {act_id} is paused by li: it was not paused"):
        store(bulk_operations.change, act_id, PAUSE, by="ana")
    store(bulk_operations.change, act_id, RESUME, by="ana")
    work_off(store, database)
    assert store(bulk_operations.show, act_id)["done_count"] == 60
    assert facts(database, act_id) == [
        *("dead_act_began", "dead_act_paused", "dead_act_resumed", "dead_act_done")
    ]


def test_ended_it_leaves_the_others_alone(store: Session, database: str) -> None:
    ids = fail(database, 60)
    act_id = store(bulk_operations.begin, an_act(ids))
    assert store(bulk_operations.work_off, new_id=new_id) == 0
    store(bulk_operations.change, act_id, CANCEL, by="li", reason="wrong ones")
    assert store(bulk_operations.work_off, new_id=new_id) is None
    row = store(bulk_operations.show, act_id)
    assert (row["state"], row["done_count"], left(row)) == ("ENDED", 20, 40)
    assert states(database, ids).count("OPEN") == 40
    for how in (PAUSE, RESUME, CANCEL):
        with pytest.raises(ConflictError, match="is ended by li"):
            store(bulk_operations.change, act_id, how, by="ana")
    with pytest.raises(NotFoundError, match="there is no act 999"):
        store(bulk_operations.change, 999, PAUSE, by="ana")


def test_without_a_pod_it_says_so(store: Session, database: str) -> None:
    act_id = store(bulk_operations.begin, an_act(fail(database)))
    assert held_up(store(bulk_operations.show, act_id)) == "waits for a pod: none is alive"
    sql(database, LIVING_POD)
    assert held_up(store(bulk_operations.show, act_id)) == ""
    move_clock(database, 40)
    assert held_up(store(bulk_operations.show, act_id)) == "no pod has continued it for 40s"
    move_clock(database, 400)
    assert held_up(store(bulk_operations.show, act_id)) == "waits for a pod: none is alive"


# --- bounds


def test_what_makes_no_sense_is_refused(store: Session, database: str) -> None:
    with pytest.raises(UsageError, match="not 0"):
        store(bulk_operations.begin, an_act([]))
    with pytest.raises(UsageError, match="to 10,000 letters, not 10,001"):
        store(bulk_operations.begin, an_act([UUID(int=n) for n in range(LETTERS_MAX + 1)]))
    (job_id,) = fail(database)
    for _ in range(UNDER_WAY_MAX):
        store(bulk_operations.begin, an_act([job_id]))
    with pytest.raises(ConflictError, match="are under way"):
        store(bulk_operations.begin, an_act([job_id]))


def test_ten_thousand_letters_are_begun_at_once(store: Session) -> None:
    act_id = store(bulk_operations.begin, an_act([UUID(int=n) for n in range(LETTERS_MAX)]))
    assert store(bulk_operations.show, act_id)["letter_count"] == LETTERS_MAX


def test_what_ended_long_ago_is_forgotten(store: Session, database: str) -> None:
    ids = fail(database, 2)
    old = store(bulk_operations.begin, an_act([ids[0]]))
    work_off(store, database)
    going = store(bulk_operations.begin, an_act([ids[1]]))
    move_clock(database, 1000)
    assert store(bulk_operations.forget, kept_s=2000, limit=5) == 0
    assert store(bulk_operations.forget, kept_s=500, limit=5) == 1
    assert [row["id"] for row in store(bulk_operations.page, limit=10)] == [going]
    assert letter(database, ids[0])["state"] == "RETRIED"
    left_over = "SELECT FROM cortex.dead_act_letter WHERE act_id = $1"
    assert sql(database, left_over, old) == []


def test_those_under_way_come_first(store: Session, database: str) -> None:
    ids = fail(database, 3)
    first = store(bulk_operations.begin, an_act([ids[0]]))
    store(bulk_operations.change, first, PAUSE, by="ana")
    second = store(bulk_operations.begin, an_act([ids[1]]))
    work_off(store, database)
    third = store(bulk_operations.begin, an_act([ids[2]]))
    assert [row["id"] for row in store(bulk_operations.page, limit=10)] == [third, first, second]
    assert len(store(bulk_operations.page, limit=1)) == 1


def test_plans_find_letters_by_index(store: Session, database: str) -> None:
    for _ in range(3):
        store(bulk_operations.begin, an_act([UUID(int=n) for n in range(LETTERS_MAX)]))
    sql(database, "ANALYZE cortex.dead_act_letter")
    looks = explain(database, "dead_acts.next", (2, 100, 20))
    assert all("Seq Scan" not in look.node for look in looks), looks
    assert sum(look.rows for look in looks) <= 2 * 20


def test_how_letters_were_chosen_is_kept_up_to_a_length(store: Session, database: str) -> None:
    ids = fail(database, 1)
    long = DeadLetterFilter(type="'" * 200, code="'" * 200, agent="'" * 200, tenant="'" * 200)
    which = long.typed(limit=10)
    assert len(which) > 2 * bulk_operations.WHICH_MAX
    row = store(bulk_operations.show, store(bulk_operations.begin, an_act(ids, which=which)))
    assert row["which"] == which[: bulk_operations.WHICH_MAX - 1] + "…"
