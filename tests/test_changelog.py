"""Fragments in `docs/changes/` become a section of the changelog."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import cortex

ROOT: Final = Path(__file__).parent.parent
FRAGMENTS: Final = sorted((ROOT / "docs" / "changes").glob("*.md"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that a release changes, outside of git."""
    shutil.copytree(ROOT / "docs" / "changes", tmp_path / "docs" / "changes")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def build(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--date", "2027-01-31", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_draft_shows_each_fragment_under_the_version_of_the_package() -> None:
    done = build(ROOT, "--draft")
    assert done.returncode == 0, done.stderr
    assert f"## {cortex.__version__} (2027-01-31)\n" in done.stdout
    shown = " ".join(done.stdout.split())
    for fragment in FRAGMENTS:
        assert " ".join(fragment.read_text("utf-8").split()) in shown, fragment.name


def test_a_release_moves_the_fragments_into_the_changelog(tree: Path) -> None:
    (tree / "docs" / "changes" / "+new.added.md").write_text("A thing was added.\n", "utf-8")
    done = build(tree, "--yes", "--version", "1.2.3")
    assert done.returncode == 0, done.stderr
    text = (tree / "CHANGELOG.md").read_text("utf-8")
    _, _, section = text.partition("<!-- releases -->\n")
    assert section.startswith("\n## 1.2.3 (2027-01-31)\n"), text
    added, _, _ = section.partition("### Added\n")[2].partition("\n### ")
    assert "\n- A thing was added.\n" in added
    assert list((tree / "docs" / "changes").glob("*.md")) == []


def test_a_fragment_of_no_kind_fails_the_build(tree: Path) -> None:
    (tree / "docs" / "changes" / "+new.misspelt.md").write_text("Lost?\n", "utf-8")
    done = build(tree, "--draft")
    assert done.returncode != 0
    assert "+new.misspelt.md" in done.stderr
