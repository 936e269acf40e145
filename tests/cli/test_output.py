import json
import re

import pytest
import yaml

from cortex.domain.safe import safe
from cortex.view.cells import width_of
from tests.support.command_line import Cortex
from tests.support.life import Life

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
HOSTILE = "\x1b]52;c;aGk=\x07 \x1b[2J approve \u202ethis\u202c \u200bnow\r\x9b31m\nand more"


@pytest.fixture
def hostile(life: Life) -> str:
    """A job that says the worst things wherever it may say something."""
    life.agent()
    pod = life.pod(f"pod {HOSTILE}")
    job_id = life.job(agent="researcher", payload='{"say": "\\u001b[2J\\u202e"}')
    claim = life.claim(pod)
    life.step(pod, claim, 1, f"step {HOSTILE}")
    life.release(pod, claim, "failed", f"error {HOSTILE}")
    life.finish(pod, life.claim(pod), error=f"the end {HOSTILE}")
    return str(job_id)


def test_no_text_of_a_job_acts_on_a_terminal(cortex: Cortex, hostile: str) -> None:
    for arguments in ("jobs ls", "jobs show ID", "jobs watch ID", "jobs wait ID", "pods ls --all"):
        for form in ("table", "json", "yaml", "jsonl"):
            if (arguments, form) == ("jobs watch ID", "yaml"):
                continue
            ended = cortex(*arguments.replace("ID", hostile).split(), "-o", form)
            assert ended.out
            assert not CONTROL.findall(ended.out + ended.err), (arguments, form)


def test_no_result_acts_on_a_terminal(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = str(life.job())
    life.finish(pod, life.claim(pod), result=json.dumps({"text": HOSTILE, HOSTILE: [HOSTILE]}))
    for verb in ("show", "watch", "wait"):
        out = cortex("jobs", verb, job_id).out
        assert "✓" in out or "COMPLETED" in out
        assert not CONTROL.findall(out), verb


def test_documents_hold_the_exact_text(cortex: Cortex, hostile: str) -> None:
    shown = cortex("jobs", "show", hostile, "--json").document
    assert shown["job"]["error_message"] == f"the end {HOSTILE}"
    assert shown["steps"][0]["key"] == f"step {HOSTILE}"
    assert shown["attempts"][0]["error"] == f"error {HOSTILE}"
    assert yaml.safe_load(cortex("jobs", "show", hostile, "-o", "yaml").out) == shown


def test_on_a_terminal_only_our_own_escapes(cortex: Cortex, hostile: str) -> None:
    for arguments in (["ls"], ["show", hostile], ["watch", hostile]):
        terminal = cortex.on_terminal("jobs", *arguments)
        terminal.end()
        text = re.sub(r"\x1b\[[0-9;]*m|\r|\x1b\[K", "", terminal.text)
        assert not CONTROL.findall(text), arguments


def test_redirected_output_is_exact_and_without_colours(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed("a reason that is longer than any terminal is wide: " + "x" * 200))
    ended = cortex("jobs", "ls")
    head, row = ended.out.splitlines()
    assert head.split() == [
        *("id", "type", "agent", "status", "step", "attempt", "cost_usd", "created_at", "took_s"),
        *("pod", "remark"),
    ]
    assert row.startswith(job_id)
    assert "FAILED" in row
    assert row.endswith("x" * 200)
    assert re.search(r"\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t", row)
    took_s = row.split("\t")[head.split("\t").index("took_s")]
    assert re.fullmatch(r"\d+(\.\d{1,3})?", took_s), "milliseconds suffice"
    assert "\x1b" not in ended.out
    assert "  " not in ended.out, "a tab is between cells, and no padding"
    assert head.count("\t") == row.count("\t") == 10


def test_long_text_is_cut_with_a_hint(cortex: Cortex, life: Life) -> None:
    failed = str(life.failed("e" * 100_000))
    plain = str(life.job(payload=json.dumps({"text": "p" * 100_000})))
    for arguments in (("jobs", "show", failed), ("dead", "show", failed), ("jobs", "show", plain)):
        out = cortex(*arguments).out
        assert "more characters: --json has them all" in out, arguments
        assert max(map(len, out.splitlines())) < 3_000, arguments
    assert cortex("jobs", "show", plain, "--json").document["job"]["payload"] == {
        "text": "p" * 100_000
    }


EVERY = "".join(map(chr, (*range(1, 0x3000), *range(0xFE00, 0x10000), 0x1F600, 0xE0001, 0xE0100)))


def test_documents_escape_invisible_characters(cortex: Cortex, life: Life) -> None:
    kept = "".join(char for char in EVERY if not 0xD800 <= ord(char) < 0xE000)
    job = str(life.job(payload=json.dumps({"text": kept})))
    for form in ("json", "jsonl", "yaml"):
        out = cortex("jobs", "show", job, "-o", form).out
        read = yaml.safe_load(out) if form == "yaml" else json.loads(out)
        assert read["job"]["payload"]["text"] == kept, form
        for char in set(out) - {"\n"}:
            assert safe(char) == char, f"{char!r} in {form}"


COLOURED: list[tuple[dict[str, str], list[str], bool]] = [
    ({}, [], True),
    ({"NO_COLOR": "1"}, [], False),
    ({"CORTEX_NO_COLOR": "1"}, [], False),
    ({"TERM": "dumb"}, [], False),
    ({"TERM": ""}, [], False),
    ({"NO_COLOR": ""}, [], True),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, [], False),
    ({"NO_COLOR": "1"}, ["--color", "always"], True),
    ({}, ["--color=never"], False),
]


