"""Answers given on the page of a request: whose count, which are refused, and what both see."""

import json
import re
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import attrs
import pytest

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.http.page.form import csrf_of
from cortex.http.page.visitor import LINK_COOKIE
from cortex.view.approval_facts import DENY_REASONS
from tests.support.people import enrolled, user
from tests.support.reader import (
    Reader,
    approver,
    buttons_in,
    by_link,
    fields_in,
    path_of,
    row_of,
    words_of,
)
from tests.support.records.approvals import Askers, facts
from tests.support.records.rows import job_row, move_clock
from tests.support.servers.http_server import Answered, HttpServer

LESS = json.dumps({"customer": "cus_88", "amount": 9})


@pytest.fixture(scope="module")
def server(shared_server: HttpServer) -> HttpServer:
    return shared_server


@pytest.fixture(scope="module")
def askers(shared_askers: Askers) -> Askers:
    return shared_askers


def outcome(askers: Askers, request: ApprovalRequest) -> tuple[str, str | None, str | None]:
    """The state of a request: state, people, way."""
    row = row_of(askers.call, request)
    return row.status, row.decided_by, row.channel


# --- yes and no


def test_signed_in_person_approves(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    headers = {**ana.origin, "User-Agent": "Lynx/2.9"}
    output = ana.answer(request, "approve", reason="checked", headers=headers)
    assert (output.status, output.headers["location"]) == (303, path_of(request))
    row = row_of(askers.call, request)
    expected = ("APPROVED", "ana", "page", "checked", "127.0.0.1", "Lynx/2.9")
    names = ("status", "decided_by", "channel", "reason", "address", "client")
    assert tuple(getattr(row, name) for name in names) == expected
    assert job_row(askers.dsn, row.job_id)["task_state"] == "READY"
    after = ana.look(request)
    assert re.search(r"Approved by ana at \d\d:\d\d:\d\dZ , job resumed", words_of(after))
    assert buttons_in(after, path_of(request)) == set()


@pytest.mark.parametrize("risk", ["LOW", "MED"])
def test_a_link_is_enough_for_little_and_its_person_is_marked(
    server: HttpServer, askers: Askers, risk: str
) -> None:
    request = askers.asked(risk=risk)
    reader = by_link(server, askers.call, request)
    assert reader.answer(request, "approve", name=" Bo Li ").status == 303
    assert outcome(askers, request) == ("APPROVED", "Bo Li (unverified)", "link")
    assert "Approved by Bo Li (unverified)" in words_of(reader.look(request))
    subtype, data = facts(askers.dsn, request.id)[-1]
    assert (subtype, data["by"], data["channel"]) == (
        "approval_approved",
        "Bo Li (unverified)",
        "link",
    )


def test_invalid_typed_name_is_refused(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    reader = by_link(server, askers.call, request)
    for name in ("", "  ", "x" * 101, "a\u202eb", "a\x1b[2J"):
        output = reader.answer(request, "approve", name=name)
        assert output.status == 422
        assert 'aria-invalid="true"' in output.body.decode()
    assert outcome(askers, request)[0] == "PENDING"


@pytest.mark.parametrize("reason", ["", "twelve forty, not more"])
@pytest.mark.parametrize("canned", ["", DENY_REASONS[0]])
def test_denial_on_the_page_requires_and_records_a_reason(
    server: HttpServer, askers: Askers, canned: str, reason: str
) -> None:
    request = askers.asked()
    ana = approver(server)
    output = ana.answer(request, "deny", canned=canned, reason=reason)
    if not canned and not reason:
        assert output.status == 422
        assert "a denial needs a reason" in words_of(output)
        assert outcome(askers, request)[0] == "PENDING"
        return
    assert output.status == 303
    assert outcome(askers, request) == ("DENIED", "ana", "page")
    expected = ": ".join(filter(None, (canned, reason)))
    assert row_of(askers.call, request).reason == expected
    assert re.search(
        rf"Denied by ana at .*Z , nothing ran.* {expected}", words_of(ana.look(request))
    )


def test_typed_values_survive_a_mistake_except_the_confirmation(
    server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(risk="HIGH")
    ana = approver(server)
    output = ana.answer(
        request, "approve", reason='a "b" <c>', confirm="zzzz", canned=DENY_REASONS[1]
    )
    assert output.status == 422
    form = fields_in(output, path_of(request))
    assert form["reason"] == 'a "b" <c>'
    assert f"<option selected>{DENY_REASONS[1]}</option>" in output.body.decode()
    assert form["confirm"] == "", "that is typed each time"


# --- the dangerous ones


def test_high_risk_needs_signing_in_and_the_end_of_the_id(
    server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(risk="HIGH")
    reader = by_link(server, askers.call, request)
    page = reader.look(request)
    assert "who decides signs in" in words_of(page)
    assert buttons_in(page, path_of(request)) == set()
    ana = approver(server)
    form = ana.fields(request)
    for typed in ("", "0000" if request.id.hex[-4:] != "0000" else "1111", request.id.hex[-3:]):
        output = ana.answer(request, "approve", fields=form, confirm=typed)
        assert (output.status, "confirm" in words_of(output)) == (422, True)
    assert outcome(askers, request)[0] == "PENDING"
    typed = f" {request.id.hex[-4:].upper()} "
    assert ana.answer(request, "approve", fields=form, confirm=typed).status == 303
    assert outcome(askers, request) == ("APPROVED", "ana", "page")


@pytest.mark.parametrize(
    "fields", [{"risk": "HIGH"}, {"risk": "CRITICAL"}, {"risk": "LOW", "people": 2}]
)
def test_link_cannot_decide_dangerous_requests(
    server: HttpServer, askers: Askers, fields: dict[str, Any]
) -> None:
    """Neither what is HIGH, nor what needs two: one person could give two names."""
    request = askers.asked(**fields)
    reader = by_link(server, askers.call, request)
    csrf = csrf_of(reader.cookies[LINK_COOKIE], str(request.id))
    form = {"digest": request.digest.hex(), "version": "1", "name": "ana", "csrf": csrf}
    for act in ("approve", "deny"):
        output = reader.answer(request, act, fields=form, confirm=request.id.hex[-4:], reason="x")
        assert (output.status, "a link is not enough" in words_of(output)) == (403, True)
    assert outcome(askers, request)[0] == "PENDING"


def test_critical_approval_on_the_page_takes_two_people(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by="li")
    confirm = request.id.hex[-4:]
    ana, ana_too, li, kim = (approver(server, name) for name in ("ana", "ana", "li", "kim"))
    own = li.answer(request, "approve", confirm=confirm)
    assert (
        own.status,
        "another person has to" in words_of(own) or "asked for by you" in words_of(own),
    ) == (409, True)
    assert ana.answer(request, "approve", confirm=confirm).status == 303
    assert outcome(askers, request)[0] == "PENDING"
    page = ana.look(request)
    assert "1 of 2 people agreed; 1 more person must" in words_of(page)
    assert "You have approved; another person must approve as well" in words_of(page)
    assert buttons_in(page, path_of(request)) == {"deny", "review"}
    form = kim.fields(request) | {"csrf": ana_too.fields(request)["csrf"]}
    again = ana_too.answer(request, "approve", fields=form, confirm=confirm)
    assert (again.status, "you have agreed" in words_of(again)) == (409, True)
    assert kim.answer(request, "approve", confirm=confirm).status == 303
    assert outcome(askers, request) == ("APPROVED", "kim", "page")
    assert "ana at" in words_of(kim.look(request))


# --- others were first, or the request changed


def test_second_decider_sees_the_first_decision(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    by_page, link = approver(server), by_link(server, askers.call, request)
    forms = by_page.fields(request), link.fields(request)
    askers.decide(request, is_approved=False, by="pat", reason="too much")
    for reader, form in zip((by_page, link), forms, strict=True):
        output = reader.answer(request, "approve", fields=form, name="bo")
        words = words_of(output)
        assert output.status == 409
        assert "Another decision came first; yours does not count" in words
        assert re.search(r"Denied by pat at \d\d:\d\d:\d\dZ , nothing ran too much", words)
    assert outcome(askers, request) == ("DENIED", "pat", "cli")


def test_the_same_answer_twice_counts_once(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    form = ana.fields(request)
    assert ana.answer(request, "approve", fields=form).status == 303
    output = ana.answer(request, "approve", fields=form)
    assert (output.status, "Approved by ana" in words_of(output)) == (409, True)


def test_too_late_is_not_denied(own_server: HttpServer, own_askers: Askers) -> None:
    request = own_askers.asked(expires_s=60.0)
    ana = approver(own_server)
    form = ana.fields(request)
    move_clock(own_askers.dsn, 61)
    for act in ("approve", "deny", "review"):
        output = ana.answer(request, act, fields=form, reason="no")
        assert output.status == 409
        assert "Your decision came too late" in words_of(output)
        assert "nothing ran; a new request is needed" in words_of(output)
        assert "Denied" not in words_of(output)
    assert outcome(own_askers, request)[0] == "PENDING"


def test_changed_arguments_are_shown_before_anybody_agrees_to_them(
    server: HttpServer, askers: Askers
) -> None:
    request = askers.asked(risk="CRITICAL")
    ana = approver(server)
    form = ana.fields(request)
    edited = '{"amount":9,"customer":"cus_88"}'
    askers.decide(request, by="kim", edited=edited)
    for act in ("approve", "review", "deny"):
        output = ana.answer(request, act, fields=form, reason="x", confirm=request.id.hex[-4:])
        words = words_of(output)
        assert output.status == 409
        assert "The arguments have changed since you saw them" in words
        assert "amount was 12.4 becomes 9" in words
    late = ana.answer(request, "deny", fields=form, reason="x")
    shown = fields_in(late, path_of(request))
    assert shown["digest"] != request.digest.hex()
    assert ana.answer(request, "approve", fields=shown, confirm=request.id.hex[-4:]).status == 303
    assert row_of(askers.call, request).arguments["amount"] == 9


def test_a_digest_of_one_version_does_not_decide_another(
    server: HttpServer, askers: Askers
) -> None:
    request = askers.asked()
    ana = approver(server)
    lies: list[dict[str, Any]] = [{"digest": "00" * 32}, {"version": "2"}]
    for lie in lies:
        assert ana.answer(request, "approve", **lie).status == 409
    assert outcome(askers, request)[0] == "PENDING"


@pytest.mark.parametrize("_", range(3))
def test_one_of_many_simultaneous_answers_wins_on_any_channel(
    server: HttpServer, askers: Askers, _: int
) -> None:
    request = askers.asked()
    readers = [approver(server, f"p{n}") for n in range(3)]
    readers.append(by_link(server, askers.call, request))
    forms = [reader.fields(request) for reader in readers]
    token = server.token("approver", name="bo")

    def on_page(number: int, act: str) -> Callable[[], Answered]:
        form = {**forms[number], "name": "x", "reason": "why"}
        return lambda: readers[number].answer(request, act, fields=form)

    def by_api(verb: str) -> Callable[[], Answered]:
        wish = {"digest": request.digest.hex(), "reason": "no"}
        path = f"/v1{path_of(request)}/{verb}"
        return lambda: server.post(path, token=token, json_body=wish)

    calls = [on_page(n, act) for n, act in enumerate(("approve", "deny", "approve", "deny"))]
    statuses = _at_once([*calls, by_api("deny"), by_api("approve")])
    assert sorted(statuses)[1:] == [409] * 5, statuses
    names = {"approval_approved", "approval_denied"}
    assert len([name for name, _ in facts(askers.dsn, request.id) if name in names]) == 1


def _at_once(calls: list[Callable[[], Answered]]) -> list[int]:
    found: list[int] = []
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Answered]) -> None:
        gate.wait()
        found.append(call().status)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# --- edits


def test_an_edit_is_checked_and_seen_before_it_counts(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(risk="HIGH")
    ana = approver(server)
    review = ana.answer(request, "review", draft=LESS)
    words = words_of(review)
    assert review.status == 200
    assert "Approve with these changes?" in words
    assert "amount was 12.4 becomes 9" in words
    assert outcome(askers, request)[0] == "PENDING"
    form = fields_in(review, path_of(request))
    assert json.loads(form["edited"]) == json.loads(LESS)
    output = ana.answer(request, "approve", fields=form, confirm=request.id.hex[-4:], reason="less")
    assert output.status == 303
    row = row_of(askers.call, request)
    assert (row.status, row.arguments["amount"], row.asked["amount"]) == (
        "APPROVED",
        9,
        12.4,
    )
    assert row.edited_by == "ana"


def test_an_edit_that_crosses_a_rules_threshold_is_refused(
    server: HttpServer, askers: Askers
) -> None:
    request = askers.asked_below(500)
    ana = approver(server)
    much = json.dumps({"customer": "cus_88", "amount": 500})
    review = ana.answer(request, "review", draft=much)
    form = fields_in(review, path_of(request))
    output = ana.answer(request, "approve", fields=form, reason="more")
    assert (output.status, "for which 2 people must be asked" in words_of(output)) == (422, True)
    row = row_of(askers.call, request)
    assert (row.status, row.edited_by) == ("PENDING", None)


def test_an_edit_is_never_approved_unseen(server: HttpServer, askers: Askers) -> None:
    """A person who edits and then presses the wrong button sees the change first."""
    request = askers.asked()
    ana = approver(server)
    output = ana.answer(request, "approve", draft=LESS)
    assert (output.status, "Approve with these changes?" in words_of(output)) == (200, True)
    assert outcome(askers, request)[0] == "PENDING"


def test_the_same_json_in_other_words_is_no_edit(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    same = '{ "customer":\r\n"cus_88", "amount": 12.4 }'
    output = ana.answer(request, "review", draft=same)
    assert (output.status, "Nothing was changed" in words_of(output)) == (422, True)
    assert ana.answer(request, "approve", draft=same).status == 303
    row = row_of(askers.call, request)
    assert (row.status, row.version, row.edited_by) == ("APPROVED", 1, None)


@pytest.mark.parametrize(
    "draft, told_of",
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ('{"customer": "cus_88"}', "amount is missing"),
        ('{"customer": "cus_88", "amount": "9"}', "amount must be a finite number"),
        ('{"customer": "cus_88", "amount": 9, "to": 1}', "to is unknown"),
        ('{"customer": "cus_88", "amount": 9, "amount": 10}', "twice"),
        ('{"customer": "cus_88", "amount": NaN}', "amount is nan"),
        ('{"customer": "a\\u0000b", "amount": 9}', "NUL"),
    ],
)
def test_unfitting_edit_is_refused_with_its_place(
    server: HttpServer, askers: Askers, draft: str, told_of: str
) -> None:
    request = askers.asked()
    output = approver(server).answer(request, "review", draft=draft)
    assert (output.status, told_of in words_of(output)) == (422, True), words_of(output)
    assert fields_in(output, path_of(request))["draft"] == draft, "what was typed is not lost"
    assert '<details class="edit" open>' in output.body.decode()


def test_person_with_a_link_cannot_edit(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    reader = by_link(server, askers.call, request)
    assert "draft" not in reader.fields(request)
    edits: list[dict[str, Any]] = [{"draft": LESS}, {"edited": LESS}]
    for typed in edits:
        output = reader.answer(request, "approve", name="bo", **typed)
        assert output.status == 422
    assert outcome(askers, request)[0] == "PENDING"


def test_request_without_a_schema_cannot_be_edited(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(schema=None)
    ana = approver(server)
    assert "draft" not in ana.fields(request)
    output = ana.answer(request, "review", draft=LESS)
    assert (output.status, "cannot be edited" in words_of(output)) == (422, True)


# --- forged forms


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_cross_site_form_decides_nothing(
    server: HttpServer, askers: Askers, headers: dict[str, str]
) -> None:
    request = askers.asked()
    for reader in (approver(server), by_link(server, askers.call, request)):
        sent = {**reader.origin, **headers} if "Sec-Fetch-Site" in headers else headers
        assert reader.answer(request, "approve", headers=sent, name="bo").status == 403
    assert outcome(askers, request)[0] == "PENDING"


def test_a_form_counts_for_its_person_and_its_request_only(
    server: HttpServer, askers: Askers
) -> None:
    request, other = askers.asked(), askers.asked()
    ana, li = approver(server), approver(server, "li")
    link = by_link(server, askers.call, request)
    form = ana.fields(request)
    proofs = {
        "missing": "",
        "of li": li.fields(request)["csrf"],
        "of the link": link.fields(request)["csrf"],
        "of another request": ana.fields(other)["csrf"],
        "for signing out": fields_in(ana.get("/approvals"), "/sign-out")["csrf"],
        "not ASCII": "é" * 64,
    }
    for what, csrf in proofs.items():
        output = ana.answer(request, "approve", fields={**form, "csrf": csrf})
        assert (output.status, outcome(askers, request)[0]) == (403, "PENDING"), what
    del form["csrf"]
    assert ana.answer(request, "approve", fields=form).status == 403


def test_a_form_ends_with_the_session(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    form = ana.fields(request)
    old = dict(ana.cookies)
    ana.send("/sign-out", fields_in(ana.get("/approvals"), "/sign-out"))
    for cookies in ({}, old):
        ana.cookies = dict(cookies)
        assert ana.answer(request, "approve", fields=form).status == 403
    assert outcome(askers, request)[0] == "PENDING"


@pytest.mark.parametrize(
    "broken",
    [
        {"act": "explode"},
        {"digest": "zz"},
        {"version": "one"},
        {"canned": "because"},
        {"reason": "x" * 1001, "act": "deny"},
        {"reason": "a\0b", "act": "deny"},
    ],
)
def test_tampered_form_is_refused(
    server: HttpServer, askers: Askers, broken: dict[str, str]
) -> None:
    request = askers.asked()
    ana = approver(server)
    form = {**ana.fields(request), "act": "approve", **broken}
    assert ana.send(path_of(request), form).status in {400, 422}
    assert outcome(askers, request)[0] == "PENDING"


def test_a_body_that_is_no_form_is_refused(server: HttpServer, askers: Askers) -> None:
    request = askers.asked()
    ana = approver(server)
    cookie = "; ".join(f"{name}={value}" for name, value in ana.cookies.items())
    for body in (b"", b"\xff=\xff", b"&".join([b"a=b"] * 40), b"act=approve&act=deny", b"{}"):
        headers = {**ana.origin, "Cookie": cookie}
        output = server.post(path_of(request), body=body, headers=headers)
        assert output.status in {400, 403}, body
    assert outcome(askers, request)[0] == "PENDING"


# --- hostile text


MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&{{7*7}}{% raw %}\u202e\x1b[2J"
TYPED = MARKUP.replace("\u202e", "").replace("\x1b", "")
"""As people type it: that is given back as it was."""


class Tags(HTMLParser):
    """Finds what no template of ours holds."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        acts = [name for name, _ in attrs if name.startswith("on") or name == "style"]
        loads = [to or "" for name, to in attrs if name in {"src", "href", "action"}]
        is_foreign = acts or [to for to in loads if not to.startswith("/") or to[1:2] in "/\\"]
        if is_foreign or (tag == "script" and not loads):
            self.foreign.append(f"{tag} {attrs}")


def test_text_of_jobs_and_models_stays_text(server: HttpServer, askers: Askers) -> None:
    request = askers.asked(
        arguments={MARKUP: MARKUP, "list": [MARKUP]},
        schema={"type": "object"},
        tool=MARKUP,
        key=MARKUP,
        effect=MARKUP,
        policy=MARKUP,
        said=MARKUP,
        submitted_by=MARKUP,
        risk="CRITICAL",
        people=3,
    )
    edited = json.dumps({"b": MARKUP})
    li = attrs.evolve(enrolled(askers.dsn, "li"), label=MARKUP)
    askers.decide(request, by=li, reason=MARKUP, edited=edited)
    digest = row_of(askers.call, request).digest
    ana = approver(server, "ana")
    pages = [
        ana.look(request),
        ana.get("/approvals"),
        ana.answer(request, "review", draft=json.dumps({"c": MARKUP}), reason=TYPED),
        ana.answer(request, "deny", reason=""),
        ana.answer(request, "approve", reason=TYPED, confirm=TYPED[:9]),
        ana.answer(request, "review", draft=TYPED),
    ]
    bo = user("joe", label=MARKUP)
    askers.decide(request, is_approved=False, by=bo, reason=MARKUP, seen=digest)
    pages += [
        ana.look(request),
        Reader(server).get(f"/sign-in?next={MARKUP[:20]}%22%3E%3Cscript%3E"),
    ]
    for page in pages:
        text = page.body.decode()
        assert page.status in {200, 422, 400}
        found = Tags()
        found.feed(text)
        assert found.foreign == []
        assert "\u202e" not in text
        assert "\x1b" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[0].body.decode()
    assert "⟦U+202E⟧" in words_of(pages[0])
