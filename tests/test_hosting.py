"""Files that the hosting site reads in `.github/`: the workflow and the templates."""

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
HOSTING: Final = ROOT / ".github"


WIDENED: Final = {
    "release.yml": {
        "binary": {"contents": "read", "id-token": "write", "attestations": "write"},
    }
}
"""What a job may beyond reading, by workflow."""


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize(
    "workflow", sorted((HOSTING / "workflows").iterdir()), ids=lambda path: path.name
)
def test_workflow_has_read_permission_and_pinned_actions(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text("utf-8"))
    assert document["permissions"] == {"contents": "read"}
    widened = {
        name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job
    }
    assert widened == WIDENED.get(workflow.name, {})
    uses = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in uses), uses


def test_the_workflow_ends_with_the_gate() -> None:
    program = steps(HOSTING / "workflows" / "gate.yml")[-1]["run"].strip()
    assert program == ".ci/run"
    assert os.access(ROOT / program, os.X_OK)


def test_a_release_is_audited_built_and_attested_in_this_order() -> None:
    found = steps(HOSTING / "workflows" / "release.yml")
    texts = [f"{step.get('run', '')} {step.get('uses', '')}" for step in found]
    wanted = (".ci/audit", "packaging/binary/build", "actions/attest-build-provenance@")
    places = [next(n for n, text in enumerate(texts) if each in text) for each in wanted]
    assert places == sorted(places)
    subjects = found[places[-1]]["with"]["subject-path"].split()
    uploaded = found[places[-1] + 1]["with"]["path"].split()
    assert set(subjects) <= set(uploaded), "what is attested is what people get"
    assert "dist/cortex" in subjects


def test_the_gate_depends_on_no_audit() -> None:
    """Its answer changes without a commit, and it asks more than an index of packages."""
    assert os.access(ROOT / ".ci" / "audit", os.X_OK)
    for name in ("run", "quick", "stages"):
        assert "audit" not in (ROOT / ".ci" / name).read_text("utf-8"), name


def test_templates_of_issues_have_a_name_and_a_purpose() -> None:
    for page in (HOSTING / "ISSUE_TEMPLATE").glob("*.md"):
        _, head, text = page.read_text("utf-8").split("---\n", 2)
        assert yaml.safe_load(head).keys() >= {"name", "about"}, page.name
        assert text.strip()
