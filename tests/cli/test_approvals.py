"""`cortex approvals`: requests are shown as they are, decided once, and outcomes reported."""

import json
import re
import signal
from typing import Any

import pytest

from cortex.store import jobs
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.in_process import Ended
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.approvals import Askers
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.postgres import sql

ANA = ("--as", "ana")
LI = ("--as", "li")
KIM = ("--as", "kim")


@pytest.fixture
def askers(life: Life) -> Askers:
    return Askers(life.call, life.dsn)


def listed(cortex: Cortex, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cortex("approvals", "ls", "--json", *options).document["approvals"]
    return rows


# --- looking


def test_pending_approvals_are_listed_by_risk(cortex: Cortex, askers: Askers) -> None:
    low, high, soon = (
        askers.asked(risk=risk, expires_s=expires_s)
        for risk, expires_s in (("LOW", 60.0), ("HIGH", 900.0), ("HIGH", 300.0))
    )
    rows = listed(cortex)
    assert [row["id"] for row in rows] == [str(each.id) for each in (soon, high, low)]
    first = rows[0]
    assert (first["risk"], first["tool"], first["agreed"], first["people"]) == (
        "HIGH",
        "refund",
        0,
        1,
    )
    assert first["arguments"] == {"customer": "cus_88", "amount": 12.4}
    assert 200 < first["expires_in_s"] <= 300
    paged = listed(cortex, "--limit", "1", "--after", str(soon.id)[-6:])
    assert [row["id"] for row in paged] == [str(high.id)]
    askers.decide(high)
    assert [row["status"] for row in listed(cortex, "--status", "approved")] == ["APPROVED"]
    assert [row["id"] for row in listed(cortex, "--all")] == [
        str(each.id) for each in (soon, high, low)
    ]
    assert cortex("approvals", "ls", "--status", "aproved", "--json").error["hint"] == (
        "did you mean 'approved'?"
    )
    assert cortex("approvals", "ls", "--after", str(new_id())).code == 3
    terminal = cortex.on_terminal("approvals", "ls", columns=120)
    assert terminal.end() == 0
    assert 'refund(amount=12.4, customer="cus_88")' in terminal.text
    assert "! HIGH" in terminal.text
    assert "nothing waits" not in terminal.text


def test_empty_inbox_prints_a_message(cortex: Cortex) -> None:
    ended = cortex("approvals", "ls")
    assert (ended.code, ended.out, ended.err) == (0, "", "nothing waits for a person\n")


def test_contradictory_status_filters_are_refused(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("approvals", "ls", "--all", "--status", "denied")
    assert (ended.code, "exclude each other" in ended.err) == (2, True), ended.err


def test_show_prints_every_fact_of_a_request(cortex: Cortex, askers: Askers) -> None:
    long = "x" * 3000
    request = askers.asked(
        arguments={"customer": long, "memo": "pay \u202eeno\x1b[31m", "amount": 1.0, "n": 1},
        risk="CRITICAL",
        submitted_by="ana",
        said="I will \x1b]52;c;aGk=\x07refund it.",
    )
    askers.decide(request, by="li", reason="looks fine")
    ended = cortex("approvals", "show", str(request.id)[-6:])
    assert ended.code == 0
    page = ended.out
    assert "\x1b" not in page
    assert "\u202e" not in page
    for expected in (
        "!! CRITICAL  approval",
        "money out · cannot be undone",
        "submitted by ana), at turn 1 · refund approval",
        "refunds ask",
        "0 steps",
        "1 of 2 people agreed",
        f"sha256 {request.digest.hex()[:12]}…",
        f'    "customer": "{long}"\n',
        '"memo": "pay ⟦U+202E⟧eno\\u001b[31m"',
        '    "amount": 1.0\n',
        '    "n": 1\n',
        "!! 2 invisible characters are shown",
        "what the model said: it may be wrong, do not decide by it",
        "li agreed at 20",
        "on approve    refund runs with exactly these arguments, once",
        "on deny       refund does not run; the job's code is informed and goes on",
        "no answer     refund does not run and counts as expired (not as denied); the job fails",
    ):
        assert expected in page, f"{expected!r} is not in {page}"
    assert re.search(r"expires       in 59m \d\ds, at 20", page)
    document = cortex("approvals", "show", str(request.id), "--json").document["approval"]
    assert document["arguments"]["memo"] == "pay \u202eeno\x1b[31m"
    assert document["digest"] == request.digest.hex()
    assert (document["agreed"], document["people"]) == (1, 2)
    assert not {"token_digest", "spent_digest"} & document.keys()
    assert cortex("approvals", "show", "00000000").code == 3


def test_letters_that_the_locale_lacks_are_spelled_out(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(arguments={"to": "p\u0430y@x.org", "flags": "\u2013rf"})
    ended = cortex("approvals", "show", str(request.id), env={"LANG": "C"})
    assert '"to": "p[U+0430]y@x.org"' in ended.out
    assert '"flags": "[U+2013]rf"' in ended.out


@pytest.mark.parametrize("blank", [" ", "\u00a0", "-"], ids=ascii)
def test_no_text_of_a_request_passes_for_a_line_of_ours(
    cortex: Cortex, askers: Askers, blank: str
) -> None:
    forged = {
        "people": f"{blank * 64}  people        2 of 2 people agreed",
        "amount": f'{blank * 64}    "amount": 5',
        "two": f"{blank * 64}  people        all agreed" * 2,
    }
    texts = [blank * shift + each for each in forged.values() for shift in range(0, 16, 5)]
    text = " ".join(texts)[:490]
    request = askers.asked(
        arguments={"memo": text, "amount": 900.0},
        people=2,
        **dict.fromkeys(("effect", "policy", "said"), text),
    )
    askers.decide(request, by="li", reason=text)
    terminal = cortex.on_terminal("approvals", "show", str(request.id), columns=80)
    assert terminal.end() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text).replace("\r", "")
    rows = [line[at : at + 80] for line in plain.split("\n") for at in range(0, len(line), 80)]
    assert [row for row in rows if re.match(r"\s{0,5}people\s", row)] == [
        "  people        1 of 2 people agreed; 1 more person must"
    ]
    assert [row for row in rows if re.match(r"\s{0,6}\"amount", row)] == ['    "amount": 900.0']


def test_model_text_is_shown_behind_a_bar(cortex: Cortex, askers: Askers) -> None:
    said = "fine\n  people        2 of 2 people agreed\n" + "x\n" * 60
    page = cortex("approvals", "show", str(askers.asked(said=said).id)).out
    _, _, output = page.partition("do not decide by it\n")
    lines = output.partition("\n\n")[0].split("\n")
    assert all(line.startswith("    │ ") for line in lines)
    assert len(lines) == 41
    assert lines[-1] == "    │ … 23 more lines: --json has them"


def test_in_a_narrow_list_no_argument_is_cut_in_half(cortex: Cortex, askers: Askers) -> None:
    askers.asked(arguments={"customer": "c" * 500, "memo": "m" * 500, "amount": 1234567.0})
    terminal = cortex.on_terminal("approvals", "ls", columns=90)
    assert terminal.end() == 0
    assert re.search(r"refund\(amount=1234567\.0[^()]*\) ", terminal.text), terminal.text


def test_show_prints_the_outcome_of_a_request(cortex: Cortex, askers: Askers) -> None:
    edited, expired, void = askers.asked(), askers.asked(), askers.asked(expires_s=9000.0)
    askers.decide(edited, edited='{"amount":9,"customer":"cus_88"}', address="10.0.0.7")
    move_clock(askers.dsn, 3601)
    askers.call(jobs.cancel, askers.row(void).job_id, by="li", reason="")
    pages = {
        each.id: cortex("approvals", "show", str(each.id)).out for each in (edited, expired, void)
    }
    assert re.search(
        r"decision      approved by ana at 20\S+Z on cli from 10.0.0.7", pages[edited.id]
    )
    assert "edited by ana: as requested, and as edited" in pages[edited.id]
    assert "      - 12.4\n      + 9\n" in pages[edited.id]
    assert "expired at 20" in pages[expired.id]
    assert "⊘ expired" in pages[expired.id]
    assert "denied" not in pages[expired.id]
    assert "its job was CANCELLED" in pages[void.id]
    assert "on approve" not in "".join(pages.values())


# --- deciding


def test_approval_needs_yes_and_prints_its_consequence(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    refused = cortex("approvals", "approve", str(request.id), "--json")
    assert (refused.code, refused.error["hint"]) == (2, "add --yes")
    ended = cortex("approvals", "approve", str(request.id), "--yes", *ANA, "--reason", "fine")
    assert ended.code == 0, ended.err
    assert "approved: refund runs with exactly these arguments, once" in ended.out
    assert '"amount": 12.4' in ended.err, "the facts come first"
    shown = askers.row(request)
    assert (shown.status, shown.decided_by, shown.reason) == ("APPROVED", me("ana"), "fine")
    assert shown.channel == "cli"
    assert job_row(askers.dsn, shown.job_id)["task_state"] == "READY"


def test_second_decider_gets_the_first_decision(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    askers.decide(request, is_approved=False, by="li", reason="too much", channel="page")
    ended = cortex("approvals", "approve", str(request.id), "--yes", "--json")
    assert ended.code == 5
    assert re.search(r"already denied by li at 20\S+Z on page: too much$", ended.error["message"])
    assert askers.row(request).status == "DENIED"


def test_denial_needs_a_reason(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(on_deny="fail")
    assert cortex("approvals", "deny", str(request.id)).code == 2
    assert cortex("approvals", "deny", str(request.id), "--reason", "").code == 2
    ended = cortex("approvals", "deny", str(request.id), "--reason", "no", *LI, "--json")
    assert ended.document["approvals"][0]["outcome"] == "denied"
    row = job_row(askers.dsn, askers.row(request).job_id)
    assert (row["status"], row["error_message"]) == (
        "FAILED",
        f"refund was denied by {me('li')}: no",
    )


def test_late_decision_reports_that_nothing_ran(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    move_clock(askers.dsn, 3601)
    ended = cortex("approvals", "approve", str(request.id), "--yes", "--json")
    assert (ended.code, ended.error["code"]) == (7, "expired")
    assert "nothing was executed" in ended.error["message"]
    assert cortex("approvals", "approve", str(new_id()), "--yes").code == 3


def test_dangerous_approval_needs_the_end_of_its_id(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(risk="HIGH")
    name, last = str(request.id), request.id.hex[-4:]
    wrong = "0000" if last != "0000" else "1111"
    for options in (("--yes",), ("--confirm", wrong), ()):
        assert cortex("approvals", "approve", name, *options).code == 2
    assert askers.row(request).status == "PENDING"
    assert cortex("approvals", "approve", name, "--confirm", last).code == 0
    assert askers.row(request).status == "APPROVED"


@pytest.mark.parametrize("empty", ["", " "])
def test_empty_confirm_approves_nothing(cortex: Cortex, askers: Askers, empty: str) -> None:
    request = askers.asked(risk="LOW")
    refused = cortex("approvals", "approve", str(request.id), "--confirm", empty)
    assert (refused.code, "--confirm is empty" in refused.err) == (2, True)
    assert askers.row(request).status == "PENDING"


def test_critical_approval_needs_two_people(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by="ana")
    confirmed = (str(request.id), "--confirm", request.id.hex[-4:])
    shared = cortex("approvals", "approve", *confirmed, *LI, "--json")
    assert (shared.code, "CORTEX_TOKEN" in shared.error["hint"]) == (5, True)

    def approve(name: str, *more: str, role: str = "approver") -> Ended:
        made = cortex("tokens", "create", "--name", name, "--role", role)
        env = {"CORTEX_TOKEN": made.out.strip()}
        return cortex("approvals", "approve", *confirmed, *more, env=env)

    own = approve("ana", "--json")
    assert own.code == 5
    assert own.error["hint"].startswith("another person has to agree, with a token of their own")
    first = approve("li", *ANA)
    assert first.code == 0
    assert "1 of 2 agreed: another person must agree, too" in first.out
    assert "it waits for one other person to approve the same arguments" in first.err
    again = approve("li", *KIM)
    assert (again.code, "you have agreed" in again.err) == (5, True)
    assert approve("kim", role="viewer").code == 4
    assert approve("kim").code == 0
    row = askers.row(request)
    assert (row.status, row.decided_by) == ("APPROVED", "kim")
    assert [vote.person for vote in row.votes] == ["li (ana)", "kim"]
    assert all(str(vote.credential).startswith("token:") for vote in row.votes)
    wrong = cortex("approvals", "approve", *confirmed, env={"CORTEX_TOKEN": "cortex_x"})
    assert (wrong.code, "does not hold a valid token" in wrong.err) == (2, True)


def test_on_a_terminal_a_person_types_the_answer(cortex: Cortex, askers: Askers) -> None:
    med, high = askers.asked(), askers.asked(risk="HIGH")
    for answer, code, status in (("n", 1, "PENDING"), ("y", 0, "APPROVED")):
        terminal = cortex.on_terminal("approvals", "approve", str(med.id))
        terminal.read_until(lambda text: "[y/N]" in text, what="the question")
        assert '"amount": 12.4' in terminal.text
        terminal.type(f"{answer}\n")
        assert (terminal.end(), askers.row(med).status) == (code, status)
    last = high.id.hex[-4:]
    for answer, code, status in (("y", 1, "PENDING"), (last, 0, "APPROVED")):
        terminal = cortex.on_terminal("approvals", "approve", str(high.id))
        terminal.read_until(lambda text: f"type {last} to approve it" in text, what="the question")
        terminal.type(f"{answer}\n")
        assert (terminal.end(), askers.row(high).status) == (code, status)


def test_change_during_the_question_prevents_the_decision(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(people=2)
    terminal = cortex.on_terminal("approvals", "approve", str(request.id))
    terminal.read_until(lambda text: "[y/N]" in text, what="the question")
    askers.decide(request, by="li", edited='{"amount":99,"customer":"cus_88"}')
    terminal.type("y\n")
    assert terminal.end() == 5
    assert "have changed since they were shown" in terminal.text
    assert askers.row(request).status == "PENDING"


# --- editing


def test_edited_arguments_are_checked_shown_and_run(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    for wrong, output in (
        ('{"customer": "cus_88", "amount": "9"}', "amount must be a finite number"),
        ('{"customer": "cus_88"}', "amount is missing"),
        ("{", "not JSON"),
    ):
        ended = cortex(
            "approvals", "approve", str(request.id), "--edit", "-", "--yes", "--json", stdin=wrong
        )
        assert ended.code == 2
        assert output in ended.error["message"]
    file = cortex.folder / "edited.json"
    file.write_text('{"amount": 9.0, "customer": "cus_88"}')
    ended = cortex("approvals", "approve", str(request.id), "--edit", str(file), "--yes", *ANA)
    assert ended.code == 0, ended.err
    assert "      - 12.4\n      + 9.0\n" in ended.err
    shown = askers.row(request)
    assert (shown.arguments_text, shown.edited_by) == (
        '{"amount":9.0,"customer":"cus_88"}',
        me("ana"),
    )


def test_an_edit_that_crosses_a_rules_threshold_is_refused(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked_below(500)
    more = ("--yes", "--json", *ANA)
    edited = '{"amount": 500, "customer": "cus_88"}'
    output = cortex("approvals", "approve", str(request.id), "--edit", "-", *more, stdin=edited)
    assert (output.code, output.error["code"]) == (1, "rejected")
    assert (
        "the edit makes refund CRITICAL, for which 2 people must be asked"
        in output.error["message"]
    )
    assert (askers.row(request).status, askers.row(request).edited_by) == ("PENDING", None)


def test_arguments_are_edited_in_an_editor(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    script = cortex.folder / "editor"
    script.write_text("#!/bin/sh\nsed -i s/12.4/8/ $1\n")
    script.chmod(0o755)
    terminal = cortex.on_terminal(
        "approvals", "approve", str(request.id), "--edit-in-editor", env={"EDITOR": str(script)}
    )
    terminal.read_until(lambda text: "as edited [y/N]" in text, what="the question")
    assert 'approve refund(amount=8, customer="cus_88")' in terminal.text
    assert "+ 8" in terminal.text
    terminal.type("y\n")
    assert terminal.end() == 0
    assert askers.row(request).arguments == {"amount": 8, "customer": "cus_88"}


def test_broken_editor_decides_nothing(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    edit = ("approvals", "approve", str(request.id), "--edit-in-editor")
    terminal = cortex.on_terminal(*edit, env={"EDITOR": "false"})
    assert terminal.end() == 2
    assert "the editor failed: false" in terminal.text
    ended = cortex(*edit, "--yes")
    assert (ended.code, "cannot edit without a terminal" in ended.err) == (2, True), ended.err
    assert askers.row(request).status == "PENDING"


@pytest.mark.parametrize(
    "does, output",
    [
        ('rm "$1"', "cannot read the edited file: No such file or directory"),
        ("printf '\\377' > \"$1\"", "edited arguments are not UTF-8"),
        ("kill -9 $$", "the editor failed: "),
    ],
)
def test_editor_without_a_result_is_a_usage_error(
    cortex: Cortex, askers: Askers, does: str, output: str
) -> None:
    request = askers.asked()
    script = cortex.folder / "editor"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    terminal = cortex.on_terminal(
        "approvals", "approve", str(request.id), "--edit-in-editor", env={"EDITOR": str(script)}
    )
    assert terminal.end() == 2
    assert output in terminal.text
    assert askers.row(request).status == "PENDING"


def test_unchanged_edit_approves_the_original_arguments(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    terminal = cortex.on_terminal(
        "approvals", "approve", str(request.id), "--edit-in-editor", env={"EDITOR": "true"}
    )
    terminal.read_until(lambda text: "[y/N]" in text, what="the question")
    assert "edit" not in terminal.text
    terminal.type("y\n")
    assert terminal.end() == 0
    assert askers.row(request).edited_by is None


def test_request_without_a_schema_cannot_be_edited(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(schema=None)
    ended = cortex(
        "approvals", "approve", str(request.id), "--edit", "-", "--yes", "--json", stdin="{}"
    )
    assert ended.code != 0
    assert "cannot be edited" in ended.error["message"]
    assert askers.row(request).status == "PENDING"


# --- several at once


def test_several_of_one_shape_are_decided_together(cortex: Cortex, askers: Askers) -> None:
    requests = [askers.asked(arguments={"customer": f"c{n}", "amount": 1}) for n in range(3)]
    names = [str(each.id) for each in requests]
    ended = cortex("approvals", "approve", *names, "--yes", *ANA)
    assert ended.code == 0, ended.err
    assert "3 times refund" in ended.err
    assert '"amount": 1\n' in ended.err, "what they share, once"
    for text in ('"c0"', '"c1"', '"c2"'):
        assert text in ended.err
    assert {askers.row(each).status for each in requests} == {"APPROVED"}


def test_several_requests_are_decided_together_or_not_at_all(
    cortex: Cortex, askers: Askers
) -> None:
    requests = [askers.asked() for _ in range(3)]
    names = [str(each.id) for each in requests]
    other = askers.asked(tool="mail")
    high = askers.asked(risk="HIGH")
    for odd in (other, high):
        assert cortex("approvals", "approve", *names, str(odd.id), "--yes").code == 2
    askers.decide(requests[2], is_approved=False, by="li", reason="no")
    ended = cortex("approvals", "deny", *names, "--reason", "all of it", "--json")
    assert ended.code == 5
    assert "already denied by li" in ended.error["message"]
    assert [askers.row(each).status for each in requests] == ["PENDING", "PENDING", "DENIED"]


# --- again, links, watching


def test_decision_under_a_key_is_replayed(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked()
    command = ("approvals", "approve", str(request.id), "--yes", *ANA, "--json")
    key = ("--idempotency-key", "once")
    first, again = cortex(*command, *key), cortex(*command, *key)
    assert (first.code, again.code) == (0, 0), again.err
    assert first.document["approvals"][0]["outcome"] == "approved"
    assert again.document["approvals"] == first.document["approvals"]
    assert again.document["replayed"] is True
    assert cortex(*command).code == 5
    votes = sql(askers.dsn, "SELECT FROM cortex.approval_vote")
    assert len(votes) == 1


def test_link_is_printed_once_and_stored_only_as_a_digest(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(risk="HIGH")
    base = ("--base-url", "https://cortex.example.org/")
    ended = cortex("approvals", "link", str(request.id), *base, *ANA, "--reason", "for bo")
    assert ended.code == 0
    found = re.fullmatch(
        rf"https://cortex\.example\.org/approvals/{request.id}\?t=([\w-]{{43}})\n", ended.out
    )
    assert found, ended.out
    assert "deciding needs a sign-in" in ended.err
    row = sql(askers.dsn, "SELECT * FROM cortex.approval")[0]
    assert found[1] not in str(dict(row))
    assert row["token_by"] == me("ana")
    dump = "SELECT data::text FROM cortex.fact WHERE source = $1"
    facts = sql(askers.dsn, dump, f"approval:{request.id}")
    assert json.loads(facts[0]["data"]) == {"by": me("ana"), "reason": "for bo"}
    assert found[1] not in cortex("approvals", "show", str(request.id), "--json").out
    askers.decide(request)
    assert cortex("approvals", "link", str(request.id), *base).code == 5
    assert cortex("approvals", "link", str(request.id)).code == 2
    for wrong in ("ftp://x", "https://x/?t=1", "https://", "x"):
        assert cortex("approvals", "link", str(request.id), "--base-url", wrong).code == 2


def test_watch_prints_requests_and_decisions(cortex: Cortex, askers: Askers) -> None:
    earlier = askers.asked()
    with cortex.start("approvals", "watch", "--json") as process:
        assert process.stdout is not None

        def next_event() -> tuple[str, str, str | None]:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            return event["event"], event["id"], event["person"]

        assert next_event() == ("asked", str(earlier.id), None)
        asked = askers.asked(risk="CRITICAL")
        assert next_event() == ("asked", str(asked.id), None)
        askers.decide(asked, by="li")
        assert next_event() == ("agreed", str(asked.id), "li")
        askers.decide(asked, by="kim")
        assert next_event() == ("approved", str(asked.id), "kim")
        askers.decide(earlier, is_approved=False, by="jo", reason="no")
        assert next_event() == ("denied", str(earlier.id), "jo")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130


def test_watch_on_a_terminal_shows_pending_requests(cortex: Cortex, askers: Askers) -> None:
    request = askers.asked(arguments={"customer": "\x1b[31mred", "amount": 1})
    terminal = cortex.on_terminal("approvals", "watch", columns=140)
    terminal.read_until(lambda text: "◆ 1 waits, first expires in 59m" in text, what="the inbox")
    askers.decide(request, by="li")
    terminal.read_until(lambda text: "· by li" in text, what="the decision")
    terminal.read_until(lambda text: "nothing waits" in text, what="an empty inbox")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "\x1b[31mred" not in terminal.text


def test_a_reminder_of_a_request_that_does_not_exist_is_not_submitted(
    cortex: Cortex, askers: Askers
) -> None:
    submit = ("jobs", "submit", "approval_notify", "--arg")
    for name in ("7f3c", "00000000-0000-7000-8000-00000000beef", "7f"):
        ended = cortex(*submit, f"approval={name}")
        assert (ended.code, ended.out) == (3, ""), ended
        assert "approval" in ended.err
    asked = askers.asked()
    assert cortex(*submit, f"approval={str(asked.id)[-6:]}").code == 0
    rows = sql(askers.dsn, "SELECT type FROM cortex.job_record WHERE type = 'approval_notify'")
    assert len(rows) == 1
