"""An approved call is made again only if the people whom it needed say that it was not applied."""

from typing import Final
from uuid import UUID

import pytest

from cortex.domain.effect import Resolution
from cortex.domain.errors import ConflictError, ForbiddenError
from cortex.domain.people import Identity
from cortex.domain.token import Role
from cortex.postgres.session import Session
from cortex.store import effects, people
from tests.support.people import enrolled, user
from tests.support.records.approvals import Askers, a_request
from tests.support.records.effects import ARGUMENTS, Doers
from tests.support.servers.postgres import sql

BOTH: Final = (Role.OPERATOR, Role.APPROVER)


@pytest.fixture
def doers(store: Session, shared_database: str) -> Doers:
    return Doers(store, shared_database)


def unknown(doers: Doers, **fields: object) -> UUID:
    """A call of a submitter's job that people approved, and of which nobody knows the outcome."""
    askers = Askers(doers.call, doers.dsn, pod_id=doers.pod_id)
    submitter = enrolled(doers.dsn, "sue", *BOTH)
    claim = askers.claimed()
    by_sue = "UPDATE cortex.job_record SET submitted_by = 'sue', submitted_with = $2 WHERE id = $1"
    sql(doers.dsn, by_sue, claim.lease.job_id, submitter.credential)
    request = a_request(ARGUMENTS, **{"tool": "pay", "key": "pay"} | fields)
    askers.suspend(claim, request)
    for name in ("ana", "bo")[: request.people]:
        askers.decide(request, by=enrolled(doers.dsn, name, *BOTH))
    claim = askers.claim(claim.lease.job_id)
    begun = doers.begin(claim, approval_id=request.id)
    doers.doubt(claim, begun.id)
    return begun.id


def deny_it(doers: Doers, effect_id: UUID, by: Identity) -> effects.Resolved:
    """Say that the call was not applied."""
    said = Resolution.NOT_APPLIED
    return doers.call(effects.resolve, effect_id, said, by=by, reason="not in the ledger")


def test_a_critical_call_takes_two_people_again(doers: Doers) -> None:
    effect_id = unknown(doers, risk="CRITICAL", people=2)
    ana, again = (enrolled(doers.dsn, "ana", *BOTH, number=each) for each in (1, 2))
    assert deny_it(doers, effect_id, ana) == effects.Resolved(people_missing=1)
    for same in (ana, again):
        with pytest.raises(ConflictError, match="you have agreed to effect"):
            deny_it(doers, effect_id, same)
    assert doers.row(effect_id)["status"] == "UNKNOWN"
    assert doers.call(effects.show, effect_id).agreed_by == ["ana"]

    bo = enrolled(doers.dsn, "bo", *BOTH)
    assert deny_it(doers, effect_id, bo) == effects.Resolved(job_goes_on=True)
    assert doers.row(effect_id)["status"] == "PENDING"


@pytest.mark.parametrize(
    "name, roles, error",
    [
        ("sue", BOTH, "asked for by you"),
        ("ola", (Role.OPERATOR,), "needs the role approver"),
        ("ali", (Role.APPROVER,), "needs the role operator"),
    ],
)
def test_others_do_not_count(doers: Doers, name: str, roles: tuple[Role, ...], error: str) -> None:
    effect_id = unknown(doers, risk="CRITICAL", people=2)
    by = enrolled(doers.dsn, name, *roles)
    with pytest.raises((ConflictError, ForbiddenError), match=error):
        deny_it(doers, effect_id, by)
    assert doers.call(effects.show, effect_id).agreed_by == []


def test_a_system_user_alone_is_not_enough_for_a_critical_call(doers: Doers) -> None:
    effect_id = unknown(doers, risk="CRITICAL", people=2)
    with pytest.raises(ConflictError, match="an operating-system user is not enough"):
        deny_it(doers, effect_id, user("root"))


def test_a_login_that_passes_to_another_person_counts_once(doers: Doers) -> None:
    effect_id = unknown(doers, risk="HIGH", people=2)
    who, admin = user("passed"), user("root")
    doers.call(people.add, "one", credentials=[str(who.credential)], by=admin, reason="")
    assert deny_it(doers, effect_id, who) == effects.Resolved(people_missing=1)
    doers.call(people.add, "two", credentials=[str(who.credential)], by=admin, reason="")
    for same in (who, enrolled(doers.dsn, "two", *BOTH)):
        with pytest.raises(ConflictError, match="you have agreed to effect"):
            deny_it(doers, effect_id, same)


def test_a_resolution_of_a_disabled_person_does_not_count(doers: Doers) -> None:
    effect_id = unknown(doers, risk="HIGH", people=2)
    assert deny_it(doers, effect_id, enrolled(doers.dsn, "gone", *BOTH)).people_missing == 1
    doers.call(people.switch, "gone", is_enabled=False, by=user("root"), reason="left")
    assert deny_it(doers, effect_id, enrolled(doers.dsn, "ana", *BOTH)).people_missing == 1
    assert doers.call(effects.show, effect_id).agreed_by == ["ana"], "people see what counts"
    assert deny_it(doers, effect_id, enrolled(doers.dsn, "bo", *BOTH)).job_goes_on


def test_one_person_is_enough_where_one_approved(doers: Doers) -> None:
    effect_id = unknown(doers, risk="HIGH")
    assert deny_it(doers, effect_id, user("root")).job_goes_on


def test_the_next_call_needs_both_people_again(doers: Doers) -> None:
    effect_id = unknown(doers, risk="CRITICAL", people=2)
    ana, bo = (enrolled(doers.dsn, each, *BOTH) for each in ("ana", "bo"))
    assert [deny_it(doers, effect_id, each).job_goes_on for each in (ana, bo)] == [False, True]
    claim = doers.claim(doers.row(effect_id)["job_id"])
    approval = doers.row(effect_id)["approval_id"]
    assert doers.begin(claim, approval_id=approval).id == effect_id
    doers.doubt(claim, effect_id)
    assert doers.call(effects.show, effect_id).agreed_by == []
    assert deny_it(doers, effect_id, ana) == effects.Resolved(people_missing=1)


def test_that_it_was_applied_or_is_given_up_takes_one_operator(doers: Doers) -> None:
    ola = enrolled(doers.dsn, "ola", Role.OPERATOR)
    for said in (Resolution.APPLIED, Resolution.GIVE_UP):
        effect_id = unknown(doers, risk="CRITICAL", people=2)
        assert doers.call(effects.resolve, effect_id, said, by=ola, reason="seen").job_goes_on
