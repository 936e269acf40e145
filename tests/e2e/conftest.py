"""Fixtures of the end-to-end tests: pods on a database of the test's own, and a scripted model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doom import Payments
from tests.support.pods import Pods
from tests.support.records.rows import new_id
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.ledger import running_ledger
from tests.support.servers.postgres import SharedPostgres
from tests.support.servers.scripted_model import ScriptedModel, scripted_model


@pytest.fixture
def database(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A new database for each test: late writes of its pods cannot reach another test."""
    dsn = shared_postgres.create_migrated()
    yield dsn
    shared_postgres.drop(dsn)


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on a migrated database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The gate of jobs and tools of the test application: touch it to let them continue."""
    return tmp_path / "gate"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """A model that plays the program in the prompt; shared, so prompts begin with marks."""
    with scripted_model() as server:
        yield server


@pytest.fixture
def agent(pods: Pods, model: ScriptedModel, tmp_path: Path) -> ScriptedAgent:
    """An agent of the test's own; apply it before its pods start."""
    return ScriptedAgent(pods, model, f"test {new_id().hex[:12]}", tmp_path)


@pytest.fixture
def payments(pods: Pods, gate: Path) -> Iterator[Payments]:
    """Jobs that pay into a ledger of the test's own."""
    with running_ledger() as ledger:
        pods.environment |= {"LEDGER_URL": ledger.url, "LEDGER_GATE": str(gate)}
        yield Payments(pods, ledger)
