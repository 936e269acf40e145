"""Effects: permission to call, what the next attempt finds, and resolution by people."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import IntentReply
from cortex.postgres.session import Session
from cortex.store import breakers, effects, jobs
from tests.support.at_once import at_once
from tests.support.people import user
from tests.support.records.approvals import Askers, a_request
from tests.support.records.effects import ARGUMENTS, Doers, an_intent
from tests.support.records.messages import announced, subscribe
from tests.support.records.rows import assert_one_truth, job_row, new_id

DECIDERS = 20


@pytest.fixture
def doers(store: Session, database: str) -> Doers:
    return Doers(store, database)


def resolve(doers: Doers, effect_id: UUID, said: str, **fields: Any) -> bool:
    given = {"by": user("ana"), "reason": "looked", **fields}
    return doers.call(effects.resolve, effect_id, Resolution(said), **given).job_goes_on


def test_the_first_intent_is_let_through_and_is_in_the_ledger(doers: Doers) -> None:
    claim = doers.claimed()
    leave = doers.begin(claim)
    row = doers.row(leave.id)
    assert (row["status"], row["job_id"], row["attempt"]) == ("PENDING", claim.lease.job_id, 1)
    assert (row["tool"], row["calls_count"], row["is_sure"]) == ("pay", 1, False)
    assert job_row(doers.dsn, claim.lease.job_id)["has_open"]
    assert not claim.has_open
    assert doers.again(claim).has_open, "the next attempt must load it"


def test_a_repeated_statement_is_let_through_again_and_counts_once(doers: Doers) -> None:
    claim = doers.claimed()
    leave = doers.begin(claim, id=new_id())
    again = doers.begin(claim, id=leave.id)
    assert (again.id, doers.row(leave.id)["calls_count"]) == (leave.id, 1)


def test_next_attempt_must_recheck_a_pending_effect(doers: Doers) -> None:
    first = doers.claimed()
    leave = doers.begin(first)
    second = doers.again(first)
    found = doers.intend(second)
    assert found is not None
    assert (found.id, found.verdict, found.attempt) == (leave.id, "recheck", 1)
    row = doers.row(leave.id)
    assert (row["attempt"], row["status"], row["calls_count"]) == (2, "PENDING", 1)
    sure = doers.begin(second, is_sure=True)
    assert (sure.id, doers.row(leave.id)["calls_count"]) == (leave.id, 2)


def test_attempt_without_the_lease_neither_begins_nor_settles_effects(doers: Doers) -> None:
    first = doers.claimed()
    leave = doers.begin(first)
    second = doers.again(first)
    assert doers.intend(first) is None
    assert doers.intend(first, key="other") is None
    assert not doers.tell(first, leave.id, result="1")
    assert Doers(doers.call, doers.dsn).intend(second) is None, "another pod"
    # Between attempts, too: an old attempt's result must not close the new attempt's effect.
    doers.intend(second)
    assert not doers.tell(first, leave.id)
    assert doers.row(leave.id)["status"] == "PENDING"
    doers.fail(second)
    assert doers.intend(second) is None, "it has ended"
    assert len(doers.call(effects.page)) == 1


def test_completed_effect_is_not_repeated(doers: Doers) -> None:
    text, stepped = doers.claimed(), doers.claimed()
    assert doers.tell(text, doers.begin(text).id, result='{"n": 7}')
    doers.complete(stepped, doers.begin(stepped).id, output='{"n": 8}')
    for claim, result in ((text, '{"n": 7}'), (stepped, '{"n": 8}')):
        found = doers.intend(doers.again(claim))
        assert found is not None
        assert (found.verdict, found.result) == ("done", result)


def test_effect_known_not_applied_is_repeated_under_the_same_id(doers: Doers) -> None:
    claim = doers.claimed()
    leave = doers.begin(claim)
    assert doers.tell(claim, leave.id)
    assert doers.row(leave.id)["status"] == "FAILED"
    again = doers.begin(doers.again(claim))
    row = doers.row(leave.id)
    assert again.id == leave.id
    assert (row["status"], row["calls_count"], row["finished_at"]) == ("PENDING", 2, None)


@pytest.mark.parametrize(
    "change", [{"arguments": {"account": "bo"}}, {"tool": "refund"}], ids=["arguments", "tool"]
)
def test_changed_arguments_or_tool_diverge(doers: Doers, change: dict[str, Any]) -> None:
    first = doers.claimed()
    leave = doers.begin(first)
    found = doers.intend(doers.again(first), **change)
    assert found is not None
    assert (found.verdict, found.id) == ("diverged", leave.id)
    assert doers.row(leave.id)["calls_count"] == 1


def test_freeze_stops_new_effects_but_returns_completed_ones(doers: Doers) -> None:
    begun, done, fresh = doers.claimed_many(3)
    pending = doers.begin(begun)
    assert doers.tell(done, doers.begin(done).id, result="1")
    doers.call(breakers.freeze, by="ana", reason="an audit")
    frozen = doers.intend(fresh)
    assert frozen is not None
    assert (frozen.verdict, frozen.why) == ("frozen", "an audit")
    assert doers.begin(begun, id=pending.id).id == pending.id, "it was let through before"
    found = doers.intend(doers.again(done))
    assert (found and found.verdict) == "done"
    begun = doers.again(begun)
    for is_sure, verdict in ((False, "recheck"), (True, "frozen")):
        found = doers.intend(begun, is_sure=is_sure)
        assert (found and found.verdict) == verdict, "asking is no effect, calling is"
    doers.call(breakers.unfreeze, by=user("ana"), reason="it is over")
    assert doers.begin(fresh).verdict == "go"
    assert len(doers.call(effects.page)) == 3


def test_approval_covers_only_its_arguments_tool_key_and_job(doers: Doers) -> None:
    askers = Askers(doers.call, doers.dsn, doers.pod_id)
    claim = askers.claimed()
    request = a_request(ARGUMENTS, tool="pay", key="pay")
    askers.suspend(claim, request)

    def verdict(arguments: dict[str, Any] = ARGUMENTS, **fields: Any) -> str | None:
        found = doers.intend(claim, arguments, approval_id=request.id, **fields)
        return None if found is None else found.verdict

    askers.decide(request)
    claim = askers.claim(claim.lease.job_id)
    assert verdict({"account": "ana", "amount": 2}) == "unapproved"
    assert verdict(tool="refund") == "unapproved"
    assert verdict() == "go"
    assert verdict(key="pay#2") == "unapproved", "it is used up"
    other = doers.claimed()
    found = doers.intend(other, approval_id=request.id)
    assert (found and found.verdict) == "unapproved", "it is another job's"


def test_five_hundred_are_answered_at_once_each_by_its_own(doers: Doers) -> None:
    claims = doers.claimed_many(500)
    frozen = doers.claimed()
    done = claims[7]
    assert doers.tell(done, doers.begin(done).id, result="7")
    batch = [an_intent(claim, {"n": n}, tool=f"t{n % 3}") for n, claim in enumerate(claims)]
    batch[7] = an_intent(done)
    batch.append(an_intent(frozen, lease=claims[0].lease, key="second"))
    answers = doers.call(effects.intend, pod_id=doers.pod_id, operations=batch)
    verdicts = {intent.id: answers[intent.id].verdict for intent in batch}
    assert verdicts.pop(batch[7].id) == "done"
    assert list(verdicts.values()) == ["go"] * 500
    rows = doers.call(effects.page, limit=1000)
    assert len(rows) == 501


# --- a job that continues a failed one


def test_heir_finds_the_effects_of_its_origin(doers: Doers) -> None:
    subscribe(doers.dsn, "effect.*")
    origin = doers.claimed()
    done, open_, refused = (doers.begin(origin, key=key).id for key in ("done", "open", "refused"))
    assert doers.tell(origin, done, result="1")
    assert doers.tell(origin, refused)
    heir = doers.heir(origin)
    assert doers.row(open_)["status"] == "UNKNOWN"
    assert doers.row(open_)["why"] == "its job was FAILED while the call was under way"
    ((topic, key, payload),) = announced(doers.dsn)
    job = str(origin.lease.job_id)
    assert (topic, key, payload["effect"]) == ("effect.unknown", job, str(open_))

    found = {key: doers.intend(heir, key=key) for key in ("done", "open", "refused")}
    assert {key: each and each.verdict for key, each in found.items()} == {
        "done": "done",
        "open": "recheck",
        "refused": "go",
    }
    assert {key: each and each.id for key, each in found.items()} == {
        "done": done,
        "open": open_,
        "refused": refused,
    }
    assert doers.row(open_)["job_id"] == heir.lease.job_id
    assert doers.row(done)["job_id"] == origin.lease.job_id, "it stands where its step is"


def test_heir_of_an_heir_finds_the_open_effect(doers: Doers) -> None:
    first = doers.claimed()
    leave = doers.begin(first)
    third = doers.heir(doers.heir(first))
    found = doers.intend(third)
    assert (found and (found.id, found.verdict)) == (leave.id, "recheck")


def test_heir_with_other_arguments_diverges_until_the_effect_is_resolved(doers: Doers) -> None:
    origin = doers.claimed()
    leave = doers.begin(origin)
    heir = doers.heir(origin, from_start=True)
    found = doers.intend(heir, {"account": "bo"})
    assert (found and (found.verdict, found.id)) == ("diverged", leave.id)
    assert resolve(doers, leave.id, "not-applied") is False
    assert doers.row(leave.id)["status"] == "FAILED"
    assert doers.begin(heir, {"account": "bo"}).id != leave.id


def test_effect_failed_before_diverges_from_one_open_with_other_arguments(doers: Doers) -> None:
    origin = doers.claimed()
    doers.tell(origin, doers.begin(origin).id)
    heir = doers.heir(origin, from_start=True)
    leave = doers.begin(heir, {"account": "bo"})
    last = doers.heir(heir, from_start=True)
    found = doers.intend(last)
    assert (found and (found.verdict, found.id)) == ("diverged", leave.id)
    resolve(doers, leave.id, "not-applied")
    doers.begin(last)


def test_inherited_effect_becomes_unknown_when_the_heir_fails(doers: Doers) -> None:
    origin = doers.claimed()
    leave = doers.begin(origin)
    heir = doers.heir(origin)
    doers.begin(heir, is_sure=True)
    doers.fail(heir)
    assert (doers.row(leave.id)["status"], doers.row(leave.id)["job_id"]) == (
        "UNKNOWN",
        heir.lease.job_id,
    )


# --- what a person says


def doubted(doers: Doers, **fields: Any) -> tuple[Any, UUID]:
    """A job that waits for a person to resolve its effect."""
    claim = doers.claimed(**fields)
    leave = doers.begin(claim)
    doers.doubt(claim, leave.id)
    assert doers.row(leave.id)["status"] == "UNKNOWN"
    return claim, leave.id


def after(doers: Doers, claim: Any) -> IntentReply:
    """The grant that the job receives when it continues."""
    found = doers.intend(doers.claim(claim.lease.job_id))
    assert found is not None
    return found


def test_job_finds_a_persons_resolution(doers: Doers) -> None:
    for said, status, verdict in (
        ("applied", "COMPLETED", "done"),
        ("not-applied", "PENDING", "go"),
        ("give-up", "ABANDONED", "abandoned"),
    ):
        claim, effect_id = doubted(doers)
        result = '{"n": 9}' if said == "applied" else None
        assert resolve(doers, effect_id, said, result=result) is True
        shown = doers.call(effects.show, effect_id)
        assert (shown.status, shown.resolution) == (status, said)
        assert (shown.resolved_by, shown.resolved_reason) == ("ana", "looked")
        assert shown.result == ({"n": 9} if said == "applied" else None)
        found = after(doers, claim)
        assert (found.id, found.verdict, found.result) == (effect_id, verdict, result)
    assert_one_truth(doers.dsn)


def test_effect_resolved_without_a_result_returns_null(doers: Doers) -> None:
    claim, effect_id = doubted(doers)
    assert resolve(doers, effect_id, "applied")
    assert after(doers, claim).result == "null"


def test_only_unknown_effects_can_be_resolved_once(doers: Doers) -> None:
    claim = doers.claimed()
    leave = doers.begin(claim)
    with pytest.raises(ConflictError, match="is PENDING, not UNKNOWN"):
        resolve(doers, leave.id, "applied")
    with pytest.raises(NotFoundError):
        resolve(doers, new_id(), "applied")
    doers.doubt(claim, leave.id)
    resolve(doers, leave.id, "give-up", by=user("bo"))
    with pytest.raises(ConflictError, match="bo has said that already: give-up"):
        resolve(doers, leave.id, "applied")


def test_resolution_for_an_ended_job_is_only_recorded(doers: Doers) -> None:
    claim, effect_id = doubted(doers)
    doers.call(jobs.cancel, claim.lease.job_id, by="ana", reason="enough")
    assert doers.row(effect_id)["status"] == "UNKNOWN"
    assert resolve(doers, effect_id, "not-applied") is False
    assert doers.row(effect_id)["status"] == "FAILED"
    assert job_row(doers.dsn, claim.lease.job_id)["status"] == "CANCELLED"
    assert_one_truth(doers.dsn)


def test_one_of_many_simultaneous_resolutions_wins(doers: Doers) -> None:
    claim, effect_id = doubted(doers)
    said = list(Resolution)

    def one(number: int) -> Any:
        resolution = said[number % len(said)]
        return lambda db: effects.resolve(
            db, effect_id, resolution, by=user(f"person-{number}"), reason="looked"
        )

    found = at_once(doers.dsn, *(one(number) for number in range(DECIDERS)))
    (winner,) = (number for number, each in enumerate(found) if isinstance(each, effects.Resolved))
    assert all(isinstance(each, ConflictError) for n, each in enumerate(found) if n != winner)
    row = doers.row(effect_id)
    assert (row["resolved_by"], row["resolution"]) == (f"person-{winner}", said[winner % 3])
    assert after(doers, claim).id == effect_id
    assert_one_truth(doers.dsn)


def test_resolution_racing_a_cancel_leaves_one_truth(doers: Doers) -> None:
    for _ in range(10):
        claim, effect_id = doubted(doers)
        job_id = claim.lease.job_id
        resolved, cancelled = at_once(
            doers.dsn,
            lambda db, it=effect_id: effects.resolve(  # type: ignore[misc]
                db, it, Resolution.NOT_APPLIED, by=user("ana"), reason="looked"
            ),
            lambda db, it=job_id: jobs.cancel(db, it, by="bo", reason="enough"),  # type: ignore[misc]
        )
        assert not isinstance(cancelled, BaseException), cancelled
        assert isinstance(resolved, effects.Resolved), resolved
        assert job_row(doers.dsn, job_id)["status"] == "CANCELLED"
        assert doers.row(effect_id)["status"] == "FAILED", "it is certain either way"
    assert_one_truth(doers.dsn)


# --- lists


def test_pages_of_each_kind_come_newest_first(doers: Doers) -> None:
    first, second = doers.claimed_many(2)
    made = [
        doers.begin(claim, key=f"{n}", tool=tool).id
        for n, (claim, tool) in enumerate(
            [(first, "pay"), (first, "mail"), (second, "pay"), (second, "pay")]
        )
    ]
    assert doers.tell(first, made[0], result="1")
    doers.doubt(second, made[3])

    def listed(**which: Any) -> list[int]:
        return [made.index(row.id) for row in doers.call(effects.page, **which)]

    assert listed() == [3, 2, 1, 0]
    assert listed(limit=2) == [3, 2]
    assert listed(before=made[2]) == [1, 0]
    assert listed(tool="pay") == [3, 2, 0]
    assert listed(tool="pay", before=made[3], limit=1) == [2]
    assert listed(job_id=first.lease.job_id) == [1, 0]
    assert listed(job_id=first.lease.job_id, tool="pay") == [0]
    unknown, completed = [EffectStatus.UNKNOWN], [EffectStatus.COMPLETED]
    assert listed(statuses=unknown) == [3]
    assert listed(statuses=unknown + completed) == [3, 0]
    assert listed(statuses=completed, tool="mail") == []
    assert listed(statuses=unknown, job_id=first.lease.job_id) == []


def test_the_end_of_an_id_is_enough(doers: Doers) -> None:
    leave = doers.begin(doers.claimed())
    assert doers.call(effects.find, f"…{leave.id.hex[-6:]}") == leave.id
    with pytest.raises(NotFoundError, match="cortex effects ls"):
        doers.call(effects.find, "ffffff" if leave.id.hex[-6:] != "ffffff" else "eeeeee")
