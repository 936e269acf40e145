from tests.support.command_line import Cortex
from tests.support.life import Life

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


def test_from_stdin(cortex: Cortex) -> None:
    assert cortex("agents", "apply", "-", stdin=RESEARCHER).code == 0
    assert cortex("agents", "ls", "-o", "name").out == "researcher\n"


def test_one_wrong_file_and_nothing_is_applied(cortex: Cortex) -> None:
    (cortex.folder / "a.yaml").write_text(RESEARCHER)
    (cortex.folder / "b.yaml").write_text(RESEARCHER.replace("tools:", "tolls:"))
    (cortex.folder / "c.yaml").write_bytes(b"name: x\nsystem: \xff")
    for wrong, told in (
        ("b.yaml", "b.yaml:7: "),
        ("c.yaml", "c.yaml:2: this is not UTF-8"),
        ("a.yaml", "agent 'researcher' stands in a.yaml and in a.yaml"),
        ("none.yaml", "cannot read the agents from none.yaml: No such file or directory"),
    ):
        ended = cortex("agents", "apply", "a.yaml", wrong)
        assert ended.code == 2
        assert ended.err.startswith(f"error: {told}")
    assert cortex("agents", "ls", "--json").document["agents"] == []


def test_an_agent_is_shown_in_any_version(cortex: Cortex) -> None:
    for end in ("And tell.", "And sing."):
        cortex("agents", "apply", "-", "--as", "ana", stdin=RESEARCHER.replace("And tell.", end))
    newest = cortex("agents", "show", "researcher")
    assert "agent researcher  v2" in newest.out
    assert "    You find things out.\n    And sing." in newest.out
    first = cortex("agents", "show", "researcher", "--version", "1", "--json").document
    assert first["agent"]["spec"]["system"] == "You find things out.\nAnd tell.\n"
    assert first["agent"]["applied_by"] == "ana"
    assert cortex("agents", "show", "researcher", "--version", "3").code == 3


def test_pods_are_listed(cortex: Cortex, life: Life) -> None:
    pod = life.pod("eu-1:42")
    life.sql("UPDATE cortex.pod SET running = 3, rss_bytes = 88000000, loop_lag_ms = 1.5")
    (row,) = cortex("pods", "ls", "--json").document["pods"]
    assert (row["id"], row["name"], row["state"]) == (str(pod), "eu-1:42", "READY")
    assert (row["running"], row["slots"], row["rss_bytes"]) == (3, 10, 88_000_000)
    assert 0 <= row["heartbeat_s"] < 60
    terminal = cortex.on_terminal("pods", "ls", env={"NO_COLOR": "1"})
    terminal.end()
    assert "● ready  3/10" in terminal.text.replace("   ", "  ")
    life.sql("UPDATE cortex.pod SET state = 'STOPPED', ended_at = now()")
    assert cortex("pods", "ls", "--json").document["pods"] == []
    assert len(cortex("pods", "ls", "--all", "--json").document["pods"]) == 1
