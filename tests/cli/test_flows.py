"""`cortex flows`: versions of flows from YAML, what is wrong with a file, and pictures."""

from tests.support.command_line import Cortex
from tests.support.life import Life

INVOICES = """
name: invoices
description: checks invoices
inputs: {day: {required: true}}
limits: {timeout_ms: 60000}
steps:
- name: fetch
  uses: http
  with: {url: "https://erp.example/${{ inputs.day }}"}
  retry: {max: 2}
- name: check
  uses: llm
  for_each: ${{ steps.fetch.result.json }}
  on_error: continue
  with: {model: m, prompt: "${{ item }}"}
- name: agree
  uses: approve
  needs: [fetch]
  when: ${{ length(steps.fetch.result.json) > 3 }}
"""


def test_applying_makes_versions_only_of_changes(cortex: Cortex, life: Life) -> None:
    def apply(text: str) -> list[tuple[str, int, str]]:
        applied = ("flows", "apply", "-", "--as", "ana", "--reason", "why", "--json")
        rows = cortex(*applied, stdin=text).document["flows"]
        return [(row["name"], row["version"], row["change"]) for row in rows]

    both = f"{INVOICES}---\nname: other\nsteps: [{{name: a, uses: approve}}]"
    assert apply(both) == [("invoices", 1, "created"), ("other", 1, "created")]
    assert apply(INVOICES) == [("invoices", 1, "unchanged")]
    assert apply(INVOICES.replace("max: 2", "max: 3")) == [("invoices", 2, "updated")]
    assert cortex("flows", "ls", "-o", "name").out == "invoices\nother\n"
    shown = cortex("flows", "show", "invoices")
    assert "flow invoices  v2" in shown.out
    assert "check" in shown.out
    first = cortex("flows", "show", "invoices", "--version", "1", "--json").document
    assert first["flow"]["spec"]["steps"][0]["retry"] == {"max": 2}
    facts = life.sql("SELECT source, data FROM cortex.fact WHERE subtype = 'flow_applied'")
    assert [fact["source"] for fact in facts] == ["flow:invoices", "flow:other", "flow:invoices"]


def test_one_wrong_flow_prevents_the_whole_apply(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(INVOICES)
    (cortex.folder / "b.yaml").write_text(INVOICES.replace("60000", "2700001"))
    limit = "2700000, the hard limit of a flow in milliseconds, got 2700001"
    wrong = f"b.yaml:5: limits.timeout_ms must be at least 1 and at most {limit}"
    for verb in ("apply", "validate"):
        ended = cortex("flows", verb, "a.yaml", "b.yaml")
        assert ended.code == 2
        assert ended.err.startswith(f"error: {wrong}")
    assert cortex("flows", "ls", "--json").document["flows"] == []


def test_a_file_is_validated_without_a_database(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(INVOICES)
    checked = cortex("flows", "validate", "a.yaml", "--dsn", "postgresql://nowhere:1/x")
    assert (checked.code, checked.out) == (0, "name\tsteps\ninvoices\t3\n")

    app = "from cortex import Context, job\n@job\nasync def resize(ctx: Context, image: str): ...\n"
    (cortex.folder / "shop.py").write_text(app)
    step = "name: f\nsteps:\n- name: a\n  uses: job\n  with: {job: resize, arguments: {img: 1}}\n"
    assert cortex("flows", "validate", "-", stdin=step).code == 0
    known = cortex("flows", "validate", "-", "--app", "shop.py", stdin=step)
    assert known.code == 2
    wrong = "stdin:5: steps[0].with.arguments of job type 'resize' lacks image; has an unknown key"
    assert known.err.startswith(f"error: {wrong} 'img'")
    (cortex.folder / "shop.py").write_text(app.replace("@job", '@job(singleton="{image}")'))
    ruled = cortex("flows", "validate", "-", "--app", "shop.py", stdin=step)
    wrong = 'stdin:5: steps[0].with.job is refused: job type "resize" has a singleton'
    assert ruled.err.startswith(f"error: {wrong}: its jobs cannot be children")


def test_the_graph_is_mermaid_for_a_pipe(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(INVOICES)
    drawn = cortex("flows", "graph", "a.yaml").out
    assert drawn.splitlines() == [
        "flowchart TD",
        '    s0["fetch<br>http<br>2 retries"]',
        '    s1["check<br>llm<br>for each item<br>goes on after an error"]',
        '    s2{{"agree<br>approve<br>only when"}}',
        "    s0 --> s1",
        "    s0 -. when .-> s2",
    ]
    cortex("flows", "apply", "a.yaml")
    assert cortex("flows", "graph", "invoices").out == drawn
    assert cortex("flows", "graph", "nothing").code == 3


def test_a_job_of_a_flow_is_submitted_by_its_name(cortex: Cortex, life: Life) -> None:
    cortex("flows", "apply", "-", stdin=INVOICES)
    arguments = ("--arg", "flow=invoices", "--arg", 'inputs={"day": 7}')
    assert cortex("jobs", "submit", "run_flow", *arguments).code == 0
    (row,) = life.sql("SELECT payload->>'version' AS version, timeout_s FROM cortex.job")
    assert tuple(row) == ("1", 60)
    refused = cortex("jobs", "submit", "run_flow", "--arg", "flow=nothing")
    assert refused.code == 3
    assert refused.err.startswith('error: flow "nothing" does not exist')
