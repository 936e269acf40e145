"""The job type `bulk`: its steps, its rate and its turns, on a pod that only counts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.domain.bulk import (
    FAILED_KEPT,
    LIMIT_MAX,
    NAMED_MAX,
    BulkCounts,
    BulkFailure,
    BulkOrder,
    BulkRequest,
    BulkResult,
    BulkSlice,
    BulkVerb,
)
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import UsageError
from cortex.domain.limits import PAYLOAD
from cortex.durable.codec import decode
from cortex.jobs.bulk import TURN_S, bulk
from tests.support.records.bulk import BulkList, a_request
from tests.support.records.factories import Record, a_context


def ids(count: int) -> tuple[UUID, ...]:
    return tuple(UUID(int=number) for number in range(count))


async def run(record: Record, changes: BulkList, **fields: Any) -> BulkResult:
    result: BulkResult = await bulk(a_context(record, bulk=changes), a_request(**fields))
    return result


async def test_ten_thousand_are_changed_once_and_counted(autojump_clock: object) -> None:
    record, changes = Record(), BulkList(ids(LIMIT_MAX))
    result = await run(record, changes)
    assert changes.changed == list(ids(LIMIT_MAX))
    assert (result.total, result.counts.changed) == (LIMIT_MAX, LIMIT_MAX)
    assert record.keys[:2] == ["choose", "retry 1-200 of 10,000"]
    assert record.keys[-1] == "retry 9,801-10,000 of 10,000"
    assert await run(record, changes) == result, "a replay"
    assert len(changes.changed) == LIMIT_MAX


async def test_bulk_slices_grow_again_after_one_was_too_large(
    autojump_clock: object,
) -> None:
    record, changes = Record(), BulkList(ids(1000), sizes=[50])
    await run(record, changes)
    assert record.keys[1:] == [
        "retry 1-200 of 1,000",
        "retry 51-150 of 1,000",
        "retry 151-350 of 1,000",
        "retry 351-550 of 1,000",
        "retry 551-750 of 1,000",
        "retry 751-950 of 1,000",
        "retry 951-1,000 of 1,000",
    ]
    assert changes.changed == list(ids(1000))


async def test_the_rate_is_kept_by_slices_of_half_a_second_across_a_kill(
    autojump_clock: object,
) -> None:
    record, changes = Record(), BulkList(ids(60))
    with trio.move_on_after(2.2):  # killed within a rest
        await run(record, changes, rate_per_s=10.0)
    assert len(changes.changed) == 25
    await run(record, changes, rate_per_s=10.0)
    assert changes.at_s == pytest.approx([0.5 * number for number in range(12)])
    assert changes.changed == list(ids(60))


async def test_little_is_made_up_for_after_an_outage(
    autojump_clock: object,
) -> None:
    record, changes = Record(), BulkList(ids(100))
    with trio.move_on_after(1.2):
        await run(record, changes, rate_per_s=10.0)
    with trio.move_on_after(998.8):
        await trio.sleep_forever()
    await run(record, changes, rate_per_s=10.0)
    late = [at for at in changes.at_s if at >= 1000]
    assert late == pytest.approx([1000] * 3 + [1000 + 0.5 * n for n in range(1, len(late) - 2)])
    assert late[-1] - late[0] > TURN_S, "it stays in the pod for as long as it is alone"
    assert changes.changed == list(ids(100))


class RefusingList(BulkList):
    """Fails to change any."""

    async def settle(self, order: BulkOrder, job_ids: Sequence[UUID]) -> BulkSlice:
        done = await super().settle(order, job_ids)
        failures = [BulkFailure(job_id=each, code="rejected", error="no") for each in job_ids]
        return attrs.evolve(done, counts=BulkCounts(failed=len(failures)), failures=tuple(failures))


async def test_only_the_first_failures_are_kept(autojump_clock: object) -> None:
    record = Record()
    result = await run(record, RefusingList(ids(450)))
    assert (result.counts.failed, len(result.failures)) == (450, FAILED_KEPT)
    assert [each.job_id for each in result.failures] == list(ids(FAILED_KEPT))
    kept = [len(decode(step.output)["slice"]["failures"]) for step in record.steps[1:]]
    assert sum(kept) == FAILED_KEPT, "no step has more than the result has room for"


async def test_a_slow_rate_is_one_at_a_time_and_sleeps_without_a_pod(
    autojump_clock: object,
) -> None:
    record, changes = Record(), BulkList(ids(3))
    with pytest.raises(Suspended) as wish:
        await run(record, changes, rate_per_s=0.01)
    assert (wish.value.waiting_on, str(wish.value)) == ("sleep", "0.01 per second")
    assert wish.value.delay_s == pytest.approx(100)
    assert len(changes.changed) == 1


async def test_a_job_leaves_the_pod_for_another_one_that_waits(autojump_clock: object) -> None:
    record, changes = Record(), BulkList(ids(1000), is_awaited=True)
    with pytest.raises(Suspended, match="another bulk operation's turn"):
        await run(record, changes, rate_per_s=10.0)
    assert trio.current_time() == pytest.approx(TURN_S)
    assert len(changes.changed) == 10 * TURN_S + 5


LETTERS = "letter:unresolved type:work"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "takes one of"),
        ({"jobs": "type:work", "job_ids": ids(1)}, "takes one of"),
        ({"verb": BulkVerb.DISCARD, "jobs": ""}, "discard is for dead letters"),
        ({"verb": BulkVerb.CANCEL, "jobs": LETTERS}, "cancel is for jobs"),
        ({"jobs": "", "limit": 0}, "limit is 0"),
        ({"jobs": "", "rate_per_s": float("nan")}, "rate_per_s is nan"),
        ({"job_ids": ids(5001)}, "job_ids is 5001"),
        ({"jobs": "", "reason": "x" * 501}, "reason is 501"),
    ],
)
def test_contradictory_bulk_request_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BulkRequest(**{"verb": BulkVerb.RETRY, "reason": ""} | fields).submission(UUID(int=1))


def test_counted_jobs_are_named_as_far_as_a_payload_has_room() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def counted(count: int) -> BulkRequest:
        wanted = ids(count)
        return BulkRequest.counted(BulkVerb.CANCEL, wanted, jobs="age>1h", at=at, reason="")

    named, many = counted(NAMED_MAX), counted(NAMED_MAX + 1)
    assert (named.job_ids, named.jobs) == (ids(NAMED_MAX), None)
    payload = named.submission(UUID(int=1)).payload
    PAYLOAD.check(len(payload.encode()), what="the payload")
    assert (many.job_ids, many.jobs, many.counted_at) == ((), "age>1h", at)
    assert many.limit == NAMED_MAX + 1
