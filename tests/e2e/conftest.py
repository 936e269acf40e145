"""Fixtures of the end-to-end tests: pods on a database of the test's own, and a scripted model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.pods import Pods, run_cli
from tests.support.rows import new_id, submit
from tests.support.scripted_model import MODEL, ScriptedModel, program, scripted_model


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on a migrated database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """What jobs and tools of the test application wait for: touch it to let them go on."""
    return tmp_path / "gate"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """A model that plays the program in the prompt; shared, so prompts begin with marks."""
    with scripted_model() as server:
        yield server


@pytest.fixture
def mark() -> str:
    """What makes a conversation with the shared model one of this test's own."""
    return f"test {new_id().hex[:12]}"


@pytest.fixture
def agent(pods: Pods, model: ScriptedModel, tmp_path: Path) -> Callable[..., None]:
    """Applies the agent `tester` with the given tools; pods started later talk to the model."""
    pods.environment |= model.environment

    def apply(*tools: str) -> None:
        file = tmp_path / "agent.yaml"
        listed = ", ".join(tools)
        file.write_text(f"name: tester\nmodel: {MODEL}\nsystem: You test.\ntools: [{listed}]\n")
        ran = run_cli("agents", "apply", str(file), dsn=pods.dsn, folder=tmp_path)
        assert ran.exit_code == 0, ran.stderr

    return apply


@pytest.fixture
def submit_turns(pods: Pods, mark: str) -> Callable[..., UUID]:
    """Submits a job of the agent that plays these turns; `label` tells its calls from others."""

    def submit_one(*turns: dict[str, object], label: str = "") -> UUID:
        prompt = program(*turns, mark=f"{mark}{label}")
        return submit(pods.dsn, "run_agent", {"prompt": prompt}, agent="tester")

    return submit_one
