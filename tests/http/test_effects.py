"""`/v1/effects`: what jobs did outside, and what people say of it."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Claim
from cortex.view.resources.effects import EFFECT
from tests.support.records.effects import Doers
from tests.support.records.rows import new_id
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql

PATH = "/v1/effects"


@pytest.fixture
def operator(server: HttpServer) -> str:
    return server.token("operator", name="ana")


def unknown(doers: Doers) -> tuple[Claim, UUID]:
    """A job that waits for the outcome of its effect."""
    claim = doers.claimed()
    effect_id = doers.begin(claim).id
    doers.doubt(claim, effect_id)
    return claim, effect_id


def resolve(server: HttpServer, token: str, effect_id: UUID, **body: Any) -> Answered:
    given = {"resolution": "applied", "reason": "asked the bank"} | body
    return server.post(f"{PATH}/{effect_id}/resolve", token=token, json_body=given)


def listed(server: HttpServer, token: str, query: str = "") -> list[str]:
    return [each["id"] for each in server.get(f"{PATH}{query}", token=token).json["effects"]]


def test_effects_are_listed_the_newest_first(
    server: HttpServer, operator: str, doers: Doers
) -> None:
    first, second = doers.claimed_many(2)
    made = [str(doers.begin(first, key=key).id) for key in ("1", "2")]
    made.append(str(doers.begin(second, tool="mail").id))
    _, open_ = unknown(doers)
    made.append(str(open_))
    assert listed(server, operator) == made[::-1]
    assert listed(server, operator, "?status=UNKNOWN&status=UNKNOWN") == [made[3]]
    assert listed(server, operator, "?tool=mail") == [made[2]]
    assert listed(server, operator, f"?job_id={first.lease.job_id}") == [made[1], made[0]]
    page = server.get(f"{PATH}?limit=3", token=operator).json
    assert listed(server, operator, f"?cursor={page['next_cursor']}") == [made[0]]
    for query in ("?status=unknown", "?job_id=x", "?cursor=x", "?tool="):
        assert server.get(f"{PATH}{query}", token=operator).status == 400, query


def test_an_effect_is_shown_with_every_digit(
    server: HttpServer, operator: str, doers: Doers
) -> None:
    amount = 10**40 + 1
    effect_id = doers.begin(doers.claimed(), {"amount": amount, "to": "\u202e\x1b"}).id
    shown = server.get(f"{PATH}/{effect_id}", token=operator)
    assert shown.status == 200
    assert shown.json["arguments"] == {"amount": amount, "to": "\u202e\x1b"}
    assert b"\x1b" not in shown.body
    assert (shown.json["status"], shown.json["job_status"]) == ("PENDING", "RUNNING")
    assert {field.name for field in EFFECT.fields} - {"remark"} == set(shown.json)
    assert len(shown.json["digest"]) == 64
    for missing in (new_id(), "nonsense"):
        assert server.get(f"{PATH}/{missing}", token=operator).status == 404


@pytest.mark.parametrize(
    "said, status, result",
    [
        ("applied", "COMPLETED", {"receipt": 7}),
        ("applied", "COMPLETED", None),
        ("not-applied", "PENDING", None),
        ("give-up", "ABANDONED", None),
    ],
)
def test_resolution_of_an_effect_resumes_the_job(
    server: HttpServer, doers: Doers, said: str, status: str, result: Any
) -> None:
    operator = server.token("operator", name="ana")
    claim, effect_id = unknown(doers)
    output = resolve(server, operator, effect_id, resolution=said, result=result)
    assert output.status == 200, output
    assert (output.json["status"], output.json["job_goes_on"]) == (status, True)
    assert output.json["job_id"] == str(claim.lease.job_id)
    row = doers.row(effect_id)
    assert (row["resolved_by"], row["resolved_reason"]) == ("ana", "asked the bank")
    again = resolve(server, operator, effect_id, resolution=said)
    assert (again.status, again.json["code"]) == (409, "conflict")


SAYING_NOTHING: list[tuple[dict[str, Any], int]] = [
    ({"resolution": "perhaps"}, 422),
    ({"reason": ""}, 422),
    ({"resolution": "give-up", "result": 1}, 400),
    ({"result": "x" * 1_048_576}, 413),
]


def test_invalid_resolution_is_refused(server: HttpServer, operator: str, doers: Doers) -> None:
    _, effect_id = unknown(doers)
    for body, status in SAYING_NOTHING:
        assert resolve(server, operator, effect_id, **body).status == status, ascii(body)
        assert doers.row(effect_id)["status"] == "UNKNOWN", ascii(body)


def test_viewers_and_approvers_cannot_resolve_effects(server: HttpServer, doers: Doers) -> None:
    _, effect_id = unknown(doers)
    for role in ("viewer", "approver"):
        token = server.token(role)
        assert resolve(server, token, effect_id).status == 403
        assert server.get(f"{PATH}/{effect_id}", token=token).status == 200
    assert sql(server.dsn, "SELECT resolution FROM cortex.effect")[0]["resolution"] is None
