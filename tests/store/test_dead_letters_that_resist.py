"""Dead letters that are locked, or whose jobs are too large: the others get their turns."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import pytest

from cortex.domain.bulk_operation import BulkVerb, hold_up
from cortex.domain.errors import RejectedError, UnavailableError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.session import Session
from cortex.store import bulk_operations, dead_letters
from cortex.store.dead_letters import Resubmission, SettledDeadLetter
from tests.support.holder import holding_task
from tests.support.records.bulk_operations import an_act
from tests.support.records.dead_letters import cancelling, fail, letter, make_large
from tests.support.records.rows import assert_one_truth, job_count, move_clock, new_id, steps
from tests.support.servers.postgres import sql

A_SECOND: Final = timedelta(seconds=1)
LIVING_POD: Final = """
    INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, state, heartbeat_at)
    VALUES (cortex.uuid7(), 7, 'eu-1', '0', '{work}', 1, 'READY', cortex.now() + interval '1 day')
"""


def work_off(store: Session, dsn: str, act_id: int) -> None:
    """Work off what is due until an act is over."""
    passed_s = 0.0
    for _ in range(50):
        due_s = store(bulk_operations.work_off, new_id=new_id)
        if store(bulk_operations.show, act_id)["state"] == "DONE":
            return
        assert due_s is not None
        passed_s += due_s
        move_clock(dsn, passed_s)
    pytest.fail("it comes to no end")


def retry(store: Session, *job_ids: UUID, from_start: bool = False) -> list[SettledDeadLetter]:
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in job_ids]
    return store(dead_letters.resubmit, wanted, by="ana", reason="mended", from_start=from_start)


@pytest.mark.parametrize("verb", BulkVerb)
def test_a_letter_that_somebody_holds_holds_up_its_own_act_alone(
    store: Session, database: str, verb: BulkVerb
) -> None:
    held, free = fail(database, 2), fail(database, 2)
    first = store(bulk_operations.begin, an_act(held, verb))
    second = store(bulk_operations.begin, an_act(free, verb))
    sql(database, LIVING_POD)
    with holding_task(database, held[0], table="cortex.dead_letter"):
        work_off(store, database, second)
        row = store(bulk_operations.show, first)
        assert hold_up(row, row["due_at"] - A_SECOND) == "waits for a locked letter"
        assert hold_up(row, row["due_at"]) == "tries its next letter alone"
        assert letter(database, held[0])["state"] == "OPEN"
        assert store(bulk_operations.show, first)["failed_count"] == 0
    work_off(store, database, first)
    row = store(bulk_operations.show, first)
    assert (row["done_count"], hold_up(row, row["now"])) == (2, "")
    assert_one_truth(database)


def test_a_job_that_is_too_large_is_told_of_with_the_way_out(store: Session, database: str) -> None:
    (job_id,) = fail(database, steps=2)
    make_large(database, job_id)
    (settled,) = retry(store, job_id)
    assert isinstance(settled.error, RejectedError)
    assert settled.error.message.startswith(f"job {job_id} is too large to go on from")
    assert settled.error.hint is not None
    assert settled.error.hint.endswith(f"cortex dead retry {job_id} --from-start")
    (settled,) = retry(store, job_id, from_start=True)
    assert settled.error is None
    assert steps(database, letter(database, job_id)["retried_as"]) == []


def test_what_somebody_cancels_is_not_too_large(store: Session, database: str) -> None:
    (job_id,) = fail(database, steps=2)
    act_id = store(bulk_operations.begin, an_act([job_id]))
    sql(database, LIVING_POD)
    with cancelling(database, job_id):
        with pytest.raises(UnavailableError, match="somebody cancelled the statement"):
            retry(store, job_id)
        assert store(bulk_operations.work_off, new_id=new_id) == 0.0
        row = store(bulk_operations.show, act_id)
        assert hold_up(row, row["due_at"] - A_SECOND).startswith("waits for a locked letter")
    assert letter(database, job_id)["state"] == "OPEN"
    work_off(store, database, act_id)
    assert store(bulk_operations.show, act_id)["done_count"] == 1


def test_of_several_at_once_it_is_told_that_fewer_may_pass(store: Session, database: str) -> None:
    small, large = fail(database, 2, steps=2)
    make_large(database, large)
    with pytest.raises(UnavailableError, match="the steps of 2 jobs") as caught:
        retry(store, small, large)
    assert "retry fewer of them at once" in (caught.value.hint or "")
    assert retry(store, small)[0].error is None


def test_in_a_transaction_that_goes_on_one_is_told_of(store: Session, database: str) -> None:
    (large,), (other,) = fail(database, steps=2), fail(database)
    make_large(database, large)

    async def both(db: Database) -> list[SettledDeadLetter]:
        async def work(connection: Connection) -> list[SettledDeadLetter]:
            done: list[SettledDeadLetter] = []
            for job_id in (large, other):
                wanted = [Resubmission(job_id=job_id, new_id=new_id())]
                inside = db.bound(connection)
                done += await dead_letters.resubmit(inside, wanted, by="ana", reason="x")
            return done

        return await db.transact(work)

    refused, retried = store(both)
    assert isinstance(refused.error, RejectedError)
    assert retried.error is None
    assert letter(database, other)["state"] == "RETRIED"


def test_an_act_leaves_out_what_is_too_large(store: Session, database: str) -> None:
    ids = fail(database, 12, steps=2)
    make_large(database, ids[4])
    act_id = store(bulk_operations.begin, an_act(ids))
    work_off(store, database, act_id)
    row = store(bulk_operations.show, act_id)
    assert (row["done_count"], row["failed_count"]) == (11, 1)
    (failure,) = store(bulk_operations.failures, act_id, limit=10)
    assert failure["job_id"] == ids[4]
    assert "too large to go on from" in failure["error"]
    assert "--from-start" in failure["error"]
    assert job_count(database, "origin_id IS NOT NULL") == 11


@pytest.mark.parametrize("verb", BulkVerb)
def test_letters_are_locked_in_one_order_and_answered_in_the_one_asked_for(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch, verb: BulkVerb
) -> None:
    ids = fail(database, 7)
    asked = [*ids[3:], *ids[:3]][::-1]
    monkeypatch.setattr(dead_letters, "DISCARD_BATCH", 2)
    monkeypatch.setattr(dead_letters, "RESUBMIT_BATCH", 2)
    really = Database.fetch
    locked: list[UUID] = []

    async def seen(self: Database, query: str, *args: object) -> list[Record]:
        if query in {"dead_letters.settle", "dead_letters.retry"}:
            batch = args[0]
            assert isinstance(batch, Sequence)
            locked.extend(batch)
        return await really(self, query, *args)

    monkeypatch.setattr(Database, "fetch", seen)
    if verb is BulkVerb.RETRY:
        done = retry(store, *asked)
    else:
        done = store(dead_letters.discard, asked, by="ana", reason="old")
    assert locked == sorted(ids)
    assert [each.job_id for each in done] == asked
    assert all(each.error is None for each in done)
