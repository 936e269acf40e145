"""`cortex breakers`: what people see of circuit breakers, and what they decide."""

import getpass
import json
import re

import pytest

from cortex.domain.failure import Failure, FailureClass
from cortex.store import breakers
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import move_clock


def fail(life: Life, name: str, *, asked_s: float | None = None, message: str = "busy") -> None:
    failure = Failure(
        cls=FailureClass.TRANSIENT_APP, code="overloaded", message=message, retry_after_s=asked_s
    )
    life.call(breakers.failed, name, failure=failure, requests=1, probe=None)


def reasons(life: Life, name: str) -> list[tuple[str, str, str]]:
    rows = life.sql("SELECT subtype, data FROM cortex.fact WHERE source = $1 ORDER BY id", name)
    facts = [(row["subtype"], json.loads(row["data"])) for row in rows]
    return [(subtype, data["by"], data["reason"]) for subtype, data in facts if "by" in data]


def test_breakers_ls_shows_state_reason_and_time(cortex: Cortex, life: Life) -> None:
    fail(life, "http:well.example")
    for _ in range(4):
        fail(life, "llm:claude", asked_s=90.0, message="\x1b[31mbusy")
    fail(life, "llm:claude")
    fail(life, "tool:probed", asked_s=1.0)
    life.call(breakers.force_open, "http:mail.example.org", by="ana", reason="spam")
    move_clock(life.dsn, 10)
    life.call(breakers.take_probe, "tool:probed", pod_id=life.pod("pod-7"), lease_s=30.0)

    terminal = cortex.on_terminal("breakers", "ls", columns=120, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    lines = {line.split()[0]: " ".join(line.split()) for line in terminal.text.splitlines()}
    assert lines["breaker"] == "breaker state failures since probe jobs last hour why"
    assert "✗ open 5/3" in lines["llm:claude"]
    assert "1m 1" in lines["llm:claude"] or "1m 2" in lines["llm:claude"]
    assert "! needs attention: overloaded: ⟦U+001B⟧[31mbusy" not in lines["llm:claude"]
    assert "! needs attention: overloaded: busy" in lines["llm:claude"]
    assert "◆ half-open 1/3" in lines["tool:probed"]
    assert "by pod-7" in lines["tool:probed"]
    assert 'held open by ana "spam"' in lines["http:mail.example.org"]
    assert "● closed 1/5" in lines["http:well.example"]
    assert list(lines)[-1] == "http:well.example"

    assert "▁▁▇" in lines["llm:claude"]
    assert "▁▁▁" in lines["http:well.example"]

    rows = cortex("breakers", "ls", "--json").document["breakers"]
    found = {row["name"]: row for row in rows}
    assert 70 < found["llm:claude"]["probe_in_s"] < 81
    assert found["http:mail.example.org"]["probe_in_s"] is None
    assert found["http:mail.example.org"]["forced_by"] == "ana"
    assert found["llm:claude"]["waiting"] == 0
    assert [turn["after"] for turn in found["llm:claude"]["turns"]] == ["OPEN", "OPEN"]
    assert found["llm:claude"]["errors"] == [], "no job recorded one"
    assert "last_hour" not in found["llm:claude"]


def test_hostile_error_text_is_escaped(cortex: Cortex, life: Life) -> None:
    fail(life, "llm:claude", message="\x1b[2Jgone")
    terminal = cortex.on_terminal("breakers", "ls", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert "⟦U+001B⟧[2Jgone" in terminal.text
    assert "\x1b[2J" not in terminal.text


def test_empty_list_of_breakers_prints_a_message(cortex: Cortex) -> None:
    ended = cortex("breakers", "ls")
    assert (ended.code, ended.out) == (0, "")
    assert "no breaker is open; no recent failures" in ended.err


def test_person_opens_and_closes_a_breaker(cortex: Cortex, life: Life) -> None:
    opened = cortex(
        "breakers", "open", "llm:claude", "--reason", "bills", "--as", "ana", "--yes", "--json"
    )
    assert opened.code == 0
    (row,) = opened.document["breakers"]
    assert (row["state"], row["forced_by"], row["forced_reason"]) == ("OPEN", me("ana"), "bills")
    closed = cortex("breakers", "close", "llm:claude", "--reason", "paid", "--yes")
    assert closed.code == 0
    assert "CLOSED" in closed.out
    assert reasons(life, "llm:claude") == [
        ("breaker_forced_open", me("ana"), "bills"),
        ("breaker_forced_closed", getpass.getuser(), "paid"),
    ]


def test_a_person_opens_for_some_time(cortex: Cortex, life: Life) -> None:
    ask = ("breakers", "open", "llm:claude", "--reason", "deploy", "--as", "ana", "--yes")
    (row,) = cortex(*ask, "--for", "30m", "--json").document["breakers"]
    assert row["forced_by"] == me("ana")
    assert 1700 < row["probe_in_s"] <= 1800
    shown = cortex("breakers", "ls").out
    assert re.search(rf'held open by {re.escape(me("ana"))} until \d\d:\d\dZ "deploy"', shown), (
        shown
    )
    for wrong, output in (("soon", "is not a time such as"), ("60d", "1 second to 30 days")):
        ended = cortex(*ask, "--for", wrong)
        assert (ended.code, output in ended.err) == (2, True), ended.err
    move_clock(life.dsn, 1801)
    shown = cortex("breakers", "ls").out
    assert f"was held open by {me('ana')} until" in shown
    assert "the next call tries it" in shown


@pytest.mark.parametrize("verb", ["open", "close"])
def test_invalid_breaker_name_or_missing_reason_is_refused(cortex: Cortex, verb: str) -> None:
    ended = cortex("breakers", verb, "claude", "--reason", "r", "--yes")
    assert ended.code == 2
    assert "'claude' is not the name of a circuit breaker" in ended.err
    assert "llm:NAME, tool:NAME, mcp:NAME, http:NAME" in ended.err
    for reason in ([], ["--reason", ""]):
        ended = cortex("breakers", verb, "llm:claude", *reason, "--yes")
        assert ended.code == 2
        assert "--reason" in ended.err


def test_closing_an_unknown_one_names_the_known(cortex: Cortex, life: Life) -> None:
    fail(life, "llm:claude")
    ended = cortex("breakers", "close", "llm:clod", "--reason", "r", "--yes", "--json")
    assert ended.code == 3
    assert ended.error["code"] == "not_found"
    assert ended.error["hint"] == "there are: llm:claude"


def test_opening_a_breaker_asks_for_confirmation(cortex: Cortex, life: Life) -> None:
    ended = cortex("breakers", "open", "llm:claude", "--reason", "r")
    assert ended.code == 2
    assert "hint: add --yes" in ended.err
    for answer, code in (("n\n", 1), ("y\n", 0)):
        assert life.call(breakers.page) == []
        asking = cortex.on_terminal("breakers", "open", "llm:claude", "--reason", "r")
        asking.read_until(lambda text: "[y/N]" in text, what="the question")
        asking.type(answer)
        assert asking.end() == code, asking.text
    assert [row.state for row in life.call(breakers.page)] == ["OPEN"]


def test_the_name_to_type_is_whole_on_a_narrow_terminal(cortex: Cortex, life: Life) -> None:
    name = "llm:claude-sonnet-4-5-20250929-eu"
    for _ in range(3):
        fail(life, name, asked_s=90.0, message="overloaded, as it often is " * 5)
    terminal = cortex.on_terminal("breakers", "ls", columns=80, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert f"{name} " in terminal.text
    assert all(len(line) <= 80 for line in terminal.text.splitlines())


def test_unused_breaker_name_gets_a_warning(cortex: Cortex, life: Life) -> None:
    life.agent()  # its model is called claude, its tool read_file
    fail(life, "http:api.example.com")
    given = ("--reason", "r", "--yes")
    for typed, near in (
        ("llm:clade", "llm:claude"),
        ("tool:read_fil", "tool:read_file"),
        ("http:api.exmaple.com", "http:api.example.com"),
    ):
        warned = cortex("breakers", "open", typed, *given)
        assert warned.code == 0
        assert f"no known call or agent uses {typed}" in warned.err
        assert near in warned.err
        assert cortex("breakers", "open", near, *given).err == ""
        assert cortex("breakers", "close", typed, *given).err == ""


def test_names_that_cannot_be_seen_are_refused(cortex: Cortex, life: Life) -> None:
    for name in ("llm:a\nb", "llm:\x1b[31mred", "llm:a\u202eb"):
        ended = cortex("breakers", "open", name, "--reason", "r", "--yes")
        assert ended.code == 2
        assert "contains invisible characters" in ended.err
        assert "\x1b" not in ended.err
    assert life.call(breakers.page) == []
