"""Jobs with open callbacks beside a server that takes what is posted to them."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from attrs import define, field

from cortex.domain.callbacks import TOKEN_PARAM, Signer, digest_of
from cortex.domain.job import Claim, Finish, JobStatus
from cortex.http.framework.limits import Rate
from cortex.postgres.database import Profile
from cortex.store import callbacks, jobs, signals
from cortex.store.signals import SignalRow
from tests.signals.conftest import Stage
from tests.support.pods import Pods
from tests.support.servers.http_server import Answered, HttpServer, http_server
from tests.support.servers.kept_sessions import kept_session

PLENTY = Rate(burst=10**6, per_s=10**6)
SECRET = "a secret of this test that is long enough"


@define
class CallbackStage:
    """Jobs that run, their callbacks, and others who post to them."""

    server: HttpServer
    stage: Stage
    signer: Signer = field(factory=lambda: Signer("https://cortex.test", (SECRET,)))

    def open(
        self,
        claim: Claim | None = None,
        *,
        name: str = "paid",
        schema: Any = None,
        expires_s: float = 60.0,
    ) -> tuple[Claim, str]:
        """Open the callback of a job; return its path with the token."""
        claim = claim or self.stage.running()
        line = claim.lineage_id or claim.lease.job_id
        callback_id, address, signed_with = self.signer.new(line, f"{name} callback")
        token = self.signer.token(line, callback_id, signed_with)
        expires_at: datetime | None = self.stage.store(
            callbacks.open_one,
            callback_id,
            lease=claim.lease,
            pod_id=self.stage.pod_id,
            lineage_id=line,
            digest=digest_of(token),
            step=f"{name} callback",
            name=name,
            schema=None if schema is None else orjson.dumps(schema).decode(),
            expires_s=expires_s,
        )
        assert expires_at is not None
        path = address.removeprefix("https://cortex.test")
        return claim, f"{path}?{TOKEN_PARAM}={token}"

    def post(self, path: str, json_body: Any = None, **options: Any) -> Answered:
        return self.server.post(path, json_body=json_body, **options)

    def received(self, job_id: UUID) -> list[SignalRow]:
        rows: list[SignalRow] = self.stage.store(signals.of_job, job_id, limit=100)
        return rows

    def end(self, claim: Claim, status: JobStatus = JobStatus.COMPLETED) -> None:
        """End the attempt, and with it the job."""
        if status is JobStatus.FAILED:
            ending = Finish(lease=claim.lease, status=status, error="no", code="job_failed")
        else:
            ending = Finish(lease=claim.lease, status=status, result="1")
        done = self.stage.store(jobs.finish, pod_id=self.stage.pod_id, operations=[ending])
        assert done == {claim.lease.job_id}


@pytest.fixture(scope="module")
def shared_stage(shared_database: str) -> Iterator[CallbackStage]:
    with ExitStack() as stack:
        server = http_server(shared_database, address_rate=PLENTY, token_rate=PLENTY)
        running = stack.enter_context(server)
        session = kept_session(Profile(dsn=shared_database, hot_path=True))
        stage = Stage(shared_database, stack.enter_context(session))
        yield CallbackStage(running, stage)


@pytest.fixture
def stage(shared_stage: CallbackStage) -> CallbackStage:
    return shared_stage


@pytest.fixture
def own_stage(database: str) -> Iterator[CallbackStage]:
    with ExitStack() as stack:
        running = stack.enter_context(http_server(database))
        session = kept_session(Profile(dsn=database, hot_path=True))
        yield CallbackStage(running, Stage(database, stack.enter_context(session)))


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on a migrated database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()
