"""Pods that run families of jobs."""

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from tests.e2e.conftest import database, pods
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods
from tests.support.records.rows import job_row, submit
from tests.support.servers.postgres import sql

__all__ = ["database", "pods"]

APP = "tests.support.apps.family_app"


@attrs.define
class Family:
    """Pods with parents and children."""

    pods: Pods
    notes: Path

    @property
    def dsn(self) -> str:
        return self.pods.dsn

    def start(self, **settings: object) -> Pod:
        return self.pods.start("--app", APP, **settings)

    def submit(self, kind: str, **arguments: Any) -> UUID:
        return submit(self.dsn, kind, arguments)

    def row(self, job_id: UUID) -> Any:
        return job_row(self.dsn, job_id)

    def until(self, job_id: UUID, status: str) -> Any:
        eventually(
            lambda: self.row(job_id)["status"] == status,
            what=f"job {job_id} is {status}",
        )
        return self.row(job_id)

    def result(self, job_id: UUID) -> Any:
        return self.until(job_id, "COMPLETED")["result"]

    def children(self, job_id: UUID) -> list[Any]:
        query = "SELECT * FROM cortex.job_record WHERE parent_id = $1 ORDER BY created_at, id"
        return list(sql(self.dsn, query, job_id))

    def states(self) -> Counter[str]:
        """All jobs, by their states."""
        rows = sql(self.dsn, "SELECT status::text FROM cortex.job")
        return Counter(row["status"] for row in rows)

    def ran(self) -> Counter[str]:
        """How often the leaf of each number has run."""
        return Counter(self.notes.read_text().split() if self.notes.exists() else ())


@pytest.fixture
def family(pods: Pods, tmp_path: Path) -> Family:
    notes = tmp_path / "notes"
    pods.environment["CORTEX_TEST_NOTES"] = str(notes)
    return Family(pods, notes)
