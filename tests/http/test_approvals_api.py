"""`/v1/approvals`: what waits, decisions by program, links, and the answer to latecomers."""

import json
import threading
from typing import Any

import pytest

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Risk
from tests.support.reader import Reader, row_of
from tests.support.records.approvals import Askers, a_request
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql

LIST = "/v1/approvals"


@pytest.fixture(scope="module")
def server(shared_server: HttpServer) -> HttpServer:
    return shared_server


@pytest.fixture(scope="module")
def askers(shared_askers: Askers) -> Askers:
    return shared_askers


def at(request: ApprovalRequest, verb: str = "") -> str:
    """The address of a request, or of what is done to it."""
    return f"{LIST}/{request.id}" + (f"/{verb}" if verb else "")


def wish(request: ApprovalRequest, **more: Any) -> dict[str, Any]:
    """The least that decides it."""
    return {"digest": request.digest.hex(), **more}


@pytest.fixture
def ana(server: HttpServer) -> str:
    """A token of ana's, who may decide."""
    return server.token("approver")


def approve(server: HttpServer, token: str, request: ApprovalRequest, **more: Any) -> Answered:
    return server.post(at(request, "approve"), token=token, json_body=wish(request, **more))


# --- reading


def test_pending_approvals_are_listed_by_risk_in_pages(
    own_server: HttpServer, own_askers: Askers
) -> None:
    token = own_server.token("viewer")
    asked = {
        risk: [own_askers.asked(risk=risk, expires_s=s) for s in (600.0, 300.0)] for risk in Risk
    }
    own_askers.decide(own_askers.asked(), by="bo")
    expected = [str(each.id) for risk in reversed(Risk) for each in reversed(asked[risk])]
    found: list[str] = []
    query = "?limit=3"
    while query:
        output = own_server.get(LIST + query, token=token).json
        found += [each["id"] for each in output["approvals"] if each["status"] == "PENDING"]
        query = output["next_cursor"] and f"?limit=3&cursor={output['next_cursor']}"
    assert found == expected


def test_decided_approvals_are_listed_by_state_newest_first(
    own_server: HttpServer, own_askers: Askers
) -> None:
    token = own_server.token("viewer")
    yes, no, void = own_askers.asked(), own_askers.asked(), own_askers.asked()
    own_askers.decide(yes, by="bo")
    own_askers.decide(no, is_approved=False, by="li", reason="no")
    for query, expected in (
        ("status=APPROVED", [yes]),
        ("status=DENIED&status=APPROVED", [no, yes]),
        ("status=PENDING", [void]),
        ("status=EXPIRED", []),
        ("&".join(f"status={each}" for each in ApprovalStatus), [void, no, yes]),
    ):
        output = own_server.get(f"{LIST}?{query}", token=token).json
        assert [each["id"] for each in output["approvals"]] == [str(each.id) for each in expected]
    first = own_server.get(f"{LIST}?status=DENIED&status=APPROVED&limit=1", token=token).json
    (row,) = first["approvals"]
    assert (row["decided_by"], row["reason"], row["digest"]) == ("li", "no", no.digest.hex())
    cursor = first["next_cursor"]
    rest = own_server.get(f"{LIST}?status=DENIED&status=APPROVED&cursor={cursor}", token=token).json
    assert [each["id"] for each in rest["approvals"]] == [str(yes.id)]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "query, status", [("status=open", 400), ("limit=0", 400), ("limit=201", 400), ("cursor=x", 400)]
)
def test_a_query_that_does_not_fit_is_refused(server: HttpServer, query: str, status: int) -> None:
    assert server.get(f"{LIST}?{query}", token=server.token("viewer")).status == status


def test_unknown_cursor_is_not_found(server: HttpServer, askers: Askers) -> None:
    askers.asked()
    output = server.get(f"{LIST}?cursor={new_id()}", token=server.token("viewer"))
    assert (output.status, output.json["code"]) == (404, "not_found")


def test_one_request_is_shown_in_full(server: HttpServer, askers: Askers) -> None:
    arguments = {"customer": "cus_88", "amount": 1240.0, "id": 2**80, "deep": [{"a": None}]}
    request = askers.asked(arguments=arguments, risk="CRITICAL", submitted_by="li", schema=None)
    askers.decide(request, by="kim", reason="fine")
    output = server.get(at(request), token=server.token("viewer"))
    assert output.status == 200
    found = output.json
    assert json.loads(output.body)["arguments"] == arguments
    assert request.arguments.encode() in output.body, "every digit of every number"
    assert found["digest"] == request.digest.hex()
    assert (found["risk"], found["people"], found["agreed"]) == ("CRITICAL", 2, 1)
    assert (found["requested_by"], found["job_status"]) == ("li", "WAITING_FOR_APPROVAL")
    assert found["if_denied"] == "refund does not run; the job's code is informed and goes on"
    (vote,) = found["votes"]
    assert (vote["person"], vote["reason"], vote["edited"]) == ("kim", "fine", False)
    assert not {"token_digest", "spent_digest"} & found.keys()
    assert server.get(f"{LIST}/{new_id()}", token=server.token("viewer")).status == 404


