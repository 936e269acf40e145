"""`client.sql`: submits and signals as part of the caller's own transaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from cortex.client.core import job_id_of
from cortex.client.signals import Signal
from cortex.client.statements import (
    Statement,
    signal_statement,
    submit_many_statement,
    submit_statement,
)
from cortex.client.submission import Options, SharedOptions, SubmittableJob, split
from cortex.domain.clock import Chance


class Sql:
    """Statements for any driver or ORM: `sql, args = client.sql.submit(job, …)`.

    They hold no placeholders; `args` is empty. The job exists when the transaction commits, and
    not if it rolls back. Arguments are checked against the handler if the job type itself is
    given, and by the pod in any case.
    """

    def __init__(self, chance: Chance) -> None:
        self._new_id = chance.new_id

    def submit(
        self,
        job: SubmittableJob[Any] | str,
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        job_key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        due_by: datetime | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        tags: Sequence[str] = (),
        traceparent: str | None = None,
        **arguments: Any,
    ) -> Statement:
        """Return a statement that submits a job and returns its id; options as `Client.submit`."""
        named, options = split(job, locals())
        return submit_statement(job, named, options, new_id=self._new_id)

    def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> Statement:
        """Return a statement that submits many jobs of one type and returns the list of ids."""
        shared = Options.of(options)
        return submit_many_statement(job, payloads, shared, new_id=self._new_id)

    def signal(
        self,
        name: str,
        payload: object = None,
        *,
        job: UUID | str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Statement:
        """Return a statement that sends a signal to a job or to a key, and returns its id.

        It arrives when the transaction commits, and not if it rolls back.
        """
        return signal_statement(
            Signal.of(
                name,
                payload,
                job=None if job is None else job_id_of(job),
                key=key,
                tenant=tenant,
                idempotency_key=idempotency_key,
            )
        )
