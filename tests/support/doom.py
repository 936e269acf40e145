"""Pods that die at a named point, each with one job, and the pods that inherit these jobs."""

import json
import signal
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from attrs import define, field, frozen

from chaos.cluster.ledger import Ledger
from cortex.domain.approvals.vote import Vote, last_digits
from cortex.domain.effect import Resolution
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import approvals, effects
from cortex.store.approvals import VoteResult
from tests.support.people import user
from tests.support.pods import Pod, Pods
from tests.support.records.rows import submit, until_jobs
from tests.support.servers.postgres import sql

APP = "tests.support.apps.effect_app"


@frozen
class Doomed:
    """A pod and the point at which it dies, with the number of the passing: `after_intent:1`."""

    point: str
    pod: Pod

    def fell(self) -> Pod:
        """Wait until it has killed itself."""
        assert self.pod.exit_code() == -signal.SIGKILL, self.point
        return self.pod


@frozen(kw_only=True)
class Fallen:
    """A job whose pod was killed."""

    job_id: UUID
    account: str
    point: str


@define
class Payments:
    """Jobs that pay into a ledger, on the pods of one test."""

    pods: Pods
    ledger: Ledger
    accounts: dict[str, UUID] = field(factory=dict)

    @property
    def dsn(self) -> str:
        return self.pods.dsn

    def start(self, **settings: object) -> Pod:
        """Start a pod that pays, and wait until it takes jobs."""
        pod = self.launch(**settings)
        pod.until_ready()
        return pod

    def launch(self, *arguments: str, **settings: object) -> Pod:
        """Start such a pod without waiting for it."""
        return self.pods.launch("--app", APP, *arguments, **settings)

    def submit(self, kind: str, account: str, type_: str = "pay", **payload: Any) -> UUID:
        """Submit a job that pays once into an account of its own."""
        payload = {"kind": kind, "account": account} | payload
        self.accounts[account] = submit(self.dsn, type_, payload)
        return self.accounts[account]

    def doomed(self, points: Sequence[str]) -> list[Doomed]:
        """Start a pod for each point, for one job each; none checks its peers soon."""
        alone = {"peer_check_s": 60, "sweep_s": 600}
        launched = [
            Doomed(point, self.launch("--slots", "1", crash_at=point, **alone)) for point in points
        ]
        for each in launched:
            each.pod.until_ready()
        return launched

    def fallen(self, doomed: Sequence[Doomed]) -> list[Fallen]:
        """Wait until all of them are dead; which job died where."""
        points = {each.fell().name: each.point for each in doomed}
        query = """
            SELECT j.id, j.payload->>'account' AS account, p.name
            FROM cortex.job j JOIN cortex.pod p ON p.id = j.pod_id WHERE p.name = ANY ($1)
        """
        rows = sql(self.dsn, query, list(points))
        assert sorted(row["name"] for row in rows) == sorted(points), "one job for each"
        return [
            Fallen(job_id=row["id"], account=row["account"], point=points[row["name"]])
            for row in rows
        ]

    def until(self, count: int, status: str) -> None:
        """Wait until a number of jobs stand there, and no other pays any more."""
        until_jobs(self.dsn, f"status = '{status}'", count=count)

    def session(self) -> Any:
        return open_session(Profile(dsn=self.dsn))

    # --- what people do

    def approve(self, *accounts: str) -> list[VoteResult]:
        """Agree to what waits, of these accounts or of all."""
        rows = sql(self.dsn, "SELECT * FROM cortex.approval WHERE status = 'PENDING'")
        chosen = [
            Vote(
                approval_id=row["id"],
                is_approved=True,
                by=user("ana"),
                seen=row["digest"],
                reason="fine",
                confirm=last_digits(row["id"]),
                channel="cli",
            )
            for row in rows
            if not accounts or json.loads(row["asked"])["account"] in accounts
        ]
        with self.session() as store:
            return [store(approvals.decide, [vote])[0] for vote in chosen]

    def resolve(self, job_id: UUID, said: str, *, result: str | None = None) -> None:
        """Say what became of the job's effect."""
        with self.session() as store:
            resolution = Resolution(said)
            store(
                effects.resolve,
                self.effect(job_id)["id"],
                resolution,
                by=user("ana"),
                reason="I looked",
                result=result,
            )

    # --- what is on record

    def effect(self, job_id: UUID) -> dict[str, Any]:
        """The one effect of a job; fails if there is none or another."""
        (row,) = self.effects(job_id)
        return row

    def effects(self, job_id: UUID) -> list[dict[str, Any]]:
        query = "SELECT * FROM cortex.effect WHERE job_id = $1 ORDER BY created_at"
        return [dict(row) for row in sql(self.dsn, query, job_id)]

    def requests(self, job_id: UUID) -> list[str]:
        """The states of what was asked of people for a job."""
        query = "SELECT status FROM cortex.approval WHERE job_id = $1 ORDER BY created_at"
        return [row["status"] for row in sql(self.dsn, query, job_id)]
