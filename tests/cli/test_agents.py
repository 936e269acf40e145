from decimal import Decimal
from typing import Any

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me

RESEARCHER = """
name: researcher
model: claude-sonnet-4-5
system: |
  You find things out.
  And tell.
tools: [read_file, write_file]
"""


def test_applying_makes_versions_only_of_changes(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(RESEARCHER)
    (cortex.folder / "b.yaml").write_text(RESEARCHER.replace("researcher", "writer"))

    def apply(*files: str) -> list[tuple[str, int, str]]:
        rows = cortex("agents", "apply", *files, "--as", "ana", "--json").document["agents"]
        return [(row["name"], row["version"], row["change"]) for row in rows]

    assert apply("a.yaml", "b.yaml") == [("researcher", 1, "created"), ("writer", 1, "created")]
    assert apply("a.yaml") == [("researcher", 1, "unchanged")]
    (cortex.folder / "a.yaml").write_text(RESEARCHER.replace("And tell.", "And sing."))
    assert apply("a.yaml") == [("researcher", 2, "updated")]


def test_applied_version_records_person_and_reason(cortex: Cortex, life: Life) -> None:
    for _ in range(2):
        applied = ("agents", "apply", "-", "--as", "ana", "--reason", "cheaper")
        assert cortex(*applied, stdin=RESEARCHER + "budget: {usd: 9}").code == 0
    facts = life.sql(
        "SELECT subtype, source, agent_version, data->>'by' AS by, data->>'reason' AS reason "
        "FROM cortex.fact WHERE source LIKE '%:agent:%' OR source LIKE 'agent:%' ORDER BY id"
    )
    assert [tuple(fact) for fact in facts] == [
        ("agent_applied", "agent:researcher", 1, me("ana"), "cheaper"),
        ("budget_set", "budget:agent:researcher:usd:run", None, me("ana"), "cheaper"),
    ]


def test_agents_are_applied_from_stdin(cortex: Cortex) -> None:
    assert cortex("agents", "apply", "-", stdin=RESEARCHER).code == 0
    assert cortex("agents", "ls", "-o", "name").out == "researcher\n"


def test_one_wrong_file_prevents_the_whole_apply(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(RESEARCHER)
    (cortex.folder / "b.yaml").write_text(RESEARCHER.replace("tools:", "tolls:"))
    (cortex.folder / "c.yaml").write_bytes(b"name: x\nsystem: \xff")
    for wrong, output in (
        ("b.yaml", "b.yaml:7: "),
        ("c.yaml", "c.yaml:2: this is not UTF-8"),
        ("a.yaml", "agent 'researcher' is in both a.yaml and a.yaml"),
        ("none.yaml", "cannot read the agents from none.yaml: No such file or directory"),
    ):
        ended = cortex("agents", "apply", "a.yaml", wrong)
        assert ended.code == 2
        assert ended.err.startswith(f"error: {output}")
    assert cortex("agents", "ls", "--json").document["agents"] == []


def test_a_declared_budget_is_set_with_the_version(cortex: Cortex, life: Life) -> None:
    def apply(budget: str) -> tuple[list[Any], Any]:
        applied = cortex("agents", "apply", "-", "--as", "ana", "--json", stdin=RESEARCHER + budget)
        (row,) = applied.document["agents"]
        changes = [(each["name"], each["before"], each["after"]) for each in row["budgets"]]
        return changes, row["left_budgets"]

    run, day = "agent:researcher:usd:run", "agent:researcher:usd:day"
    assert apply("") == ([], [])
    assert apply("budget: {usd: 0.1, tokens: 5000}") == (
        [(run, None, 0.1), ("agent:researcher:tokens:run", None, 5000.0)],
        [],
    )
    assert apply("budget: {usd: 0.1, tokens: 5000}") == ([], [])
    assert apply("budget: {usd: 0.2}") == ([(run, 0.1, 0.2)], ["agent:researcher:tokens:run"])
    found = life.sql("SELECT name, limit_amount, changed_by, reason FROM cortex.budget ORDER BY id")
    assert [tuple(row) for row in found] == [
        (run, Decimal("0.2"), me("ana"), "agent researcher v3"),
        ("agent:researcher:tokens:run", 5000, me("ana"), "agent researcher v2"),
    ]
    cortex("budgets", "rm", "agent:researcher:tokens:run", "--reason", "a test", "--yes")
    assert apply("budget: {usd: 0.2, per: day}") == ([(day, None, 0.2)], [run])


def test_declared_limits_are_those_of_the_file(cortex: Cortex) -> None:
    def names() -> list[str]:
        return [each["name"] for each in cortex("limits", "ls", "--json").document["limits"]]

    limits = "limits: {jobs: [{concurrency: 2, key: tenant}, {rate: 9, per: hour}]}"
    assert cortex("agents", "apply", "-", stdin=RESEARCHER + limits).code == 0
    assert names() == ["agent:researcher:jobs/hour", "agent:researcher:running:tenant"]
    shown = "jobs (key tenant, concurrency 2) and (per hour, rate 9)"
    assert shown in cortex("agents", "show", "researcher").out
    assert cortex("agents", "apply", "-", stdin=RESEARCHER).code == 0
    assert names() == []


def test_apply_warns_of_budgets_that_still_apply(cortex: Cortex) -> None:
    budget = "budget: {usd: 0.5}"
    first = cortex("agents", "apply", "-", stdin=RESEARCHER + budget)
    assert first.err == "budget agent:researcher:usd:run is $0.50\n"
    second = cortex("agents", "apply", "-", stdin=RESEARCHER)
    assert (
        "budget agent:researcher:usd:run is no longer in the file but still applies" in second.err
    )
    assert "cortex budgets rm agent:researcher:usd:run" in second.err


def test_apply_is_atomic_and_idempotent_under_a_key(cortex: Cortex, life: Life) -> None:
    life.sql("ALTER TABLE cortex.budget ADD CONSTRAINT test CHECK (limit_amount < 5)")
    two = RESEARCHER.replace("researcher", "first") + "---" + RESEARCHER + "budget: {usd: 9}"
    assert cortex("agents", "apply", "-", stdin=two).code != 0
    assert life.sql("SELECT FROM cortex.agent") == []
    life.sql("ALTER TABLE cortex.budget DROP CONSTRAINT test")
    asked = ("agents", "apply", "-", "--idempotency-key", "k", "--json")
    done, again = (cortex(*asked, stdin=two).document for _ in range(2))
    assert again == done | {"replayed": True}
    assert done["agents"][1]["budgets"][0]["after"] == 9.0


def test_an_agent_is_shown_in_any_version(cortex: Cortex) -> None:
    for end in ("And tell.", "And sing."):
        cortex("agents", "apply", "-", "--as", "ana", stdin=RESEARCHER.replace("And tell.", end))
    newest = cortex("agents", "show", "researcher")
    assert "agent researcher  v2" in newest.out
    assert "    You find things out.\n    And sing." in newest.out
    first = cortex("agents", "show", "researcher", "--version", "1", "--json").document
    assert first["agent"]["spec"]["system"] == "You find things out.\nAnd tell.\n"
    assert first["agent"]["applied_by"] == me("ana")
    assert cortex("agents", "show", "researcher", "--version", "3").code == 3


def test_pods_are_listed(cortex: Cortex, life: Life) -> None:
    pod = life.pod("eu-1:42")
    life.type()
    for _ in range(3):
        life.job()
        life.claim(pod)
    # No session holds its lock: it lives by its heartbeat alone.
    life.sql(
        "UPDATE cortex.pod SET rss_bytes = 88000000, loop_lag_ms = 1.5, liveness = 'heartbeat', "
        "threads_lost = 12"
    )
    (row,) = cortex("pods", "ls", "--json").document["pods"]
    assert (row["id"], row["name"], row["state"]) == (str(pod), "eu-1:42", "READY")
    assert (row["running"], row["slots"], row["rss_bytes"]) == (3, 10, 88_000_000)
    assert row["threads_lost"] == 12
    assert 0 <= row["heartbeat_s"] < 60
    terminal = cortex.on_terminal("pods", "ls", env={"NO_COLOR": "1"})
    terminal.end()
    assert "● ready  3/10" in terminal.text.replace("   ", "  ")
    life.sql("UPDATE cortex.pod SET state = 'STOPPED', ended_at = now()")
    assert cortex("pods", "ls", "--json").document["pods"] == []
    assert len(cortex("pods", "ls", "--all", "--json").document["pods"]) == 1


def test_money_is_not_limited_in_silence_where_no_price_is_known(cortex: Cortex) -> None:
    unpriced = RESEARCHER.replace("claude-sonnet-4-5", "local/llama") + "budget: {usd: 1}"
    ended = cortex("agents", "apply", "-", "--json", stdin=unpriced)
    assert ended.code == 0
    assert "agent researcher: model local/llama has no known price" in ended.err
    assert "setting prices" in ended.err
    assert "--tokens" in ended.err
    (cortex.folder / "prices.toml").write_text('["local/llama"]\ninput = 1\noutput = 2\n')
    environ = {"CORTEX_PRICES": str(cortex.folder / "prices.toml")}
    assert "no price" not in cortex("agents", "apply", "-", stdin=unpriced, env=environ).err
    by_tokens = unpriced.replace("usd: 1", "tokens: 5")
    assert "no price" not in cortex("agents", "apply", "-", stdin=by_tokens).err
