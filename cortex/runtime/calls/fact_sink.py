"""Records failures that do not end an attempt: a repeated call, a tool error passed to a model.

A time-out also leaves its receipt.

On failure: the fact is logged instead; no job fails because a fact could not be recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import attrs
import structlog

from cortex.domain.classification import describe
from cortex.domain.failure import Failure
from cortex.durable.calls import Caller
from cortex.postgres.bridge import Port
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.metrics.metrics import Metrics
from cortex.store import facts
from cortex.store.facts import Fact

_log = structlog.get_logger(__name__)


class FactSink:
    """Implements `Facts` on the port."""

    def __init__(
        self, port: Port, *, pod_id: UUID, receipts: Receipts, metrics: Metrics | None = None
    ) -> None:
        self._port = port
        self._pod_id = pod_id
        self._receipts = receipts
        self._metrics = metrics or Metrics()

    async def failed(
        self,
        caller: Caller,
        failure: Failure,
        *,
        resolution: str,
        goes_on: bool = True,
        number: int | None = None,
    ) -> list[int]:
        """See `Facts.failed`."""
        self._metrics.call_failed(failure, is_repeated=number is not None)
        data = {**failure.to_json(), "resolution": resolution}
        if number is not None:
            data |= {"attempt": number, "max": caller.retry.attempts}
        fact = self._fact(caller, "error", failure.code, source=failure.source, data=data)
        ids = await self._append([fact])
        if goes_on:
            await self._receipts.went_on(caller, failure)
        return ids

    async def resolved(self, caller: Caller, fact_ids: Sequence[int]) -> None:
        """See `Facts.resolved`."""
        self._metrics.call_made_good()
        resolved = self._fact(caller, "lifecycle", "error_resolved")
        await self._append([attrs.evolve(resolved, resolves=each) for each in fact_ids])

    def _fact(
        self,
        caller: Caller,
        type_: str,
        subtype: str,
        *,
        source: str | None = None,
        data: Mapping[str, Any] = {},
    ) -> Fact:
        return Fact(
            type=type_,
            subtype=subtype,
            source=source,
            tenant=caller.tenant,
            job_id=caller.lease.job_id,
            attempt=caller.lease.attempt,
            step=caller.key,
            agent_id=caller.agent_id,
            agent_version=caller.agent_version,
            pod_id=self._pod_id,
            data=data,
        )

    async def _append(self, rows: Sequence[Fact]) -> list[int]:
        try:
            return await self._port(facts.append, rows)
        except Exception as error:  # noqa: BLE001 -- no job fails because of a fact
            names = [f"{fact.type} {fact.subtype}" for fact in rows]
            _log.warning("facts not recorded", facts=names, error=describe(error))
            return []
