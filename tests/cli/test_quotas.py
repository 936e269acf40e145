"""`cortex quotas`: setting quotas, and what people see about the jobs that wait."""

import getpass
from typing import Any

import pytest

from cortex.store import facts
from cortex.view.phrases import NOTHING
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.effects import Doers

WHY = ("--reason", "a test")
MAIL = ("send_mail", "--limit", "20", "--per", "hour")
PAY = ("pay", "--limit", "500", "--of", "amount", "--unit", "EUR", "--per", "day")


@pytest.fixture
def doers(life: Life) -> Doers:
    return Doers(life.call, life.dsn)


def listed(cortex: Cortex) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in cortex("quotas", "ls", "--json").document["quotas"]}


def waiting(doers: Doers, name: str) -> str:
    """A job that waits for a quota."""
    claim = doers.claimed()
    doers.suspend(claim, delay_s=1800.0, waiting_on=f"quota:{name}")
    return str(claim.lease.job_id)


def test_quotas_are_set_listed_and_removed(cortex: Cortex, doers: Doers) -> None:
    made = cortex("quotas", "set", *MAIL, *WHY, "--json")
    assert made.document["quotas"] == [
        {"name": "send_mail:calls:hour", "before": None, "after": 20.0}
    ]
    assert cortex("quotas", "set", *PAY, *WHY, "--as", "ana").code == 0
    doers.begin(doers.claimed(), {"amount": 480})
    waiting(doers, "pay:amount:day")
    rows = listed(cortex)
    assert list(rows) == ["pay:amount:day", "send_mail:calls:hour"]
    row = rows["pay:amount:day"]
    assert (row["limit"], row["used"], row["waiting_jobs"]) == (500.0, 480.0, 1)
    assert (row["unit"], row["argument"], row["changed_by"]) == ("EUR", "amount", me("ana"))
    terminal = cortex.on_terminal("quotas", "ls", columns=130, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    pay, mail = (" ".join(line.split()) for line in terminal.text.splitlines()[1:3])
    assert pay.startswith("pay:amount:day 500 EUR 480 1 in ")
    assert mail.startswith(f"send_mail:calls:hour 20 calls 0 {NOTHING} in ")
    assert mail.endswith(f"by {getpass.getuser()}: a test")

    gone = cortex("quotas", "rm", "pay:amount:day", *WHY, "--yes", "--json")
    assert gone.document["quotas"] == [{"name": "pay:amount:day", "before": 500.0, "after": None}]
    assert list(listed(cortex)) == ["send_mail:calls:hour"]
    again = cortex("quotas", "rm", "pay:amount:day", *WHY, "--yes", "--json")
    assert (again.code, again.error["hint"]) == (3, "list them: cortex quotas ls")
    output = doers.call(facts.page, types=["lifecycle"], since_s=60, source="quota:pay:amount:day")
    assert [fact.subtype for fact in output] == ["quota_removed", "quota_set"]


def test_empty_list_of_quotas_suggests_set(cortex: Cortex) -> None:
    empty = cortex("quotas", "ls")
    assert (empty.code, empty.out) == (0, "")
    assert "no quota is set: cortex quotas set TOOL" in empty.err


def test_pages(cortex: Cortex, life: Life) -> None:
    for tool in "abc":
        cortex("quotas", "set", tool, "--limit", "1", "--per", "day", *WHY)
    first = cortex("quotas", "ls", "--limit", "2", "-o", "name").out.split()
    assert first == ["a:calls:day", "b:calls:day"]
    rest = cortex("quotas", "ls", "--after", first[-1], "-o", "name").out.split()
    assert rest == ["c:calls:day"]


def test_quota_under_a_key_is_set_once(cortex: Cortex, doers: Doers) -> None:
    given = ("quotas", "set", *MAIL, *WHY, "--idempotency-key", "k", "--json")
    first, second = cortex(*given).document, cortex(*given).document
    assert second == first | {"replayed": True}
    assert len(doers.call(facts.page, types=["lifecycle"], since_s=60)) == 1


def test_removing_a_quota_asks_for_confirmation(cortex: Cortex, life: Life) -> None:
    cortex("quotas", "set", *MAIL, *WHY)
    ended = cortex("quotas", "rm", "send_mail:calls:hour", *WHY)
    assert (ended.code, "hint: add --yes" in ended.err) == (2, True)
    assert list(listed(cortex)) == ["send_mail:calls:hour"]


def test_tool_of_no_agent_gets_a_warning(cortex: Cortex, doers: Doers, life: Life) -> None:
    unknown = cortex("quotas", "set", *MAIL, *WHY)
    assert (unknown.code, "no agent has a tool send_mail" in unknown.err) == (0, True)
    life.agent()
    known = cortex("quotas", "set", "read_file", "--limit", "1", "--per", "day", *WHY)
    assert known.err == ""
    doers.begin(doers.claimed(), tool="send_mail")
    assert cortex("quotas", "set", *MAIL, *WHY).err == ""


@pytest.mark.parametrize(
    "arguments, output",
    [
        (("mail", "--per", "hour"), "--limit"),
        (("mail", "--limit", "5"), "--per"),
        (("mail", "--limit", "5", "--per", "week"), "'week' is not one of 'hour', 'day'"),
        (("mail", "--limit", "-5", "--per", "day"), "--limit '-5' is not a number"),
        (("pay", "--limit", "5", "--of", "x", "--unit", "E U", "--per", "day"), "--unit 'E U'"),
        (("mail", "--limit", "5", "--unit", "EUR", "--per", "day"), "not measured in EUR"),
        (("mail", "--limit", "1.5", "--per", "day"), "1.5 is not a whole number of calls"),
        (("a:b", "--limit", "5", "--per", "day"), "'a:b' is not the name of a tool"),
        (("a\u202eb", "--limit", "5", "--per", "day"), "contains invisible characters"),
        (("pay", "--limit", "5", "--of", "x..y", "--per", "day"), "'x..y' is not an argument"),
    ],
)
def test_wrong_quotas_are_refused(
    cortex: Cortex, life: Life, arguments: tuple[str, ...], output: str
) -> None:
    ended = cortex("quotas", "set", *arguments, *WHY)
    assert (ended.code, output in ended.err) == (2, True), ended.err
    assert listed(cortex) == {}


def test_a_reason_is_needed(cortex: Cortex) -> None:
    assert "--reason" in cortex("quotas", "set", *MAIL).err
    assert "--reason" in cortex("quotas", "rm", "x", "--yes").err


def test_waiting_job_names_its_quota_and_when_it_resets(cortex: Cortex, doers: Doers) -> None:
    cortex("quotas", "set", *PAY, *WHY)
    doers.begin(doers.claimed(), {"amount": 500})
    job = waiting(doers, "pay:amount:day")
    words = "waits for room in quota pay:amount:day: 500 of 500 EUR used"
    why = cortex("why", job)
    assert f"it {words} · for " in why.out
    assert " · expected in " in why.out
    assert "  cortex quotas set pay --limit N --of amount --per day --reason TEXT\n" in why.out
    assert cortex("why", job, "-o", "name").out == "quota\n"
    assert f"{words}, resets in " in cortex("jobs", "ls").out
    shown = cortex("jobs", "show", job)
    assert f"{words}, resets in " in shown.out
    assert "waits for quota pay:amount:day" in shown.out
    retried = cortex("jobs", "retry", job)
    assert retried.code == 0
    assert f"it {words}; cortex quotas set pay" in retried.err

    other = waiting(doers, "pay:amount:day")
    cortex("quotas", "rm", "pay:amount:day", *WHY, "--yes")
    assert words not in cortex("why", other).out
