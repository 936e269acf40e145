"""`cortex dead`: what failed is found, explained, retried and given up, one by one and in bulk."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.pods import Pods
from tests.support.records.dead_letters import fail, letter, set_breaker
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    job_row,
    new_id,
    steps,
    submit,
    until_status,
)
from tests.support.servers.postgres import sql

WHY = ("--reason", "mended", "--as", "ana", "--yes")


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on the same database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()


# --- ls


def test_letters_are_listed_by_their_error(cortex: Cortex, database: str) -> None:
    gone = fail(database, 3, error_message="page 1 is gone", error_class="PERMANENT")
    (stalled,) = fail(database, steps=2, error_source="llm:x", error_class="TRANSIENT_APP")
    set_breaker(database, "llm:x", "OPEN")
    first, second = cortex("dead", "ls", "--json").document["errors"]
    assert (first["count"], first["job_id"]) == (1, str(stalled))
    assert first["on_retry"] == (
        "continues after step 2 · step 2, then waits: the breaker of llm:x is OPEN"
    )
    assert (second["count"], second["error_message"]) == (3, "page 1 is gone")
    assert second["on_retry"].startswith("restarts; will fail again unless")
    assert second["fingerprint"] == letter(database, gone[0])["fingerprint"]
    terminal = cortex.on_terminal("dead", "ls", columns=160)
    assert terminal.end() == 0
    assert "page 1 is gone" in terminal.text


def test_letters_are_listed_one_by_one_with_filters_and_pages(
    cortex: Cortex, database: str
) -> None:
    old, middle, new = (fail(database)[0] for _ in range(3))
    (other,) = fail(database, error_code="forbidden", error_class="PERMANENT")

    def listed(*filters: str) -> list[str]:
        rows = cortex("dead", "ls", "--each", "--json", *filters).document["letters"]
        return [row["job_id"] for row in rows]

    assert listed() == [str(each) for each in (other, new, middle, old)]
    assert listed("--limit", "2", "--before", str(new)[-6:]) == [str(middle), str(old)]
    assert listed("--code", "forbidden") == listed("--class", "permanent") == [str(other)]
    assert listed("class:permanent") == listed("code:forb*", "ended<1h") == [str(other)]
    assert listed("letter:retried") == listed("--since", "0s") == []
    listed_jobs = cortex("jobs", "ls", "letter:unresolved", "code:job_failed", "--json").document
    assert [row["id"] for row in listed_jobs["jobs"]] == [str(each) for each in (new, middle, old)]
    assert listed("--state", "retried") == []
    assert cortex("dead", "discard", str(old), *WHY).code == 0
    assert listed("--state", "discarded") == [str(old)]
    assert listed("--state", "all")[-1] == str(old)
    assert cortex("dead", "ls", "--agent", "nobody").code == 3
    for wrong in (("--since", "soon"), ("--fingerprint", "xyz"), ("--before", str(new))):
        assert cortex("dead", "ls", *wrong).code == 2


def test_last_page_of_letters_is_marked(cortex: Cortex, database: str) -> None:
    old, middle, new = (fail(database)[0] for _ in range(3))
    pages = ((new, "1", f"older ones: --before …{str(middle)[-6:]}"), (new, "2", "no older ones"))
    for before, limit, output in pages:
        asked = ("--each", "--limit", limit, "--before", str(before))
        terminal = cortex.on_terminal("dead", "ls", *asked)
        assert terminal.end() == 0
        assert output in terminal.text
    beyond = cortex("dead", "ls", "--each", "--before", str(old))
    assert (beyond.code, beyond.out, beyond.err.strip()) == (0, "", "no older ones")


def test_unknown_filter_value_gets_a_suggestion(cortex: Cortex, database: str, life: Life) -> None:
    fail(database, submitted={"tenant": "acme"})
    for verb in (("ls",), ("ls", "--each"), ("retry", "--dry-run"), ("discard", *WHY)):
        for asked, output in (
            (("--code", "job_faild"), "code 'job_faild': did you mean 'job_failed'?"),
            (("--type", "zzz"), "type 'zzz'; there are work"),
            (("--tenant", "acne"), "tenant 'acne': did you mean 'acme'?"),
        ):
            ended = cortex("dead", *verb, *asked)
            assert (ended.code, ended.out) == (0, "")
            assert f"no dead letter has {output}" in ended.err
        assert cortex("dead", *verb, "--agent", "nobody").code == 3
    for empty in ("--type", "--code", "--tenant", "--agent"):
        ended = cortex("dead", "ls", empty, "")
        assert (ended.code, "it is empty" in ended.err) == (2, True)
    assert (
        "no dead letter matches"
        in cortex("dead", "ls", "--code", "job_failed", "--since", "0s").err
    )
    ended = cortex("dead", "ls", "--each", "--before", str(life.job()))
    assert (ended.code, "only failed jobs" in ended.err) == (3, True)


# --- show


def test_a_letter_is_a_short_post_mortem(cortex: Cortex, life: Life) -> None:
    pod = life.pod("one")
    job_id = life.job(payload='{"urls": ["a"]}')
    claim = life.claim(pod)
    life.step(pod, claim, 1, "plan", is_paid=True)
    life.release(pod, claim, "failed", "no answer")
    life.sql("UPDATE cortex_worker.task SET state = 'READY'")
    life.finish(pod, life.claim(pod), error="no page \x1b[31m17")
    fact = "INSERT INTO cortex.fact (type, subtype, job_id, data) VALUES ('error', 'x', $1, $2)"
    life.sql(fact, job_id, '{"stack": "Traceback:\\n  File \\"x.py\\""}')
    shown = cortex("dead", "show", str(job_id)[-6:]).out
    for output in (
        "✗ open",
        "no page ⟦",
        "in attempt 2 on one",
        "last step  1 · plan",
        "spent      $0.0123",
        'payload    {"urls":["a"]}',
        "on retry   continues after step 1 · plan",
        "attempt 1: failed · no answer",
        '  File "x.py"',
    ):
        assert output in shown, output
    assert "\x1b" not in shown
    document = cortex("dead", "show", str(job_id), "--json").document
    assert document["letter"]["step"] == "1 plan"
    assert document["letter"]["on_retry"] == "continues after step 1 · plan"
    assert [each["outcome"] for each in document["attempts"]] == ["failed"]


def test_raw_response_of_a_letter_is_shown(cortex: Cortex, database: str) -> None:
    (job_id,) = fail(database, error_class="INVALID_OUTPUT", error_code="invalid_output")
    raw = "I can't \x1b[2J\n" + "x" * 5000
    fact = "INSERT INTO cortex.fact (type, subtype, job_id, data) VALUES ('error', 'x', $1, $2)"
    sql(database, fact, job_id, json.dumps({"raw": "of the first attempt"}))
    sql(database, fact, job_id, json.dumps({"raw": raw}))
    shown = cortex("dead", "show", str(job_id)).out
    assert "  raw response\n    I can't ⟦U+001B⟧[2J\n    xxx" in shown
    assert "x" * 2001 not in shown
    assert f"… {len(raw) - 2000:,} more characters: --json has them all" in shown
    assert cortex("dead", "show", str(job_id), "--json").document["letter"]["raw"] == raw


def test_one_letter_has_no_columns(cortex: Cortex, database: str) -> None:
    (job_id,) = fail(database)
    ended = cortex("dead", "show", str(job_id), "--columns", "type")
    assert (ended.code, ended.out) == (2, "")
    assert "one dead letter has no columns" in ended.err


def test_settlement_without_a_reason_shows_none(cortex: Cortex, database: str) -> None:
    (job_id,) = fail(database)
    assert cortex("jobs", "resume", str(job_id), "--as", "ana").code == 0
    (line,) = [
        line for line in cortex("dead", "show", str(job_id)).out.splitlines() if "settled" in line
    ]
    assert re.search(rf"by {re.escape(me('ana'))} \S+Z · [-0-9a-f]{{36}} is PENDING$", line), line


def test_only_failed_jobs_have_a_letter(cortex: Cortex, life: Life) -> None:
    ended = cortex("dead", "show", str(life.job()))
    assert ended.code == 3
    assert "is PENDING: only failed jobs are dead letters" in ended.err


# --- retry and discard


def test_a_letter_is_retried_once(cortex: Cortex, database: str) -> None:
    (job_id,) = fail(database, steps=2)
    done = cortex("dead", "retry", str(job_id), *WHY, "--json")
    assert done.code == 0
    (row,) = done.document["letters"]
    assert (row["job_id"], row["state"], row["error"]) == (str(job_id), "RETRIED", None)
    heir = UUID(row["retried_as"])
    assert job_row(database, heir)["origin_id"] == job_id
    assert len(steps(database, heir)) == 2
    again = cortex("dead", "retry", str(job_id), *WHY)
    assert again.code == 5
    assert f"was retried by {me('ana')} at" in again.err
    shown = cortex("dead", "show", str(job_id)).out
    assert "was retried as" in shown
    assert f"mended · {heir} is PENDING" in shown


def test_pod_continues_a_retried_job_after_its_last_step(
    cortex: Cortex, database: str, pods: Pods, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job_id = submit(database, "gated", {"gate": str(gate)}, timeout_s=1)
    pods.start()
    until_status(database, job_id, "FAILED")
    gate.touch()
    (row,) = cortex("dead", "retry", str(job_id), *WHY, "--json").document["letters"]
    heir = until_status(database, UUID(row["retried_as"]), "COMPLETED")
    assert steps(database, heir["id"]) == [(1, 0, "step", "begun")]
    assert job_row(database, job_id)["status"] == "FAILED"
    assert_one_truth(database)


def test_dead_retry_needs_confirmation_reason_and_selection(cortex: Cortex, database: str) -> None:
    (job_id,) = fail(database)
    name = str(job_id)
    for wrong, output in (
        ((name, "--reason", "x"), "add --yes"),
        ((name, "--yes"), "give the reason"),
        (("--reason", "x", "--yes"), "no dead letters given"),
        ((name, "--code", "x", "--reason", "x", "--yes"), "not both"),
        ((name, "--reason", "x", "--yes", "--rate", "0"), "rate"),
        ((name, "--reason", "x", "--yes", "--rate", "nan"), "nan is not from 0.001 to 10,000"),
        ((name, "--reason", "x", "--yes", "--rate", "inf"), "rate"),
        ((name, "--reason", "x", "--yes", "--agent-version", "0"), "agent-version"),
        (
            (name, "--reason", "x", "--yes", "--agent-version", "lates"),
            "'lates' is not a version: give its number, or latest",
        ),
    ):
        ended = cortex("dead", "retry", *wrong)
        assert (ended.code, output in ended.err) == (2, True), ended.err
    assert cortex("dead", "retry", str(new_id()), *WHY).code == 3
    for answer, code in (("n\n", 1), ("y\n", 0)):
        assert letter(database, job_id)["state"] == "OPEN"
        asking = cortex.on_terminal("dead", "retry", name, "--reason", "x")
        asking.read_until(lambda text: "[y/N]" in text, what="the question")
        assert "it broke" in asking.text
        asking.type(answer)
        assert asking.end() == code, asking.text
    assert letter(database, job_id)["state"] == "RETRIED"


def test_unknown_agent_version_is_refused(cortex: Cortex, life: Life) -> None:
    life.agent()
    (job_id,) = fail(life.dsn, submitted={"agent": "researcher"})
    ended = cortex("dead", "retry", str(job_id), *WHY, "--agent-version", "9")
    assert ended.code == 3
    assert "agent 'researcher' has no version 9" in ended.err
    assert cortex("dead", "retry", str(job_id), *WHY, "--agent-version", "latest").code == 0


def test_retry_under_a_key_is_made_once_and_replayed(cortex: Cortex, database: str) -> None:
    ids = [str(each) for each in fail(database, 3)]
    ask = ("dead", "retry", *ids, *WHY, "--idempotency-key", "k1", "--json")
    first = cortex(*ask).document["letters"]
    second = cortex(*ask).document
    assert second["replayed"] is True
    assert [row["retried_as"] for row in second["letters"]] == [r["retried_as"] for r in first]
    assert job_count(database, "origin_id IS NOT NULL") == 3


def test_retries_of_named_letters_become_due_at_the_rate(cortex: Cortex, database: str) -> None:
    ids = [str(each) for each in fail(database, 40)]
    done = cortex("dead", "retry", *ids, "--rate", "10", *WHY)
    assert done.code == 0
    assert "retried 40 letters" in done.err
    due = "origin_id IS NOT NULL AND run_at > created_at + interval '{} s'"
    assert [job_count(database, due.format(after)) for after in (0, 1.5, 2.5, 3.5)] == [
        *(30, 20, 10, 0)
    ]


# --- another payload


def test_an_archived_letter_is_retried_with_an_edited_payload(
    cortex: Cortex, database: str, tmp_path: Path
) -> None:
    submitted = {"type": "llm_generate", "payload": '{"model": "m", "promt": "hi"}'}
    why = "payload of 'x' has promt"
    (job_id,) = fail(database, submitted=submitted, error_code="invalid_value", error_message=why)
    sql(database, "UPDATE cortex.dead_letter SET state = 'ARCHIVED', triaged_at = cortex.now()")
    listed = cortex("dead", "ls", "--each", "-o", "json").document["letters"]
    assert [(each["job_id"], each["state"]) for each in listed] == [(str(job_id), "ARCHIVED")]
    file = tmp_path / "payload.json"
    ask = ("dead", "retry", str(job_id), *WHY, "--payload", str(file))
    for text, code, error in (
        ("{", 2, "payload is not JSON"),
        (submitted["payload"], 2, "payload"),  # this handler does not take it
        ('{"model": "m", "prompt": 3}', 2, "prompt"),
    ):
        file.write_text(text)
        refused = cortex(*ask)
        assert (refused.code, error in refused.err) == (code, True), refused.err
    tried = cortex("dead", "retry", str(job_id), *WHY, "--dry-run")
    assert "'promt': the new job waits for code that takes it; or give it another" in tried.err
    file.write_text('{"model": "m", "prompt": "hi"}')
    filtered = cortex("dead", "retry", "--type", "llm_generate", *WHY, "--payload", str(file))
    assert (filtered.code, "one named job" in filtered.err) == (2, True)
    done = cortex(*ask)
    assert done.code == 0
    assert "effects that it has applied are not repeated" in done.err
    assert 'promt\n      - "hi"\n    prompt\n      + "hi"' in done.err
    shown = cortex("dead", "show", str(job_id)).out
    assert 'with another payload: promt from "hi" to nothing, prompt from nothing to "hi"' in shown
    heir = letter(database, job_id)["retried_as"]
    assert json.loads(job_row(database, heir)["payload"]) == {"model": "m", "prompt": "hi"}
