import getpass
import re

import pytest

from cortex.domain.policy import POLICIES
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S, eventually
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import submit


def listed(cortex: Cortex, *filters: str) -> list[str]:
    return [row["id"] for row in cortex("jobs", "ls", *filters, "--json").document["jobs"]]


def test_filters_and_pages(cortex: Cortex, life: Life) -> None:
    life.agent()
    failed = str(life.failed())
    plain = str(life.job("other"))
    agents = str(life.job(agent="researcher"))
    assert listed(cortex) == [agents, plain, failed]
    assert listed(cortex, "--status", "fail") == [failed]
    assert listed(cortex, "--status", "FAILED,pend") == [agents, plain, failed]
    assert listed(cortex, "--status", "run") == []
    assert listed(cortex, "--type", "other") == [plain]
    assert listed(cortex, "--agent", "researcher") == [agents]
    assert listed(cortex, "--limit", "2") == [agents, plain]
    assert listed(cortex, "--limit", "2", "--before", plain[-6:]) == [failed]


def test_filter_words_and_options_are_equivalent(cortex: Cortex, life: Life) -> None:
    life.agent("invoice-1")
    failed = str(life.failed())
    plain = str(life.job("other", tenant="acme"))
    agents = str(life.job(agent="invoice-1", queue_name="big jobs"))
    assert listed(cortex, "status:pend agent:invoice-*") == [agents]
    assert listed(cortex, "status:pend,fail") == [agents, plain, failed]
    assert listed(cortex, "status:pend", "--status", "fail") == [agents, plain, failed]
    assert listed(cortex, "queue:'big jobs'") == [agents]
    assert listed(cortex, "type:oth*", "tenant:acme") == [plain]
    assert listed(cortex, "type:oth*", "--type", "digest") == [agents, plain, failed]
    assert listed(cortex, "code:job_failed") == [failed]
    assert listed(cortex, "age>1h") == []
    assert listed(cortex, "age<1h", "--limit", "1", "--before", agents) == [plain]
    assert listed(cortex, f"id:{failed[-6:]}") == [failed]
    ended = cortex("jobs", "ls", "status:pend typ:x")
    assert ended.code == 2
    assert "unknown key 'typ' in the filter" in ended.err
    assert "did you mean 'type'?" in ended.err
    assert "no job matches" in cortex("jobs", "ls", "agent:nobody").err


def test_truncated_search_suggests_where_to_continue(cortex: Cortex, life: Life) -> None:
    oldest = str(life.job("rare"))
    life.sql("""
        DO $$ BEGIN
            SET LOCAL session_replication_role = replica;  -- no triggers: only the rows matter
            INSERT INTO cortex.job_record (id, type, payload)
            SELECT cortex.uuid7(), 'digest', '{}' FROM generate_series(1, 100500);
        END $$
    """)
    ended = cortex("jobs", "ls", "type:rare", "--json")
    assert (ended.code, ended.document["jobs"]) == (0, [])
    assert "there may be more: --before " in ended.err
    assert listed(cortex, "type:rare", "--before", ended.err.split()[-1]) == [oldest]


def test_short_ids_are_shown_and_taken_back(cortex: Cortex, life: Life) -> None:
    job_id = str(life.job())
    short = f"…{job_id[-6:]}"
    terminal = cortex.on_terminal("jobs", "ls")
    terminal.end()
    assert short in terminal.text
    assert job_id not in terminal.text
    assert cortex("jobs", "show", short, "--json").document["job"]["id"] == job_id


def test_an_id_that_names_several_jobs_is_refused(cortex: Cortex, life: Life) -> None:
    for head in ("01a1", "01a2"):
        life.sql("SELECT cortex.submit_job('digest', id => $1::uuid)", f"{head}{'0' * 20}abcdabcd")
    ended = cortex("jobs", "show", "abcd")
    assert ended.code == 5
    assert "2 jobs end with 'abcd'" in ended.err


