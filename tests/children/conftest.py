"""Pods that run families of jobs."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.child import ChildOutcome, ChildTerms, SpawnReply
from cortex.domain.job import Claim
from cortex.postgres.session import Session
from cortex.store import children, jobs
from tests.e2e.conftest import database, pods
from tests.signals.conftest import Stage, stage
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods
from tests.support.records.rows import job_row, new_id, submit
from tests.support.servers.postgres import sql

__all__ = ["database", "pods", "stage"]

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


@attrs.define
class Parents:
    """Jobs of one pod that submit others, statement by statement."""

    stage: Stage

    @property
    def store(self) -> Session:
        return self.stage.store

    def running(self, **fields: object) -> Claim:
        return self.stage.running(**fields)

    def spawn(
        self,
        claim: Claim,
        count: int,
        *,
        let_go: int | None = 1,
        first: int = 0,
        step: str = "pages",
        kind: str = "leaf",
        **terms: Any,
    ) -> list[UUID]:
        """Submit children; return them in their order."""
        reply = self.reply(
            claim, range(count), let_go=let_go, first=first, step=step, kind=kind, **terms
        )
        assert reply.verdict == "done", reply
        return self.ids(claim, step=step, first=first, limit=count)

    def ids(
        self, claim: Claim, *, step: str = "pages", first: int = 0, limit: int = 100
    ) -> list[UUID]:
        """The children of a step."""
        line = claim.lineage_id or claim.lease.job_id
        found = self.store(children.ids, lineage_id=line, step=step, first=first, limit=limit)
        return [each.job_id for each in found]

    def outcomes(self, claim: Claim) -> list[ChildOutcome]:
        """How the children of its step ended."""
        job_id = claim.lease.job_id
        return self.store(
            children.outcomes,
            job_id=job_id,
            lineage_id=claim.lineage_id or job_id,
            step="pages",
            first=0,
            limit=100,
            bytes_max=10_000,
        )

    def reply(
        self,
        claim: Claim,
        items: Iterable[int],
        *,
        let_go: int | None = 1,
        first: int = 0,
        step: str = "pages",
        kind: str = "leaf",
        payload: str | None = None,
        **terms: Any,
    ) -> SpawnReply:
        payloads = [f'{{"item": {each}}}' if payload is None else payload for each in items]
        return self.store(
            children.spawn,
            lease=claim.lease,
            pod_id=self.stage.pod_id,
            step=step,
            first=first,
            ids=[new_id() for _ in payloads],
            payloads=payloads,
            terms=ChildTerms(type=kind, **terms),
            let_go=let_go,
        )

    def retried(self, claim: Claim) -> Claim:
        """Fail a parent; return the claim of the job that continues it."""
        old = claim.lease.job_id
        fail = (
            "WITH gone AS (DELETE FROM cortex_worker.task WHERE job_id = $1) "
            "UPDATE cortex.job_record SET status = 'FAILED', attempt = 1, error_message = 'x', "
            "error_code = 'x', worker_job_id = NULL WHERE id = $1"
        )
        sql(self.stage.dsn, fail, old)
        new = self.stage.submit()
        continues = "UPDATE cortex.job_record SET origin_id = $2, lineage_id = $3 WHERE id = $1"
        sql(self.stage.dsn, continues, new, old, claim.lineage_id or old)
        return self.stage.claim(new)

    def adopt(self, claim: Claim, *, let_go: int = 1, count: int = 100) -> str:
        """Take on the children that an earlier job of the lineage has left."""
        return self.store(
            children.adopt,
            lease=claim.lease,
            pod_id=self.stage.pod_id,
            step="pages",
            first=0,
            new_ids=[new_id() for _ in range(count)],
            let_go=let_go,
        )

    def submitted(self, ids: Iterable[UUID]) -> list[UUID]:
        """Those that are jobs by now."""
        query = "SELECT id FROM cortex.job_record WHERE id = ANY ($1::uuid[])"
        found = {row["id"] for row in sql(self.stage.dsn, query, list(ids))}
        return [each for each in ids if each in found]

    def end(self, *ids: UUID) -> None:
        """Cancel children."""
        for each in ids:
            self.store(jobs.cancel, each, by="me", reason="enough")


@pytest.fixture
def parents(stage: Stage) -> Parents:
    return Parents(stage)