# --- deciding


def test_approval_records_person_and_origin(server: HttpServer, askers: Askers, ana: str) -> None:
    request = askers.asked()
    output = server.post(
        at(request, "approve"),
        token=ana,
        json_body=wish(request, version=1, reason="checked"),
        headers={"User-Agent": "bot/1", "X-Forwarded-For": "203.0.113.7"},
    )
    expected = {"id": str(request.id), "outcome": "approved", "agreed": 1}
    assert (output.status, output.json) == (200, expected)
    row = row_of(askers.call, request)
    names = ("status", "decided_by", "channel", "reason", "address", "client")
    assert [getattr(row, name) for name in names] == [
        *("APPROVED", "ana", "api", "checked", "203.0.113.7", "bot/1")
    ]
    assert job_row(askers.dsn, row.job_id)["task_state"] == "READY"
    found = {
        role: server.get(f"{LIST}/{request.id}", token=server.token(role)).json
        for role in ("viewer", "admin")
    }
    assert [found["admin"][name] for name in ("address", "client")] == ["203.0.113.7", "bot/1"]
    assert [found["viewer"][name] for name in ("address", "client")] == [None, None]
    assert found["admin"]["votes"][0]["credential"].startswith("token:")
    assert found["viewer"]["votes"][0]["credential"] is None


def test_denial_requires_and_records_a_reason(server: HttpServer, askers: Askers, ana: str) -> None:
    request = askers.asked()
    for body in (wish(request), wish(request, reason=""), wish(request, reason="  ")):
        output = server.post(at(request, "deny"), token=ana, json_body=body)
        assert (output.status, "reason" in output.json["detail"]) == (422, True)
    output = server.post(at(request, "deny"), token=ana, json_body=wish(request, reason="no"))
    assert (output.status, output.json["outcome"]) == (200, "denied")
    assert row_of(askers.call, request).reason == "no"


