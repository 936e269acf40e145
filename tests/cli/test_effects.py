"""`cortex effects`: what people see of effects, and what they say of unknown ones."""

import getpass
import json
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.canonical import canonical, digest
from cortex.domain.job import Claim
from cortex.store import facts, jobs
from tests.support.command_line import Cortex
from tests.support.life import CHANCE, Life
from tests.support.people import me
from tests.support.records.approvals import Askers, a_request
from tests.support.records.effects import Doers

WHY = ("--reason", "looked at the bank", "--yes")
HOSTILE = {"to": "\x1b[31mred\u202e", "amount": 5}


@pytest.fixture
def doers(life: Life) -> Doers:
    return Doers(life.call, life.dsn)


def begin(doers: Doers, claim: Claim, arguments: dict[str, Any] = HOSTILE, **fields: Any) -> str:
    return str(doers.begin(claim, arguments, id=CHANCE.new_id(), **fields).id)


def unknown(doers: Doers, **fields: Any) -> tuple[Claim, str]:
    """A job that waits for the outcome of its effect, and that effect."""
    claim = doers.claimed()
    effect = begin(doers, claim, **fields)
    doers.doubt(claim, UUID(effect), why="no \x1b[31manswer")
    return claim, effect


def listed(cortex: Cortex, *filters: str) -> list[str]:
    return [row["id"] for row in cortex("effects", "ls", *filters, "--json").document["effects"]]


def test_filters_and_pages(cortex: Cortex, doers: Doers) -> None:
    first, second = doers.claimed_many(2)
    made = [begin(doers, first, key="1"), begin(doers, first, key="2", tool="mail")]
    made.append(begin(doers, second))
    _, open_ = unknown(doers)
    made.append(open_)
    assert listed(cortex) == made[::-1]
    assert listed(cortex, "--limit", "2") == [made[3], made[2]]
    assert listed(cortex, "--limit", "2", "--before", made[2][-6:]) == [made[1], made[0]]
    assert listed(cortex, "--status", "unknown") == [open_]
    assert listed(cortex, "--status", "Unknown,pending") == made[::-1]
    assert listed(cortex, "--tool", "mail") == [made[1]]
    assert listed(cortex, "--job", str(first.lease.job_id)[-6:]) == [made[1], made[0]]
    assert listed(cortex, "--status", "failed") == []
    assert listed(cortex, "--status", "applied,not-applied,given-up") == []
    ended = cortex("effects", "ls", "--status", "unkown")
    assert ended.code == 2
    assert "did you mean 'unknown'?" in ended.err


def test_empty_list_of_effects_prints_a_message(cortex: Cortex) -> None:
    empty = cortex("effects", "ls")
    assert (empty.code, empty.out) == (0, "")
    assert "no job has changed anything outside yet" in empty.err
    assert "no effect matches" in cortex("effects", "ls", "--tool", "x").err


