"""`.ci/quick`: every path and test has a rule, and every promise a smoke test."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.gate import selection
from tests.support.gate.importers import importers_of, module_of, modules_named
from tests.support.gate.rules import ALWAYS, RULES, Kind
from tests.support.gate.selection import ROOT, changed_since, rule_of, select
from tests.support.gate.smoke import marked, promises, smoke_tests
from tests.support.gate.workers import worker_count

READS_DOCUMENTS = re.compile(r"""/ "docs"|"docs/|"README\.md"\)|"CHANGELOG""")
READS_OWN_DOCUMENTS = frozenset(
    {
        "tests/e2e/test_demo.py",
        "tests/unit/agent/test_file_tools.py",
    }
)


def tracked() -> list[str]:
    listed = ["git", "ls-files", "-z"]
    ended = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    return ended.stdout.strip("\0").split("\0")


def test_every_tracked_path_has_a_rule() -> None:
    paths = tracked()
    assert "cortex/config.py" in paths
    assert [path for path in paths if rule_of(path) is None] == []


def test_every_rule_has_a_path_and_every_test_that_it_names_exists() -> None:
    paths = tracked()
    for rule in RULES:
        assert any(rule_of(path) is rule for path in paths), rule.name
        tests = (*rule.tests, *rule.by_subject)
        assert [test for test in tests if not (ROOT / test).exists()] == []
    assert [test for test in ALWAYS if not (ROOT / test).exists()] == []


def test_every_test_file_is_run_by_a_rule() -> None:
    chosen = {test for rule in RULES for test in (*rule.tests, *rule.by_subject)} | set(ALWAYS)
    files = [path for path in tracked() if re.fullmatch(r"tests/(?:.+/)?test_\w+\.py", path)]
    assert len(files) > 300
    chosen |= {f"{each}/" for each in chosen}
    unselected = [path for path in files if not path.startswith(tuple(chosen))]
    assert unselected == []


def test_every_test_file_that_reads_documents_is_run_for_documents() -> None:
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if READS_DOCUMENTS.search(path.read_text("utf-8"))
    }
    selected = {test for rule in RULES if rule.kind is Kind.DOCUMENTS for test in rule.tests}
    assert readers - READS_OWN_DOCUMENTS <= selected


def test_every_promise_has_a_smoke_test_and_no_mark_names_another() -> None:
    tests = smoke_tests()
    assert set(promises()) == set(tests) - {""}
    assert 50 <= len({test for each in tests.values() for test in each}) <= 70


def test_marks_are_read_from_the_source() -> None:
    text = """
@pytest.mark.smoke("A promise", case="x-1")
async def test_a(): ...
@pytest.mark.smoke
def test_b(): ...
"""
    assert list(marked(text)) == [("A promise", "test_a[x-1]"), ("", "test_b")]


@pytest.mark.parametrize(
    "path, kind, tests",
    [
        ("docs/concepts.md", Kind.DOCUMENTS, {"tests/test_docs.py"}),
        ("cortex/cli/dead/retry.py", Kind.LEAF, {"tests/cli/test_dead.py", "tests/test_tidy.py"}),
        ("cortex/cli/main.py", Kind.LEAF, {"tests/cli"}),
        ("cortex/view/waterfall.py", Kind.LEAF, {"tests/tui/test_job_waterfall.py"}),
        ("cortex/runtime/pod.py", Kind.CORE, {"tests/runtime", "tests/e2e/test_kill.py"}),
        ("sql/queries/tasks.sql", Kind.CORE, {"tests/sql", "tests/store"}),
        ("tests/unit/test_config.py", Kind.LEAF, {"tests/unit/test_config.py"}),
        ("tests/http/conftest.py", Kind.LEAF, {"tests/http"}),
        ("tests/http/test_gone.py", Kind.LEAF, {"tests/test_tidy.py"}),
        ("tests/support/servers/browser.py", Kind.LEAF, {"tests/http/test_page_in_browser.py"}),
        ("pyproject.toml", Kind.EVERYTHING, set()),
        ("tests/conftest.py", Kind.EVERYTHING, set()),
        ("a/new/room.py", Kind.EVERYTHING, set()),
    ],
)
def test_path_decides_the_tests(path: str, kind: Kind, tests: set[str]) -> None:
    selected = select([path, "docs/concepts.md"])
    assert selected.kind is kind
    assert tests <= set(selected.tests)
    assert bool(selected.tests) == (kind is not Kind.EVERYTHING)
    assert all(str(each).count("\n") == 0 for each in selected.reasons)


def test_a_module_selects_the_tests_that_import_it_by_way_of_support() -> None:
    assert "tests/unit/view/test_why.py" in importers_of("cortex/view/why.py")
    assert "tests/e2e" in importers_of("tests/support/apps/pod_app.py")
    assert importers_of("cortex/domain/errors.py") == (), "all do: a hub"


def test_modules_are_found_in_imports_and_in_strings() -> None:
    text = (
        'from cortex.cli import (\n    jobs,\n    dead,\n)\nrun("--app", "tests.support.apps.a")\n'
    )
    named = set(modules_named(text))
    assert {"cortex.cli.jobs", "cortex.cli.dead", "tests.support.apps.a"} <= named
    assert module_of("tui/cortex_tui/render/__init__.py") == "cortex_tui.render"


def test_changed_paths_include_edited_deleted_and_untracked_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(*names: str) -> None:
        for each in names:
            (tmp_path / each).write_text("changed")

    monkeypatch.setattr(selection, "ROOT", tmp_path)
    git("init", "--quiet", "--initial-branch=main")
    git("commit", "--quiet", "--allow-empty", "--message=first")
    write("kept", "edited", "deleted")
    git("add", ".")
    git("commit", "--quiet", "--message=second")
    git("checkout", "--quiet", "-b", "topic")
    write("a name with spaces")
    git("add", ".")
    git("commit", "--quiet", "--message=third")
    (tmp_path / "edited").write_text("again")
    (tmp_path / "deleted").unlink()
    write("untracked")
    of_branch = ["a name with spaces", "deleted", "edited", "untracked"]
    assert changed_since(None) == of_branch
    assert changed_since("main~1") == sorted({"kept", *of_branch} - {"deleted"})
    assert changed_since("HEAD") == ["deleted", "edited", "untracked"]
    with pytest.raises(SystemExit, match="nosuch is no commit"):
        changed_since("nosuch")


@pytest.mark.parametrize(
    "args, workers",
    [
        (["tests/unit/test_config.py"], 0),
        (
            [
                "tests/cli/test_why.py::test_a",
                "tests/cli/test_why.py::test_b",
                "tests/test_tidy.py",
            ],
            0,
        ),
        (["tests/cli/test_why.py", "tests/cli/test_dead.py", "tests/test_tidy.py"], 4),
        (["tests/cli"], 4),
        (["tests/unit"], 2),
        (["tests/unit", "tests/cli"], 4),
        (["tests"], 4),
    ],
)
def test_a_run_of_one_or_two_files_starts_no_workers(args: list[str], workers: int) -> None:
    assert worker_count(args, cores=2) == workers
