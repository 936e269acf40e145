"""The tools of the MCP server, called by the client of the `mcp` package."""

import json
from typing import Any

import pytest
import trio
from mcp.shared.exceptions import MCPError
from mcp.types import ErrorData

from cortex.domain.errors import UnavailableError
from cortex.domain.job_feed import CodeWait
from cortex.http.mcp import answers, service, tools, turns
from cortex.http.mcp.tools import TOOLS
from cortex.http.mcp.turns import Turns
from cortex.runtime.clients.result_waiters import ResultWaiters
from tests.support.assistant import LEGACY, Person, assistant, token_of
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.records.rows import job_row, new_id

EVERYTHING = ("submit", "approve", "retry", "cancel")


# --- what is offered


def test_only_reading_is_offered_by_default(shared_database: str) -> None:
    with assistant(shared_database) as ask:
        offered = ask.tools()
    reading = {each.name for each in TOOLS if each.allow is None}
    assert offered.keys() == reading | {"run_doctor"}
    assert all(each.annotations.read_only_hint for each in offered.values())
    assert not any(each.annotations.destructive_hint for each in offered.values())


def test_an_allowed_tool_is_offered_with_its_hints(shared_database: str) -> None:
    with assistant(shared_database, ["cancel", "retry"]) as ask:
        offered = ask.tools()
    changes = {name: each for name, each in offered.items() if not each.annotations.read_only_hint}
    assert changes.keys() == {"cancel_job", "retry_job", "retry_dead_letter"}
    hints = changes["cancel_job"].annotations
    assert (hints.destructive_hint, hints.idempotent_hint) == (True, True)
    hints = changes["retry_job"].annotations
    assert (hints.destructive_hint, hints.idempotent_hint) == (False, False)


def test_a_tool_beyond_the_roles_of_the_token_is_not_offered(shared_database: str) -> None:
    token = token_of(shared_database, "viewer")
    with assistant(shared_database, EVERYTHING, token=token) as ask:
        assert all(each.annotations.read_only_hint for each in (ask.tools()).values())
        refused = ask("cancel_job", job_id=str(new_id()))
    assert "needs the role operator; ana (mcp) has: viewer" in refused.error


def test_schemas_are_those_of_the_routes(shared_database: str) -> None:
    with assistant(shared_database, EVERYTHING, token=token_of(shared_database, "admin")) as ask:
        offered = ask.tools()
    assert offered.keys() == {each.name for each in TOOLS} | {"run_doctor"}
    schemas = {name: each.input_schema for name, each in offered.items()}
    assert "#/components" not in json.dumps(schemas)
    assert schemas["why_job"]["required"] == ["job_id"]
    assert schemas["list_jobs"]["properties"]["limit"]["default"] == tools.ROWS
    assert "idempotency_key" in schemas["submit_job"]["properties"]
    assert not {"arguments", "confirm"} & schemas["approve_approval"]["properties"].keys()
    assert all(each["additionalProperties"] is False for each in schemas.values())


def test_a_submitter_gets_tools_for_their_own_jobs_alone(shared_database: str, life: Life) -> None:
    life.type()
    others = str(life.job())
    token = token_of(shared_database, "submitter", name="sam")
    with assistant(shared_database, EVERYTHING, token=token) as ask:
        offered = ask.tools()
        mine = ask("submit_job", type="digest").document["id"]
        assert ask("why_job", job_id=mine).document["job"] == mine
        assert "does not exist" in ask("why_job", job_id=others).error
        assert "needs the role viewer" in ask("list_jobs").error
    assert {"submit_job", "show_job", "why_job", "wait_for_job"} <= offered.keys()
    assert not {"list_jobs", "cancel_job", "list_logs", "list_approvals"} & offered.keys()


# --- bad input