def test_colours_on_a_terminal(cortex: Cortex, life: Life) -> None:
    life.failed()
    for env, arguments, is_coloured in COLOURED:
        terminal = cortex.on_terminal("jobs", "ls", *arguments, env=env)
        assert terminal.end() == 0
        found = ("\x1b[31m✗ fail\x1b[0m" in terminal.text, "\x1b" in terminal.text)
        assert found == (is_coloured, is_coloured), (env, arguments)
        assert "✗ fail" in terminal.text


def test_colours_where_no_terminal_is(cortex: Cortex, life: Life) -> None:
    life.failed()
    assert "\x1b[" in cortex("jobs", "show", str(life.job()), env={"FORCE_COLOR": "1"}).out
    assert "\x1b[" in cortex("jobs", "show", str(life.job()), "--color", "always").out
    error = cortex("jobs", "show", "ffff", "--color", "always").err
    assert error.startswith("\x1b[31merror:\x1b[0m ")


def test_a_table_fits_its_terminal(cortex: Cortex, life: Life) -> None:
    life.failed("a reason in 日本語 " * 20)
    for columns in (50, 60, 80, 120):
        terminal = cortex.on_terminal("jobs", "ls", columns=columns, env={"NO_COLOR": "1"})
        terminal.end()
        for line in terminal.text.splitlines():
            assert width_of(line) <= columns
        assert "…" in terminal.text


def test_ascii_is_used_where_the_locale_has_nothing_else(cortex: Cortex, life: Life) -> None:
    """Whichever variable says so: Python makes one decision of them, at its start."""
    pod = life.pod()
    job_id = life.job()
    claim = life.claim(pod)
    life.step(pod, claim, 1, "read")
    life.finish(pod, claim)
    ways: list[tuple[dict[str, str], list[str]]] = [
        ({"LANG": "C"}, ["ls"]),
        ({"LC_ALL": "POSIX"}, ["show", str(job_id)]),
        ({"PYTHONIOENCODING": "ascii"}, ["watch", str(job_id)]),
    ]
    for env, arguments in ways:
        terminal = cortex.on_terminal("jobs", *arguments, env=env)
        terminal.end()
        assert terminal.text.isascii(), env
        assert "+ done" in terminal.text, env


def test_other_text_survives_a_terminal_without_it(cortex: Cortex, life: Life) -> None:
    life.failed("naïve 日本")
    assert "na\\xefve \\u65e5\\u672c" in cortex("jobs", "ls", env={"PYTHONIOENCODING": "ascii"}).out
    shown = cortex("jobs", "ls", "--json", env={"PYTHONIOENCODING": "ascii"}).document
    assert shown["jobs"][0]["error_message"] == "naïve 日本"


def test_documents_contain_their_schema_version(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed())
    for arguments in (["jobs", "ls"], ["jobs", "show", job_id], ["pods", "ls"], ["agents", "ls"]):
        assert cortex(*arguments, "--json").document["schema_version"] == 1
        assert yaml.safe_load(cortex(*arguments, "-o", "yaml").out)["schema_version"] == 1
    for line in cortex("jobs", "watch", job_id, "-o", "jsonl").documents:
        assert line["schema_version"] == 1


def test_columns_are_chosen_in_order_for_every_format(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed("no page"))
    chosen = ["--columns", "state,error_message,id"]
    assert cortex("jobs", "ls", *chosen, "--no-headers").out.split() == [
        *("FAILED", "no", "page", job_id)
    ]
    (row,) = cortex("jobs", "ls", *chosen, "--json").document["jobs"]
    assert list(row.items()) == [("status", "FAILED"), ("error_message", "no page"), ("id", job_id)]
    filtered_by = ["--columns", "tenant,queue,waiting_on,code,tags"]
    (row,) = cortex("jobs", "ls", *filtered_by, "--json").document["jobs"]
    assert list(row) == ["tenant", "queue_name", "waiting_on", "error_code", "tags"]
    wrong = cortex("jobs", "ls", "--columns", "stauts")
    assert wrong.code == 2
    assert wrong.err == "error: unknown column 'stauts'\nhint: did you mean 'status'?\n"


def test_names_only(cortex: Cortex, life: Life) -> None:
    life.agent("b")
    life.agent("a")
    assert cortex("agents", "ls", "-o", "name").out == "a\nb\n"
    job_id = str(life.job())
    assert cortex("jobs", "ls", "-o", "name").out == f"{job_id}\n"
    assert cortex("jobs", "show", job_id[-6:], "-o", "name").out == f"{job_id}\n"


def test_empty_result_is_reported_on_stderr(cortex: Cortex) -> None:
    ended = cortex("jobs", "ls")
    assert ended.out == ""
    assert ended.err == "no jobs yet; submit one: cortex jobs submit TYPE\n"
    assert cortex("jobs", "ls", "--json").document == {"schema_version": 1, "jobs": []}


def test_a_wide_list_shows_all_fields_that_hold_one_value(cortex: Cortex, life: Life) -> None:
    life.pod()
    head, row = (line.split("\t") for line in cortex("pods", "ls", "-o", "wide").out.splitlines())
    assert len(head) == len(row)
    assert {"name", "state", "id", "drain_reason", "phase_at"} <= set(head)
    assert not {"job_types", "tools", "moved"} & set(head)
    assert cortex("pods", "ls", "-o", "wide", "--columns", "moved,name").out.startswith("moved\t")
