"""Dead letters that are locked, or whose jobs are too large: the others get their turns."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from cortex.domain.bulk import BulkSlice, BulkVerb
from cortex.domain.errors import RejectedError, UnavailableError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.session import Session
from cortex.store import bulk, dead_letters
from cortex.store.bulk import Resisted
from cortex.store.dead_letters import Resubmission, SettledDeadLetter
from tests.support.holder import holding_task
from tests.support.records.bulk import a_request, an_order
from tests.support.records.dead_letters import cancelling, fail, letter, make_large
from tests.support.records.rows import assert_one_truth, new_id, steps


def retry(store: Session, *job_ids: UUID, from_start: bool = False) -> list[SettledDeadLetter]:
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in job_ids]
    return store(dead_letters.resubmit, wanted, by="ana", reason="mended", from_start=from_start)


@pytest.mark.parametrize("verb", [BulkVerb.RETRY, BulkVerb.DISCARD])
def test_locked_letter_blocks_its_whole_slice(
    store: Session, database: str, verb: BulkVerb
) -> None:
    ids = fail(database, 2)
    order = an_order(a_request(verb=verb))
    with holding_task(database, ids[0], table="cortex.dead_letter"):
        assert store(bulk.settle, order, ids) == Resisted(None), "another try may succeed"
    assert {letter(database, each)["state"] for each in ids} == {"OPEN"}
    done = store(bulk.settle, order, ids)
    assert isinstance(done, BulkSlice)
    assert done.counts.changed == 2
    assert_one_truth(database)


def test_job_too_large_to_continue_names_the_way_out(store: Session, database: str) -> None:
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


def test_cancelled_statement_is_not_taken_for_a_large_job(store: Session, database: str) -> None:
    (job_id,) = fail(database, steps=2)
    order = an_order(a_request())
    with cancelling(database, job_id):
        with pytest.raises(UnavailableError, match="somebody cancelled the statement"):
            retry(store, job_id)
        assert store(bulk.settle, order, [job_id]) == Resisted(None)
    assert letter(database, job_id)["state"] == "OPEN"
    assert isinstance(store(bulk.settle, order, [job_id]), BulkSlice)


def test_slice_too_large_suggests_fewer_letters(store: Session, database: str) -> None:
    small, large = fail(database, 2, steps=2)
    make_large(database, large)
    with pytest.raises(UnavailableError, match="the steps of 2 jobs") as caught:
        retry(store, small, large)
    assert "retry fewer of them at once" in (caught.value.hint or "")
    assert retry(store, small)[0].error is None


def test_job_too_large_inside_a_transaction_spares_the_others(
    store: Session, database: str
) -> None:
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


@pytest.mark.parametrize("verb", [BulkVerb.RETRY, BulkVerb.DISCARD])
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