@pytest.mark.parametrize(
    "tool, arguments, expected",
    [
        ("no_tool", {}, "there is no tool 'no_tool'"),
        ("submit_job", {"type": "digest"}, "not allowed here; start `cortex mcp --allow submit`"),
        ("list_jobs", {"colour": 1}, "no argument 'colour'; it has: cursor, filter, limit"),
        ("list_jobs", {"limit": 0}, "limit is 0, not 1 to 200"),
        ("list_jobs", {"limit": {"a": 1}}, "limit must be text or a number, got {'a': 1}"),
        ("list_jobs", {"filter": "stat:x"}, "unknown key 'stat' in the filter; did you mean"),
        ("list_jobs", {"cursor": "x"}, "'x' is not a cursor"),
        ("list_jobs", {"filter": "\ud800"}, "filter is not UTF-8 text"),
        ("show_job", {}, "show_job needs job_id"),
        ("show_job", {"job_id": None}, "show_job needs job_id"),
        ("show_job", {"job_id": "7f3c"}, "job_id '7f3c' is not an id; give the whole id"),
        ("show_job", {"job_id": "../tokens"}, "job_id '../tokens' is not an id"),
        ("show_job", {"job_id": ""}, "job_id '' is not an id; give the whole id"),
        ("list_jobs", {"filter": []}, "filter must be one value, got []"),
        ("list_dead_letters", {"tenant": ["acme"]}, "tenant must be one value, got ['acme']"),
        ("why_job", {"job_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12}, "does not exist"),
        ("wait_for_job", {"job_id": "x", "timeout_s": 601}, "timeout_s must be 0 to 600 seconds"),
        ("wait_for_job", {"job_id": "x", "timeout_s": True}, "timeout_s must be 0 to 600 seconds"),
        ("list_logs", {"level": "loud"}, "level"),
        ("list_logs", {"since": "long"}, "'long' is not a time such as"),
        ("list_dead_letters", {"state": ["LOST"]}, "LOST"),
        ("show_approval", {"approval_id": 5}, "'5' is not an id"),
    ],
)
def test_bad_input_is_one_line_that_names_it(
    shared_database: str, tool: str, arguments: dict[str, Any], expected: str
) -> None:
    with assistant(shared_database) as ask:
        assert expected in (ask(tool, **arguments)).error


# --- reading


def test_an_assistant_follows_a_job_from_list_to_reason(shared_database: str, life: Life) -> None:
    life.type()
    job_id = str(life.job(queue_name="of-the-assistant"))
    with assistant(shared_database) as ask:
        found = (ask("list_jobs", filter="queue:of-the-assistant")).document
        assert [each["id"] for each in found["jobs"]] == [job_id]
        assert (ask("show_job", job_id=job_id)).document["job"]["id"] == job_id
        why = ask("why_job", job_id=job_id)
    assert why.document["cause"]
    assert why.notice == answers.NOTICE


def test_waiting_reports_progress_and_says_why_it_goes_on(
    shared_database: str, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "TURN_S", 0.02)
    life.type()
    job_id = str(life.job())
    with assistant(shared_database) as ask:
        found = (ask("wait_for_job", job_id=job_id, timeout_s=0.1)).document
    assert found["has_ended"] is False
    assert found["sentence"]
    assert found["ways_out"] is not None
    assert ask.progress, "a wait of several turns reports each"
    assert {total for _, total, _ in ask.progress} == {0.1}
    assert ask.progress[0][2] == found["sentence"]


def test_waiting_for_a_job_without_code_asks_only_once_a_turn(
    shared_database: str, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "TURN_S", 0.1)

    async def waits(*_: Any) -> CodeWait:
        return CodeWait(None)

    monkeypatch.setattr(ResultWaiters, "result", waits)
    life.type()
    job_id = str(life.job())
    with assistant(shared_database) as ask:
        ask("wait_for_job", job_id=job_id, timeout_s=0.35)
    assert 2 <= len(ask.progress) <= 5


def test_waiting_returns_how_a_job_ended(shared_database: str, life: Life) -> None:
    life.type()
    job_id = str(life.job())
    with assistant(shared_database, ["cancel"]) as ask:
        ask("cancel_job", job_id=job_id, reason="not needed")
        found = (ask("wait_for_job", job_id=job_id)).document
    assert (found["job_status"], found["cancel_reason"]) == ("CANCELLED", "not needed")


def test_the_doctor_reports_findings_and_their_fixes(shared_database: str) -> None:
    with assistant(shared_database) as ask:
        found = ask("run_doctor").document
    assert found["healthy"] is False
    assert found["checks"][1] == {
        "check": "database",
        "grade": "FAIL",
        "found": "gone",
        "fix": "start it",
    }
    with assistant(shared_database, tenant="acme") as ask:
        assert "about all tenants" in ask("run_doctor").error


# --- changing


def test_a_submission_under_a_key_is_made_once(shared_database: str, life: Life) -> None:
    life.type()
    wish = {"type": "digest", "payload": {"n": 2**60}, "idempotency_key": f"k-{new_id()}"}
    with assistant(shared_database, ["submit"]) as ask:
        first, second = [(ask("submit_job", **wish)).document["id"] for _ in range(2)]
        other = ask("submit_job", **wish | {"payload": {"n": 1}})
    assert first == second
    assert "key" in other.error
    row = job_row(shared_database, first)
    assert row["submitted_by"] == "olga (mcp)"


@pytest.mark.parametrize(
    "wrong, expected",
    [
        ({"idempotency_key": "\u65e5\u672c"}, "may hold visible ASCII characters only"),
        ({"idempotency_key": 5}, "idempotency_key must be text, got 5"),
        ({"payload": {"n": 10**30}}, "the arguments are not JSON: 1000"),
        ({"priority": "high"}, "see the schema of the tool"),
    ],
)
def test_a_bad_submission_is_one_line_that_names_it(
    shared_database: str, wrong: dict[str, Any], expected: str
) -> None:
    with assistant(shared_database, ["submit"]) as ask:
        assert expected in ask("submit_job", **{"type": "digest", **wrong}).error


def test_changes_are_recorded_as_made_through_an_assistant(
    shared_database: str, life: Life
) -> None:
    life.type()
    job_id = str(life.job())
    token = token_of(shared_database, "operator", name="bo")
    with assistant(shared_database, ["cancel"], token=token) as ask:
        assert (ask("cancel_job", job_id=job_id)).document["status"] == "CANCELLED"
        shown = (ask("show_job", job_id=job_id)).document
    assert "bo (mcp)" in json.dumps(shown)


# --- approvals


def test_a_list_shows_no_digest_and_a_request_shows_it(
    shared_database: str, askers: Askers
) -> None:
    request = askers.asked(arguments={"customer": "cus_88", "amount": 1240.5, "id": 2**80})
    with assistant(shared_database) as ask:
        rows = (ask("list_approvals", limit=200)).document["approvals"]
        shown = ask("show_approval", approval_id=str(request.id))
    assert not any("digest" in each for each in rows)
    assert shown.document["digest"] == request.digest.hex()
    assert request.arguments in shown.text, "every digit of every number"


@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_decision_is_of_the_person_of_the_token_and_says_mcp(
    shared_database: str, askers: Askers, mode: str
) -> None:
    request = askers.asked(risk="MED")
    token = token_of(shared_database, "approver")
    wish = {"approval_id": str(request.id), "digest": request.digest.hex()}
    with assistant(shared_database, ["approve"], token=token, mode=mode) as ask:
        assert (ask("approve_approval", **wish, reason="ok")).document["outcome"] == "approved"
        late = ask("deny_approval", **wish, reason="no")
    assert "already approved by ana (mcp)" in late.error
    row = askers.row(request)
    assert (row.decided_by, row.channel, row.reason) == ("ana (mcp)", "mcp", "ok")


@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_high_risk_is_confirmed_by_the_person_past_the_model(
    shared_database: str, askers: Askers, mode: str
) -> None:
    request = askers.asked(risk="HIGH")
    token = token_of(shared_database, "approver")
    person = Person(None, "0000", request.id.hex[-4:])
    wish = {"approval_id": str(request.id), "digest": request.digest.hex()}
    with assistant(shared_database, ["approve"], token=token, person=person, mode=mode) as ask:
        declined = ask("approve_approval", **wish)
        wrong = ask("approve_approval", **wish)
        done = ask("approve_approval", **wish, idempotency_key=request.id.hex)
        again = ask("approve_approval", **wish, idempotency_key=request.id.hex)
    assert "was already approved by ana (mcp)" in again.error, "nobody is asked again"
    assert "the person did not confirm it; nothing was decided" in declined.error
    assert "confirm" in wrong.error
    assert done.document["outcome"] == "approved"
    assert f"arguments? {request.arguments} To" in person.asked[0]


@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_high_risk_without_a_dialog_is_refused(
    shared_database: str, askers: Askers, mode: str
) -> None:
    request = askers.asked(risk="HIGH")
    token = token_of(shared_database, "approver")
    wish = {"approval_id": str(request.id), "digest": request.digest.hex()}
    with assistant(shared_database, ["approve"], token=token, mode=mode) as ask:
        refused = ask("approve_approval", **wish)
    assert "this assistant cannot ask one (elicitation); decide it in the terminal" in refused.error
    assert askers.row(request).is_open


def test_a_critical_request_needs_two_people_through_assistants_as_well(
    shared_database: str, askers: Askers
) -> None:
    request = askers.asked(risk="CRITICAL")
    wish = {"approval_id": str(request.id), "digest": request.digest.hex()}
    outcomes = []
    for name in ("ana", "ana", "bo"):
        token = token_of(shared_database, "approver", name=name)
        person = Person(request.id.hex[-4:])
        with assistant(shared_database, ["approve"], token=token, person=person) as ask:
            outcomes.append((ask("approve_approval", **wish)).text)
    agreed, twice, approved = outcomes
    assert json.loads(agreed)["outcome"] == "agreed"
    assert "you have agreed" in twice
    assert json.loads(approved)["outcome"] == "approved"


# --- tenants


def test_a_tenant_sees_its_own_records_alone(shared_database: str, life: Life) -> None:
    life.type()
    mine, others = str(life.job(tenant="acme")), str(life.job(tenant="globex"))
    token = token_of(shared_database, "operator", tenant="acme")
    cases = [{"token": token}, {"tenant": "acme"}]
    for given in cases:
        with assistant(shared_database, **given) as ask:  # type: ignore[arg-type]
            rows = (ask("list_jobs", limit=200)).document["jobs"]
            assert [each["id"] for each in rows] == [mine]
            assert "does not exist" in (ask("show_job", job_id=others)).error
            assert "about all tenants" in (ask("show_health")).error
    with assistant(shared_database, token=token, tenant="globex") as ask:
        assert "token is of tenant acme, not globex" in (ask("list_jobs")).error


# --- bounds


def test_a_long_document_is_cut_and_says_so(shared_database: str, life: Life) -> None:
    life.type()
    job_id = str(life.job(payload=json.dumps({"text": "x" * 90_000, "rows": [*range(9_000)]})))
    with assistant(shared_database) as ask:
        shown = ask("show_job", job_id=job_id)
    assert len(shown.text) <= answers.CHARS_MAX
    payload = json.loads(shown.text)["job"]["payload"]
    assert payload["text"].endswith("… (89,000 more characters)")
    assert payload["rows"][-1] == "… (8,980 more)"


def test_waits_beyond_the_bound_are_refused_and_hold_up_nothing_else(
    shared_database: str, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WAITS_EACH_MAX", 1)
    monkeypatch.setattr(service, "CALLS_EACH_MAX", 1)
    monkeypatch.setattr(turns, "PATIENCE_S", 0.01)
    life.type()
    wait = {"job_id": str(life.job()), "timeout_s": 600}
    with assistant(shared_database) as ask, ask.beside("wait_for_job", **wait):
        assert "1 such calls are in progress already" in ask("wait_for_job", **wait).error
        assert not ask("list_jobs").is_error


def test_calls_of_one_caller_shut_out_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.01)

    async def main() -> None:
        bound = Turns(each_max=1, all_max=2)
        for _ in range(2):  # as well after a first round has ended
            async with bound.turn("ana"):
                with pytest.raises(UnavailableError, match="1 such calls are in progress"):
                    await bound.turn("ana").__aenter__()
                async with bound.turn("bo"):
                    with pytest.raises(UnavailableError, match="2 such calls are in progress"):
                        await bound.turn("cy").__aenter__()

    trio.run(main)


@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_dialog_that_fails_decides_nothing_and_says_where_to(
    shared_database: str, askers: Askers, mode: str
) -> None:
    async def fails(*_: Any) -> ErrorData:
        return ErrorData(code=-1, message="no screen")

    request = askers.asked(risk="HIGH")
    token = token_of(shared_database, "approver")
    wish = {"approval_id": str(request.id), "digest": request.digest.hex()}
    with assistant(
        shared_database,
        ["approve"],
        token=token,
        person=fails,  # type: ignore[arg-type]
        mode=mode,
    ) as ask:
        if mode == LEGACY:
            line = ask("approve_approval", **wish).error
            assert "has not asked the person: no screen; decide it in the terminal UI" in line
        else:  # the client itself gives up
            with pytest.raises(MCPError, match="no screen"):
                ask("approve_approval", **wish)
    assert askers.row(request).is_open
