"""`cortex people`: who acts, and the credentials that are theirs."""

import os

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.approvals import Askers


@pytest.fixture
def askers(life: Life) -> Askers:
    return Askers(life.call, life.dsn)


def listed(cortex: Cortex) -> dict[str, list[str]]:
    people = cortex("people", "ls", "--json", "--columns", "name,credentials").document["people"]
    return {each["name"]: each["credentials"] for each in people}


def test_a_person_gets_credentials_and_is_found_by_name(cortex: Cortex, life: Life) -> None:
    assert cortex("people", "add", "ana", "--os", "70000", "--login", "ana_db").code == 0
    assert cortex("people", "add", "ana", "--os", "70001").code == 0
    assert listed(cortex)["ana"] == ["db:ana_db", "os:70000", "os:70001"]
    shown = cortex("people", "show", "ana")
    assert "ana_db" in shown.out
    assert cortex("people", "show", "nobody").code == 3
    moved = cortex("people", "add", "bo", "--os", "70001", "--as", "night", "--json")
    assert moved.code == 0
    assert listed(cortex)["ana"] == ["db:ana_db", "os:70000"]
    (fact,) = life.sql(
        "SELECT data->>'by' AS by, data->>'before' AS before FROM cortex.fact "
        "WHERE subtype = 'person_mapped' AND source = 'person:bo'"
    )
    assert tuple(fact) == (me("night"), "ana")


def test_a_name_that_looks_like_another_is_refused(cortex: Cortex) -> None:
    assert cortex("people", "add", "ana").code == 0
    for name in ("\u0430na", "ANA", "ana (bo)", "an\u200ba"):
        assert cortex("people", "add", name).code != 0
        assert cortex("tokens", "create", "--name", name, "--role", "viewer").code != 0
    assert [name for name in listed(cortex) if name != me()] == ["ana"]


def test_a_decider_becomes_a_person_and_can_be_disabled(cortex: Cortex, askers: Askers) -> None:
    first, second = askers.asked(), askers.asked()
    assert cortex("approvals", "approve", str(first.id), "--yes").code == 0
    assert listed(cortex) == {me(): [f"os:{os.getuid()}"]}
    token = cortex("tokens", "create", "--name", "li", "--role", "approver").out.strip()
    assert cortex("people", "disable", "li", "--yes", "--reason", "left").code == 0
    again = cortex("people", "disable", "li", "--yes")
    assert (again.code, "disabled already" in again.err) == (5, True)
    decide = ("approvals", "approve", str(second.id), "--yes")
    assert cortex(*decide, env={"CORTEX_TOKEN": token}).code == 2
    assert cortex("people", "enable", "li", "--yes").code == 0
    assert cortex(*decide, env={"CORTEX_TOKEN": token}).code == 0
    assert askers.row(second).decided_by == "li"


def test_a_token_of_ones_own_name_is_the_same_person(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(people=2)
    token = cortex("tokens", "create", "--name", me(), "--role", "approver").out.strip()
    decide = ("approvals", "approve", str(request.id), "--yes")
    assert cortex(*decide).code == 0
    twice = cortex(*decide, env={"CORTEX_TOKEN": token})
    assert (twice.code, "you have agreed" in twice.err) == (5, True)