def test_effects_ls_shows_status_and_way_out(cortex: Cortex, doers: Doers) -> None:
    _, effect = unknown(doers)
    terminal = cortex.on_terminal("effects", "ls", columns=160, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    line = terminal.text.splitlines()[1]
    assert line.startswith(f"…{effect[-6:]}  pay   ? unknown")
    assert "no ⟦U+001B⟧[31manswer; see cortex effects show" in line
    assert "\u202e" not in terminal.text


def test_unknown_effect_is_shown_with_the_consequences_of_each_resolution(
    cortex: Cortex, doers: Doers
) -> None:
    claim, effect = unknown(doers, can_reconcile=True)
    shown = cortex("effects", "show", f"…{effect[-6:]}")
    assert shown.code == 0
    assert f"effect …{effect[-6:]}  pay  ? unknown" in shown.out
    assert f"{claim.lease.job_id} (work) is WAITING_FOR_APPROVAL" in shown.out
    assert "no ⟦U+001B⟧[31manswer" in shown.out
    assert "    to: ⟦U+001B⟧[31mred⟦U+202E⟧" in shown.out
    assert "other side  can be asked" in shown.out
    assert f"cortex effects resolve …{effect[-6:]} not-applied --reason TEXT" in shown.out
    assert "the job goes on and calls again, under the same id" in shown.out
    assert "\x1b" not in shown.out

    document = cortex("effects", "show", effect, "--json").document["effect"]
    assert document["arguments"] == HOSTILE
    assert document["digest"] == digest(canonical(HOSTILE)).hex()
    assert (document["status"], document["calls_count"]) == ("UNKNOWN", 1)
    assert (document["job_id"], document["result"]) == (str(claim.lease.job_id), None)


def test_one_that_is_done_is_shown_with_its_result_and_its_approval(
    cortex: Cortex, doers: Doers
) -> None:
    askers = Askers(doers.call, doers.dsn, doers.pod_id)
    request = a_request({"amount": 5}, tool="pay", key="pay approval")
    job_id = askers.ask(request)
    askers.decide(request, reason="fine")
    claim = askers.claim(job_id)
    leave = doers.begin(claim, {"amount": 5}, approval_id=request.id)
    doers.complete(claim, leave.id, output='{"receipt": 7}')
    shown = cortex("effects", "show", str(leave.id))
    assert "✓ applied" in shown.out
    assert "    receipt: 7" in shown.out
    assert f"…{request.id.hex[-6:]} approved by ana: fine" in shown.out
    assert "effects resolve" not in shown.out
    document = cortex("effects", "show", str(leave.id), "--json").document["effect"]
    assert (document["result"], document["approval_id"]) == ({"receipt": 7}, str(request.id))


def test_resolution_resumes_the_job_and_is_recorded(cortex: Cortex, doers: Doers) -> None:
    claim, effect = unknown(doers)
    ended = cortex(
        *("effects", "resolve", effect[-6:], "applied", *WHY, "--as", "ana"),
        *("--result", '{"receipt": 7}', "--json"),
    )
    assert (ended.code, ended.err) == (0, "")
    (row,) = ended.document["effects"]
    assert (row["status"], row["job_goes_on"]) == ("COMPLETED", True)
    found = doers.intend(doers.claim(claim.lease.job_id), HOSTILE)
    assert (found and (found.verdict, found.result)) == ("done", '{"receipt":7}')
    shown = cortex("effects", "show", effect).out
    assert f"applied by {me('ana')} " in shown
    assert ": looked at the bank" in shown
    (data,) = doers.call(facts.page, types=["lifecycle"], since_s=60, source=f"effect:{effect}")
    fact = data.data
    assert (fact["by"], fact["reason"], fact["resolution"]) == (
        me("ana"),
        "looked at the bank",
        "applied",
    )


def test_result_is_read_from_a_file_or_stdin(cortex: Cortex, doers: Doers) -> None:
    (cortex.folder / "result.json").write_text('{"receipt": 8}')
    for source, stdin in (("result.json", ""), ("-", '{"receipt": 8}')):
        claim, effect = unknown(doers)
        given = ("effects", "resolve", effect, "applied", *WHY, "--result-file", source)
        ended = cortex(*given, stdin=stdin)
        assert ended.code == 0, ended.err
        assert "continues now" in ended.out
        found = doers.intend(doers.claim(claim.lease.job_id), HOSTILE)
        assert (found and found.result) == '{"receipt":8}'


@pytest.mark.parametrize(
    "arguments, report",
    [
        (("maybe",), "'maybe' is not one of 'applied', 'not-applied', 'give-up'"),
        (("applied", "--result", "{oops"), "result is not JSON"),
        (("applied", "--result", '{"a": 1, "a": 2}'), "result has the key 'a' twice"),
        (("not-applied", "--result", "1"), "only for an effect that was applied"),
        (("applied", "--result", "1", "--result-file", "x"), "give one result"),
        (("applied", "--result-file", "nowhere"), "cannot read the result from nowhere"),
    ],
)
def test_invalid_resolution_changes_nothing(
    cortex: Cortex, doers: Doers, arguments: tuple[str, ...], report: str
) -> None:
    _, effect = unknown(doers)
    ended = cortex("effects", "resolve", effect, *arguments, *WHY)
    assert ended.code == 2
    assert report in ended.err
    assert listed(cortex, "--status", "unknown") == [effect]


def test_resolving_needs_confirmation_and_a_reason(cortex: Cortex, doers: Doers) -> None:
    _, effect = unknown(doers)
    given = ("effects", "resolve", effect, "not-applied")
    assert "--reason" in cortex(*given, "--yes").err
    assert "hint: add --yes" in cortex(*given, *WHY[:2]).err
    asking = cortex.on_terminal(*given, *WHY[:2], columns=200)
    text = asking.read_until(lambda text: "[y/N]" in text, what="the question")
    assert "was not applied: the job goes on and calls again, under the same id" in text
    asking.type("n\n")
    assert asking.end() == 1
    assert listed(cortex, "--status", "unknown") == [effect]


def test_second_resolution_is_refused(cortex: Cortex, doers: Doers) -> None:
    _, effect = unknown(doers)
    key = ("--idempotency-key", "k-1", "--json")
    first = cortex("effects", "resolve", effect, "give-up", *WHY, *key)
    assert cortex("effects", "resolve", effect, "give-up", *WHY, *key).document == (
        first.document | {"replayed": True}
    )
    late = cortex("effects", "resolve", effect, "applied", *WHY, "--json")
    assert late.code == 5
    assert f"{getpass.getuser()} has said that already: give-up" in late.error["message"]
    assert cortex("effects", "resolve", "ffffff", "applied", *WHY).code == 3


def test_resolution_for_an_ended_job_explains_its_consequence(cortex: Cortex, doers: Doers) -> None:
    claim, effect = unknown(doers)
    doers.call(jobs.cancel, claim.lease.job_id, by="bo", reason="enough")
    assert "a job that goes on from this one calls again" in cortex("effects", "show", effect).out
    ended = cortex("effects", "resolve", effect, "not-applied", *WHY)
    assert ended.code == 0
    assert "is CANCELLED" in ended.out


def test_job_shows_its_unknown_effect_and_its_wait(cortex: Cortex, doers: Doers) -> None:
    claim, effect = unknown(doers)
    job = str(claim.lease.job_id)
    waits = "waits for a person to say whether pay was applied: no ⟦U+001B⟧[31manswer"
    why = cortex("why", job)
    assert f"it {waits}" in why.out
    assert f"  cortex effects show {effect}" in why.out
    assert f"cortex effects resolve {effect} applied|not-applied|give-up --reason TEXT" in why.out
    assert waits in cortex("jobs", "ls").out
    shown = cortex("jobs", "show", job)
    assert f"{waits}; see cortex effects show …{effect[-6:]}" in shown.out
    assert f"? unknown      …{effect[-6:]} pay · no ⟦U+001B⟧[31manswer" in shown.out
    assert f"? effect  waits for the outcome of effect …{effect[-6:]}" in shown.out
    assert "? attempt 1: suspended" in shown.out
    assert "✗" not in shown.out
    (row,) = cortex("jobs", "show", job, "--json").document["effects"]
    assert (row["id"], row["arguments"], row["status"]) == (effect, HOSTILE, "UNKNOWN")
    retried = cortex("jobs", "retry", job, "--json")
    assert retried.code == 5
    assert retried.error["hint"] == f"cortex effects show {effect}"


def test_job_shows_its_approvals(cortex: Cortex, doers: Doers) -> None:
    askers = Askers(doers.call, doers.dsn, doers.pod_id)
    request = a_request(risk="CRITICAL", key="refund approval")
    job = str(askers.ask(request))
    short = f"…{request.id.hex[-6:]}"
    words = "waits for 2 people (0 agreed so far) to approve refund (CRITICAL)"
    why = cortex("why", job).out
    assert f"  cortex approvals show {request.id}" in why
    assert " · expires in 59m " in why, "nobody is expected to decide just then"
    remark = f"{words}, expires in 59m"
    terminal = cortex.on_terminal("jobs", "show", job, columns=160, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert remark in terminal.text
    assert f"waits for approval {short}, expires " in terminal.text
    assert f"{short} refund CRITICAL · waits, 0 of 2 agreed, expires " in terminal.text
    assert "waits for people" in terminal.text
    watching = cortex.on_terminal("jobs", "watch", job, columns=160, env={"NO_COLOR": "1"})
    watching.read_until(lambda text: remark in text, what="the remark")
    assert f"◆ asks     waits for approval {short}, expires " in watching.text
    assert "◆ attempt  1" in watching.text
    watching.interrupt()
    watching.end()
    hint = cortex("jobs", "retry", job, "--json").error["hint"]
    assert hint == f"cortex approvals show {request.id}"

    askers.decide(request)
    askers.decide(request, by="bo", reason="checked")
    claim = askers.claim(UUID(job))
    decided = {"approval_id": str(request.id), "is_approved": True}
    doers.complete(claim, None, key=request.key, output=json.dumps(decided))
    report = cortex("jobs", "show", job)
    assert f"{short} refund CRITICAL · approved by bo: checked" in report.out
    (step,) = (line for line in report.out.splitlines() if "1 refund approval" in line)
    assert "░" in step
    assert step.endswith("ok by bo")


def test_numbers_of_any_length_are_listed(cortex: Cortex, doers: Doers) -> None:
    """Larger than what JSON writers take for a whole number."""
    effect = begin(doers, doers.claimed(), {"n": [10**30]})
    assert f"n: [{10**30}]" in cortex("effects", "show", effect).out
    assert f'{{"n":[{10**30}]}}' in cortex("effects", "ls").out
    (row,) = cortex("effects", "ls", "--json").document["effects"]
    assert row["arguments"] == {"n": [10**30]}