def test_second_decider_gets_a_conflict_naming_the_first(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked()
    askers.decide(request, is_approved=False, by="li", reason="too much", channel="page")
    for verb in ("approve", "deny"):
        body = wish(request, reason="x")
        output = server.post(at(request, verb), token=ana, json_body=body)
        assert (output.status, output.json["code"]) == (409, "conflict")
        assert output.headers["content-type"] == "application/problem+json"
        decided_at = row_of(askers.call, request).decided_at
        assert decided_at is not None
        at_word = decided_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        expected = f"was already denied by li at {at_word} on page: too much"
        assert expected in output.json["detail"]


def test_expired_is_documented_as_expired(own_server: HttpServer, own_askers: Askers) -> None:
    request = own_askers.asked(expires_s=60.0)
    move_clock(own_askers.dsn, 61)
    output = approve(own_server, own_server.token("approver"), request)
    assert (output.status, output.json["code"]) == (409, "expired")
    assert "nothing was executed" in output.json["detail"]


@pytest.mark.parametrize("risk", ["HIGH", "CRITICAL"])
def test_dangerous_approval_needs_the_end_of_its_id(
    server: HttpServer, askers: Askers, ana: str, risk: str
) -> None:
    request = askers.asked(risk=risk)
    for confirm in ({}, {"confirm": ""}, {"confirm": "zzzz"}, {"confirm": request.id.hex}):
        output = approve(server, ana, request, **confirm)
        assert (output.status, "confirm" in output.json["detail"]) == (422, True)
    assert row_of(askers.call, request).agreed == 0
    output = approve(server, ana, request, confirm=request.id.hex[-4:])
    assert output.status == 200
    assert output.json["outcome"] == ("approved" if risk == "HIGH" else "agreed")
    again = askers.asked(risk=risk)
    output = server.post(at(again, "deny"), token=ana, json_body=wish(again, reason="no"))
    assert (output.status, output.json["outcome"]) == (200, "denied"), (
        "to say no is never dangerous"
    )


def test_critical_approval_takes_two_people_besides_the_submitter(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by="li")
    confirm = {"confirm": request.id.hex[-4:]}
    assert approve(server, server.token("approver", name="li"), request, **confirm).status == 409
    assert approve(server, ana, request, **confirm).json["outcome"] == "agreed"
    for same in (ana, server.token("admin", name="ana")):
        output = approve(server, same, request, **confirm)
        assert (output.status, "you have agreed" in output.json["detail"]) == (409, True)
    output = approve(server, server.token("approver", name="kim"), request, **confirm)
    assert output.json == {"id": str(request.id), "outcome": "approved", "agreed": 2}


def test_edited_arguments_are_validated_and_kept_beside_the_originals(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked()
    for arguments, what in (
        ({"customer": "cus_88", "amount": "9"}, "amount must be a finite number"),
        ({"customer": "cus_88"}, "amount is missing"),
        ({"customer": "cus_88", "amount": 9, "to": "x"}, "to is unknown"),
    ):
        output = approve(server, ana, request, arguments=arguments)
        assert (output.status, what in output.json["detail"]) == (422, True)
    edited = {"customer": "cus_88", "amount": 9}
    assert approve(server, ana, request, arguments=edited).status == 200
    row = row_of(askers.call, request)
    assert (row.arguments, row.asked["amount"], row.edited_by) == (edited, 12.4, "ana")
    fixed = askers.asked(schema=None)
    output = approve(server, ana, fixed, arguments=edited)
    assert (output.status, "cannot be edited" in output.json["detail"]) == (422, True)


def test_an_edit_that_crosses_a_rules_threshold_is_refused(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked_below(500)
    output = approve(server, ana, request, arguments={"customer": "cus_88", "amount": 500})
    assert (output.status, "for which 2 people must be asked" in output.json["detail"]) == (
        422,
        True,
    )
    row = row_of(askers.call, request)
    assert (row.status, row.edited_by) == ("PENDING", None)


def test_decision_counts_only_for_the_arguments_seen(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked(risk="CRITICAL")
    askers.decide(request, by="kim", edited='{"amount":9,"customer":"cus_88"}')
    confirm = {"confirm": request.id.hex[-4:]}
    for seen in ({}, {"version": 2}, {"digest": "0" * 64}):
        output = approve(server, ana, request, **{**confirm, **seen})
        assert (output.status, "have changed" in output.json["detail"]) == (409, True)
    output = server.post(at(request, "deny"), token=ana, json_body=wish(request, reason="x"))
    assert output.status == 409
    now = {"digest": row_of(askers.call, request).digest.hex()}
    assert approve(server, ana, request, **confirm, **now, version=1).status == 409
    assert approve(server, ana, request, **confirm, **now, version=2).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"digest": "abc"},
        {"digest": "G" * 64},
        {"digest": "0" * 64, "reason": "x" * 1001},
        {"digest": "0" * 64, "reason": "a\0"},
        {"digest": "0" * 64, "arguments": []},
        {"digest": "0" * 64, "is_approved": True},
        {"digest": "0" * 64, "version": "1"},
    ],
)
def test_malformed_decision_is_refused(
    server: HttpServer, askers: Askers, ana: str, body: dict[str, Any]
) -> None:
    request = askers.asked()
    assert server.post(at(request, "approve"), token=ana, json_body=body).status == 422
    assert row_of(askers.call, request).status == "PENDING"


def test_decision_under_a_key_is_made_once_and_replayed(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request, key = askers.asked(), {"Idempotency-Key": "k1"}
    first = server.post(at(request, "approve"), token=ana, json_body=wish(request), headers=key)
    again = server.post(at(request, "approve"), token=ana, json_body=wish(request), headers=key)
    assert (first.status, again.status, first.json) == (200, 200, again.json)
    assert again.headers["idempotent-replayed"] == "true"
    other = server.post(
        at(request, "deny"), token=ana, json_body=wish(request, reason="x"), headers=key
    )
    assert (other.status, other.json["code"]) == (422, "key_reused")


def test_one_of_fifty_simultaneous_decisions_wins(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    tokens = [server.token("approver", name=f"p{n}") for n in range(10)]
    found: list[Answered] = []
    gate = threading.Barrier(50)

    def run(number: int) -> None:
        gate.wait()
        verb = "approve" if number % 2 else "deny"
        body = wish(request, reason=f"r{number}")
        found.append(server.post(at(request, verb), token=tokens[number % 10], json_body=body))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.status for each in found) == [200] + [409] * 49
    row = row_of(askers.call, request)
    output = f"was already {row.status.lower()} by {row.decided_by} at "
    details = [each.json["detail"] for each in found if each.status == 409]
    assert all(output in detail for detail in details)


# --- several at once


def batch(server: HttpServer, token: str, *asked: ApprovalRequest, **more: Any) -> Answered:
    seen = [{"id": str(each.id), "digest": each.digest.hex()} for each in asked]
    body = {"approvals": seen, "decision": "approve", **more}
    return server.post(f"{LIST}/batch", token=token, json_body=body)


def test_a_batch_of_one_shape_is_decided_whole(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    asked = [askers.asked(arguments={"customer": f"c{n}", "amount": n}) for n in range(1, 4)]
    output = batch(server, ana, *asked, reason="all fine")
    assert output.status == 200
    assert output.json["decided"] == [
        {"id": str(each.id), "outcome": "approved", "agreed": 1} for each in asked
    ]
    assert {row_of(askers.call, each).reason for each in asked} == {"all fine"}
    more = [askers.asked(), askers.asked()]
    assert batch(server, ana, *more, decision="deny").status == 422
    assert batch(server, ana, *more, decision="deny", reason="no").status == 200
    assert {row_of(askers.call, each).status for each in more} == {"DENIED"}


def test_batch_with_an_invalid_vote_decides_nothing(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    asked = [askers.asked() for _ in range(3)]
    askers.decide(asked[1], is_approved=False, by="bo", reason="no")
    output = batch(server, ana, *asked)
    assert (output.status, "already denied by bo" in output.json["detail"]) == (409, True)
    stale = a_request(id=asked[2].id, arguments={"customer": "other", "amount": 1})
    output = batch(server, ana, asked[0], stale)
    assert (output.status, "have changed" in output.json["detail"]) == (409, True)
    assert {row_of(askers.call, each).status for each in (asked[0], asked[2])} == {"PENDING"}


def test_batch_of_dissimilar_or_dangerous_requests_is_refused(
    own_server: HttpServer, own_askers: Askers
) -> None:
    ana = own_server.token("approver")
    low, high = own_askers.asked(risk="LOW"), own_askers.asked(risk="HIGH")
    other_tool, other_names = own_askers.asked(tool="pay"), own_askers.asked(arguments={"to": "x"})
    med = own_askers.asked()
    for asked, status in (
        ((high, own_askers.asked(risk="HIGH")), 400),
        ((high,), 422),
        ((low, med), 400),
        ((med, other_tool), 400),
        ((med, other_names), 400),
        ((med, med), 400),
        ((), 400),
        (tuple(a_request() for _ in range(51)), 400),
        ((med, a_request()), 404),
    ):
        assert batch(own_server, ana, *asked).status == status
    pending = "SELECT count(*) AS n FROM cortex.approval WHERE status = 'PENDING'"
    assert sql(own_askers.dsn, pending)[0]["n"] == 6


# --- links


def test_a_link_is_documented_once_and_opens_the_page(
    server: HttpServer, askers: Askers, ana: str
) -> None:
    request = askers.asked()
    output = server.post(at(request, "link"), token=ana)
    assert output.status == 201
    found = output.json
    assert found["url"] == f"http://127.0.0.1:{server.port}{found['path']}"
    assert found["needs_sign_in"] is False
    assert Reader(server).get(found["path"]).status == 303
    token = found["path"].partition("t=")[2]
    assert len(token) == 43
    assert token not in server.get(at(request), token=ana).body.decode()
    assert server.get(at(request), token=ana).json["has_link"] is True
    behind = {"X-Forwarded-Proto": "https", "Host": "cortex.example"}
    again = server.post(at(request, "link"), token=ana, headers=behind).json
    assert again["url"].startswith(f"https://cortex.example/approvals/{request.id}?t=")
    assert Reader(server).get(found["path"]).status == 403, "the new one took its place"
    assert server.post(at(askers.asked(risk="HIGH"), "link"), token=ana).json["needs_sign_in"]


def test_decided_request_gets_no_link(server: HttpServer, askers: Askers, ana: str) -> None:
    request = askers.asked()
    askers.decide(request, by="li")
    output = server.post(at(request, "link"), token=ana)
    assert (output.status, "already approved by li" in output.json["detail"]) == (409, True)
    assert server.post(f"{LIST}/{new_id()}/link", token=ana).status == 404


# --- rights


def test_viewers_and_operators_cannot_decide(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    for role in ("viewer", "operator"):
        token = server.token(role)
        for verb in ("approve", "deny", "link"):
            body = wish(request, reason="x")
            assert server.post(at(request, verb), token=token, json_body=body).status == 403
        assert batch(server, token, request).status == 403
        assert server.get(at(request), token=token).status == 200
    row = row_of(askers.call, request)
    assert (row.status, row.has_link) == ("PENDING", False)


def test_a_page_session_is_no_way_into_the_api(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    reader = Reader(server)
    reader.sign_in(server.token("admin"))
    cookie = "; ".join(f"{name}={value}" for name, value in reader.cookies.items())
    headers = {**reader.origin, "Cookie": cookie}
    assert server.get(LIST, headers=headers).status == 401
    output = server.post(at(request, "approve"), json_body=wish(request), headers=headers)
    assert output.status == 401
