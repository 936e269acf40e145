"""The page of a request: who may look, what they see, and what looking never does."""

import json
import re

import pytest

from cortex.domain.approvals.approval import Risk
from cortex.http.framework.links import MISSES_MAX
from cortex.http.page.rendering import CSP
from tests.support.reader import (
    Reader,
    approver,
    buttons_in,
    by_link,
    fields_in,
    link_to,
    path_of,
    row_of,
    words_of,
)
from tests.support.records.approvals import Askers, a_request, facts
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.http_server import HttpServer, http_server
from tests.support.servers.postgres import sql

WRONG = "x" * 43


@pytest.fixture(scope="module")
def server(shared_server: HttpServer) -> HttpServer:
    return shared_server


@pytest.fixture(scope="module")
def askers(shared_askers: Askers) -> Askers:
    return shared_askers


# --- links


def test_first_visit_moves_the_link_token_into_a_cookie(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    token = link_to(askers.call, request)
    reader = Reader(server)
    output = reader.open_link(request.id, token)
    assert (output.status, output.headers["location"]) == (303, path_of(request))
    cookie = output.headers["set-cookie"]
    assert f"Path={path_of(request)};" in cookie
    assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    page = reader.look(request)
    assert page.status == 200
    assert token.encode() not in page.body
    assert "refund" in words_of(page)


def test_behind_a_proxy_with_tls_cookies_are_secure(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    url = f"{path_of(request)}?t={link_to(askers.call, request)}"
    for headers, is_secure in (
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "http"}, False),
        ({}, False),
    ):
        output = server.get(url, headers=headers)
        assert ("Secure" in output.headers["set-cookie"]) is is_secure
    headers = {"X-Forwarded-Proto": "https", "Sec-Fetch-Site": "same-origin"}
    body = f"token={server.token('viewer')}".encode()
    assert "Secure" in server.post("/sign-in", body=body, headers=headers).headers["set-cookie"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_viewing_decides_nothing_and_consumes_no_link(
    server: HttpServer, askers: Askers, method: str
) -> None:
    request = askers.asked()
    token = link_to(askers.call, request)
    reader = by_link(server, askers.call, request)
    token = link_to(askers.call, request)
    before = row_of(askers.call, request)
    for url in (f"{path_of(request)}?t={token}", f"{path_of(request)}?act=approve&t={token}"):
        for headers in ({}, {"Sec-Purpose": "prefetch"}, {"Purpose": "prefetch"}):
            assert Reader(server).get(url, method=method, **headers).status in {200, 204, 303}
    reader.get(path_of(request), method=method)
    after = row_of(askers.call, request)
    assert after.status == "PENDING"
    assert after == before
    assert [name for name, _ in facts(askers.dsn, request.id)] == ["approval_linked"] * 3
    assert job_row(askers.dsn, after.job_id)["task_state"] is None
    assert Reader(server).open_link(request.id, token).status == 303


def test_wrong_replaced_and_foreign_links_are_answered_alike(
    server: HttpServer, askers: Askers
) -> None:
    request, other = askers.asked(), askers.asked()
    replaced = link_to(askers.call, request)
    link_to(askers.call, request)
    foreign = link_to(askers.call, other)
    bodies = set()
    for approval_id, token in (
        (request.id, replaced),
        (request.id, foreign),
        (request.id, WRONG),
        (request.id, ""),
        (request.id, "%00';DROP"),
        (new_id(), foreign),
    ):
        output = Reader(server).open_link(approval_id, token)
        assert (output.status, "set-cookie" in output.headers) == (403, False)
        bodies.add(output.body.replace(str(approval_id).encode(), b"ID"))
    (body,) = bodies
    assert b"This link is not valid" in body


def test_cookie_of_another_request_opens_nothing(server: HttpServer, askers: Askers) -> None:
    request, other = askers.asked(), askers.asked()
    reader = by_link(server, askers.call, other)
    output = reader.look(request)
    assert (output.status, "This link is not valid" in words_of(output)) == (403, True)
    assert reader.cookies == {}, "it is forgotten, and not tried again and again"
    assert reader.look(request).status == 303


def test_guessing_links_is_locked_out_but_signed_in_people_are_not(
    own_server: HttpServer, own_askers: Askers
) -> None:
    request = own_askers.asked()
    token = link_to(own_askers.call, request)
    ana = approver(own_server)
    for _ in range(MISSES_MAX):
        assert Reader(own_server).open_link(request.id, WRONG).status == 403
    output = Reader(own_server).open_link(request.id, token)
    assert (output.status, int(output.headers["retry-after"]) > 0) == (429, True)
    assert "Too many attempts" in words_of(output)
    assert ana.look(request).status == 200
    assert ana.open_link(request.id, token).status == 303
    # Behind a proxy on this machine, it is the guesser who is locked out.
    elsewhere = {"X-Forwarded-For": "198.51.100.9, 203.0.113.7"}
    assert own_server.get(f"{path_of(request)}?t={token}", headers=elsewhere).status == 303


def test_link_shows_the_outcome_after_the_decision(
    own_server: HttpServer, own_askers: Askers
) -> None:
    request = own_askers.asked()
    token = link_to(own_askers.call, request)
    own_askers.decide(request, is_approved=False, by="li", reason="twelve, not twelve hundred")
    reader = Reader(own_server)
    assert reader.open_link(request.id, token).status == 303
    page = reader.look(request)
    assert page.status == 200
    assert re.search(r"Denied by li at \d\d:\d\d:\d\dZ , nothing ran", words_of(page))
    assert "twelve, not twelve hundred" in words_of(page)
    assert buttons_in(page, path_of(request)) == set()
    move_clock(own_askers.dsn, 8 * 86_400)
    assert Reader(own_server).open_link(request.id, token).status == 403, "not for ever"


def test_expired_request_page_says_nothing_ran(own_server: HttpServer, own_askers: Askers) -> None:
    request = own_askers.asked(expires_s=60.0)
    reader = by_link(own_server, own_askers.call, request)
    move_clock(own_askers.dsn, 61)
    page = reader.look(request)
    assert re.search(r"Expired at [\d: -]+Z , nothing ran; a new request is needed", words_of(page))
    assert "Denied" not in words_of(page)
    assert buttons_in(page, path_of(request)) == set()


# --- who may look


def test_strangers_sign_in_first_and_come_back(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    reader = Reader(server)
    output = reader.look(request)
    assert (output.status, output.headers["location"]) == (303, f"/sign-in?next={path_of(request)}")
    form = fields_in(reader.get(output.headers["location"]), "/sign-in")
    token = server.token("approver")
    output = reader.send("/sign-in", {**form, "token": token})
    assert (output.status, output.headers["location"]) == (303, path_of(request))
    assert token not in str(output.headers)
    assert reader.look(request).status == 200


@pytest.mark.parametrize(
    "wish", ["//evil.example", "https://evil.example", "/approvals/../x", "/\\evil", "javascript:x"]
)
def test_sign_in_redirects_only_to_own_pages(server: HttpServer, wish: str) -> None:
    output = Reader(server).send("/sign-in", {"token": server.token("viewer"), "next": wish})
    assert (output.status, output.headers["location"]) == (303, "/approvals")


def test_wrong_token_is_refused_and_not_shown(server: HttpServer) -> None:
    guess = "cortex_" + "ab" * 32
    output = Reader(server).sign_in(guess)
    assert (output.status, "set-cookie" in output.headers) == (401, False)
    assert "This token is unknown" in words_of(output)
    assert guess.encode() not in output.body


def test_only_a_page_of_ours_signs_in(server: HttpServer) -> None:
    token = server.token("approver")
    for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        output = Reader(server).send("/sign-in", {"token": token}, headers=headers)
        assert (output.status, "set-cookie" in output.headers) == (403, False)


def test_sign_out_needs_a_form_of_the_same_session(server: HttpServer) -> None:
    ana, li = approver(server), approver(server, "li")
    form = fields_in(ana.get("/approvals"), "/sign-out")
    assert li.send("/sign-out", form).status == 403
    assert li.get("/approvals").status == 200
    assert ana.send("/sign-out", form).status == 303
    assert ana.get("/approvals").status == 303


def test_viewer_sees_the_request_without_buttons(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    viewer = approver(server, "kim", "viewer")
    page = viewer.look(request)
    assert "kim may view, but not decide" in words_of(page)
    assert buttons_in(page, path_of(request)) == set()
    output = viewer.answer(request, "approve", digest=request.digest.hex(), version="1", csrf="")
    assert (output.status, row_of(askers.call, request).status) == (403, "PENDING")


def test_unknown_approval_page_is_not_found(server: HttpServer) -> None:
    ana = approver(server)
    assert ana.get(f"/approvals/{new_id()}").status == 404
    assert ana.get("/approvals/nothing").status == 404


# --- what is shown


def test_page_shows_everything_a_decision_needs(server: HttpServer, askers: Askers) -> None:
    arguments = {
        "to": {"name": "cus_88", "tags": ["a", {"deep": True}]},
        "amount": 1240.0,
        "empty": [],
        "memo": "line one\nline two",
        "long": "0123456789" * 500,
    }
    request = askers.asked(arguments=arguments, risk="HIGH", submitted_by="li")
    page = approver(server).look(request)
    words = words_of(page)
    for expected in (
        "high risk",
        "cannot be undone",
        "money out",
        "Submitted by li",
        "to.name cus_88",
        "to.tags[0] a to.tags[1].deep true",
        "amount 1240.0",
        "empty []",
        "memo line one line two",
        f"long 5,000 characters, in full {'0123456789' * 500}",
        "refunds ask",
        "It may be wrong; do not base your decision on it. I will refund it.",
        "Approve refund runs with exactly these arguments, once",
        "Deny refund does not run; the job's code is informed and goes on",
        "No answer refund does not run and counts as expired (not as denied); the job fails",
        request.digest.hex(),
        str(askers.row(request).job_id),
    ):
        assert expected in words
    assert json.dumps(arguments["memo"])[1:-1] in words, "the canonical JSON stands there, too"
    assert buttons_in(page, path_of(request)) == {"approve", "deny", "review"}


def test_page_sections_are_in_reading_order(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    words = words_of(approver(server).look(request))
    wanted = (
        *(
            "critical",
            "cannot be undone",
            "Requested by",
            "Exactly what runs",
            "Why approval is needed",
        ),
        *("Approvals so far", "What happens", "s left", "Your decision", "Reason", "✕ Deny"),
        "✓ Approve",
    )
    places = [words.index(each) for each in wanted]
    assert places == sorted(places)


def test_hidden_characters_are_seen_and_counted(server: HttpServer, askers: Askers) -> None:
    arguments = {"memo": "pay \u202etxt.exe\u202c", "na\u200bme": "x"}
    request = askers.asked(arguments=arguments, schema={"type": "object"})
    page = approver(server).look(request)
    words = words_of(page)
    assert "3 hidden characters in these arguments" in words
    assert "memo 2 hidden characters pay ⟦U+202E⟧ txt.exe ⟦U+202C⟧" in words
    for hidden in "\u202e\u202c\u200b":
        assert hidden.encode() not in page.body
    draft = fields_in(page, path_of(request))["draft"]
    assert "\\u202e" in draft
    assert json.loads(draft) == arguments, "and they come back as they were"


def test_page_counts_values_listed_only_in_the_json(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(arguments={"rows": list(range(1, 1501))})
    page = approver(server).look(request)
    assert "500 more values are not listed: the JSON below" in words_of(page)
    assert b'<details class="raw" open>' in page.body
    assert request.arguments.replace('"', "&#34;").encode() in page.body


def test_page_shows_an_edit_with_old_and_new_values(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    edited = '{"amount":9,"customer":"cus_88"}'
    askers.decide(request, by="kim", edited=edited, reason="less")
    words = words_of(approver(server).look(request))
    assert "Edited by kim" in words
    assert "amount was 12.4 becomes 9" in words
    assert re.search(
        r"1 of 2 people agreed; 1 more person must. kim at \d\d:\d\d:\d\dZ , who edited the", words
    )


def test_inbox_lists_pending_requests_by_risk(own_server: HttpServer, own_askers: Askers) -> None:
    for risk in Risk:
        own_askers.asked(risk=risk, tool=f"tool_{risk.lower()}")
    own_askers.decide(done := own_askers.asked(tool="done"))
    page = approver(own_server, "kim", "viewer").get("/approvals")
    words = words_of(page)
    places = [words.index(f"tool_{risk.lower()}") for risk in reversed(Risk)]
    assert places == sorted(places)
    assert str(done.id) not in page.body.decode()
    assert Reader(own_server).get("/approvals").status == 303


def test_inbox_continues_on_a_second_page(own_server: HttpServer, own_askers: Askers) -> None:
    claim = own_askers.claimed()
    own_askers.suspend(claim, *(a_request(key=f"{n}", tool=f"tool{n}") for n in range(103)))
    reader = approver(own_server)
    first = reader.get("/approvals")
    assert first.body.count(b"<li>") == 100
    found = re.search(rb"/approvals\?cursor=[0-9a-f-]{36}", first.body)
    assert found
    second = reader.get(found[0].decode())
    assert second.body.count(b"<li>") == 3
    assert b"cursor" not in second.body


# --- private content


def test_every_answer_keeps_to_itself(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    for output in (
        ana.look(request),
        ana.get("/approvals"),
        ana.get("/sign-in"),
        ana.answer(request, "deny"),
        Reader(server).open_link(request.id, WRONG),
        Reader(server).open_link(request.id, link_to(askers.call, request)),
    ):
        assert output.headers["cache-control"] == "no-store"
        assert output.headers["referrer-policy"] == "no-referrer"
        assert output.headers["x-robots-tag"] == "noindex"
        assert output.headers["x-frame-options"] == "DENY"
        assert output.headers["x-content-type-options"] == "nosniff"
        if output.status != 303:
            assert output.headers["content-security-policy"] == CSP
    assert "frame-ancestors 'none'" in CSP
    assert "unsafe" not in CSP


def test_pages_have_no_inline_scripts_or_foreign_resources(
    server: HttpServer, askers: Askers
) -> None:
    page = approver(server).look(askers.asked()).body.decode()
    assert set(re.findall(r'(?:src|href|action)="([^/"][^"]*)"', page)) == set()
    assert re.search(r"<script(?! src=)|\son\w+=|\sstyle=|javascript:", page) is None


def test_files_are_kept_for_ever_by_their_hash(server: HttpServer) -> None:
    page = Reader(server).get("/sign-in").body.decode()
    paths = set(re.findall(r"/static/[\w.]+", page))
    assert len(paths) == 2
    for path in paths:
        output = server.get(path)
        assert (output.status, output.headers["cache-control"]) == (
            200,
            "public, max-age=31536000, immutable",
        )
    for path in ("/static/page.css", "/static/page.0000000000000000.css", "/static/..%2fform.py"):
        assert server.get(path).status == 404


def test_the_token_is_in_no_log_and_no_row(
    database: str, own_askers: Askers, capfd: pytest.CaptureFixture[str]
) -> None:
    with http_server(database) as server:
        request = own_askers.asked()
        token = link_to(own_askers.call, request)
        reader = Reader(server)
        api_token = server.token("approver")
        reader.open_link(request.id, token)
        reader.look(request)
        reader.answer(request, "deny", name="li")
        Reader(server).open_link(new_id(), token)
        server.post(f"{path_of(request)}?t={token}", body=b"x")
        server.get(f"/nowhere?t={token}")
        reader.sign_in(api_token)
        reader.answer(request, "approve")
        cookies = list(reader.cookies.values())
    out, err = capfd.readouterr()
    assert f"path={path_of(request)}" in re.sub(r"\x1b\[[\d;]*m", "", out + err)
    tables = "cortex.approval", "cortex.approval_vote", "cortex.fact", "cortex.api_session"
    rows = "".join(str(sql(database, f"SELECT x::text FROM {table} x")) for table in tables)  # noqa: S608
    for secret in (token, api_token, *cookies):
        assert secret not in out + err
        assert secret not in rows


def test_recorded_address_comes_from_the_local_proxy(server: HttpServer, askers: Askers) -> None:
    for claimed, recorded in (
        (None, "127.0.0.1"),
        ("203.0.113.7", "203.0.113.7"),
        ("10.0.0.1, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, ", "127.0.0.1"),
        ("<script>", "127.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ):
        request = askers.asked()
        ana = approver(server)
        headers = ana.origin | ({} if claimed is None else {"X-Forwarded-For": claimed})
        assert ana.answer(request, "approve", headers=headers).status == 303
        assert row_of(askers.call, request).address == recorded


def test_page_is_accessible_and_well_formed(server: HttpServer, askers: Askers) -> None:
    """Every label has its field, every reference its target, every id is there once."""
    page = approver(server).look(askers.asked(risk="CRITICAL")).body.decode()
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    refs = re.findall(r'(?:for|aria-labelledby|aria-describedby)="([^"]+)"', page)
    assert set(refs) <= set(ids)
    assert "<html lang=" in page
    assert "<main" in page
    assert page.count("<h1") == 1
    assert re.search(r'<time datetime="\d{4}-\d\d-\d\dT[\d:]+Z">', page)
    assert "autofocus" not in page
