"""Files that the hosting site reads in `.github/`: the workflow and the templates."""

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
HOSTING: Final = ROOT / ".github"


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize(
    "workflow", sorted((HOSTING / "workflows").iterdir()), ids=lambda path: path.name
)
def test_workflow_has_read_permission_and_pinned_actions(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text("utf-8"))["permissions"] == {"contents": "read"}
    uses = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in uses), uses


def test_the_workflow_ends_with_the_gate() -> None:
    program = steps(HOSTING / "workflows" / "gate.yml")[-1]["run"].strip()
    assert program == ".ci/run"
    assert os.access(ROOT / program, os.X_OK)


def test_templates_of_issues_have_a_name_and_a_purpose() -> None:
    for page in (HOSTING / "ISSUE_TEMPLATE").glob("*.md"):
        _, head, text = page.read_text("utf-8").split("---\n", 2)
        assert yaml.safe_load(head).keys() >= {"name", "about"}, page.name
        assert text.strip()