def test_a_job_is_shown_with_all_that_happened(cortex: Cortex, life: Life) -> None:
    life.agent()
    pod, other = life.pod("one", code="v1"), life.pod("two", code="v2")
    job_id = str(life.job(agent="researcher", payload='{"urls": ["a"]}'))
    claim = life.claim(pod)
    life.step(pod, claim, 1, "plan", is_paid=True)
    life.release(pod, claim, "pod_died")
    claim = life.claim(other)
    life.step(other, claim, 2, "fetch")
    owner = cortex("why", job_id, "--json").document["facts"]["owner"]
    assert (owner["name"], owner["code_version"]) == ("two", "v2")
    life.finish(other, claim, result='{"text": "two\\nlines"}')

    terminal = cortex.on_terminal("jobs", "show", job_id, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    text = terminal.text
    assert f"job …{job_id[-6:]}  digest · researcher v1" in text
    assert "✓ done" in text
    assert 'payload    {"urls":["a"]}' in text
    assert "1.2k→34  $0.0123" in text
    assert text.index("plan") < text.index("attempt 1 ended") < text.index("2 fetch")
    assert "attempt 1 on one (code v1): its pod died" in text
    assert "attempt 1 on one (code v1)\r\n" in text.partition("history")[2]
    assert "on pod two (code v2)" in text
    assert "  text:\r\n    two\r\n    lines" in text

    shown = cortex("jobs", "show", job_id, "--json").document
    assert [step["output"] for step in shown["steps"]] == ["out", "out"]
    ended = [(row["outcome"], row["code_version"]) for row in shown["attempts"]]
    assert (ended, shown["job"]["code_version"]) == ([("pod_died", "v1")], "v2")
    assert [row["code_version"] for row in shown["history"]] == [None, "v1", "v2"]
    assert [row["new"] for row in shown["history"]] == ["PENDING", "RUNNING", "COMPLETED"]
    assert shown["job"]["result"] == {"text": "two\nlines"}


def test_show_lists_the_newest_of_many_steps(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = str(life.job())
    claim = life.claim(pod)
    for seq in range(1, 6):
        life.step(pod, claim, seq, f"step-{seq}")
    out = cortex("jobs", "show", job_id, "--steps", "2").out
    assert "3 earlier steps: --steps 5" in out
    assert "step-4" in out
    assert "step-3" not in out


def test_a_waiting_job_is_cancelled_at_once(cortex: Cortex, life: Life) -> None:
    job_id = str(life.job())
    ended = cortex("jobs", "cancel", job_id, "--yes", "--reason", "enough", "--as", "ana", "--json")
    assert ended.code == 0
    (row,) = ended.document["jobs"]
    assert row == {"id": job_id, "status": "CANCELLED", "pod": None, "error": None}
    job = cortex("jobs", "show", job_id, "--json").document["job"]
    assert (job["cancelled_by"], job["cancel_reason"]) == (me("ana"), "enough")


def test_a_running_job_is_left_to_its_pod(cortex: Cortex, life: Life) -> None:
    pod = life.pod("pod-7")
    job_id = str(life.job())
    claim = life.claim(pod)
    ended = cortex("jobs", "cancel", job_id, "--yes")
    assert ended.code == 0
    assert "requested; pod pod-7 has to stop it" in ended.out
    assert cortex("jobs", "show", job_id, "--json").document["job"]["cancelled_by"] == (
        getpass.getuser()
    )
    waiting = cortex.start("jobs", "cancel", job_id, "--yes", "--wait")
    life.finish(pod, claim)
    _, err = waiting.communicate(timeout=WITHIN_S)
    assert waiting.returncode == 5
    assert "COMPLETED" in err


def test_several_jobs_are_cancelled_despite_one_failure(cortex: Cortex, life: Life) -> None:
    first, ended_before, last = str(life.failed()), str(life.job()), str(life.job())
    ended = cortex("jobs", "cancel", first, ended_before, last, last[-6:], "--yes", "--json")
    assert ended.code == 5
    rows = {row["id"]: row["status"] for row in ended.document["jobs"]}
    assert rows == {first: None, ended_before: "CANCELLED", last: "CANCELLED"}


def test_cancel_asks_for_confirmation(cortex: Cortex, life: Life) -> None:
    job_id = str(life.job())
    ended = cortex("jobs", "cancel", job_id)
    assert ended.code == 2
    assert "hint: add --yes" in ended.err
    no_input = cortex.on_terminal("jobs", "cancel", job_id, "--no-input")
    assert no_input.end() == 2
    for answer, code in (("n\n", 1), ("\n", 1), ("y\n", 0)):
        assert listed(cortex, "--status", "pend") == [job_id]
        asking = cortex.on_terminal("jobs", "cancel", job_id)
        asking.read_until(lambda text: "[y/N]" in text, what="the question")
        asking.type(answer)
        assert asking.end() == code, asking.text
    assert listed(cortex, "--status", "canc") == [job_id]


def test_types_shows_which_are_live(cortex: Cortex, life: Life) -> None:
    life.type("digest")
    life.type("other")
    life.pod("one", "digest")
    rows = cortex("jobs", "types", "--json").document["types"]
    live = {row["type"]: row["is_live"] for row in rows}
    assert set(live) == {"digest", "other", *POLICIES}
    assert [name for name, is_live in live.items() if is_live] == ["digest"]


def test_waiting_survives_a_cut_connection(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    waiting = cortex.start("jobs", "wait", str(life.job()))
    cut = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE '%j.timeout_s%' AND state = 'idle'
    """
    eventually(lambda: life.sql(cut), what="the command's connection")
    life.finish(pod, life.claim(pod))
    out, err = waiting.communicate(timeout=WITHIN_S)
    assert waiting.returncode == 0
    # Cut between two looks it reconnects in silence; cut within one it says so, once.
    said = r"(the database went away|the connection to the database broke): [^\n]*; trying again\n"
    assert re.fullmatch(f"({said})?", err)
    assert "COMPLETED" in out


@pytest.mark.parametrize("payload", ["[" * 4_000 + "]" * 4_000, '{"n": ' + "7" * 5_000 + "}"])
def test_a_payload_that_only_postgres_reads_is_shown_as_text(
    cortex: Cortex, life: Life, payload: str
) -> None:
    job_id = str(submit(life.dsn, "digest", json_text=payload))
    for how in ((), ("--json",), ("-o", "yaml")):
        shown = cortex("jobs", "show", job_id, *how)
        assert (shown.code, shown.err) == (0, "")
        assert payload[:1_900] in shown.out.replace('\\"', '"')
    assert cortex("jobs", "show", job_id, "--json").document["job"]["payload"] == payload
