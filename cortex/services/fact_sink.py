"""Records failures that do not end an attempt: a repeated call, a tool error that a model was told.

One that was a time-out leaves its receipt, too.

On failure: the fact is logged instead; no job fails because its failure could not be noted.
"""

from uuid import UUID

import structlog

from cortex.domain.errors import CortexError
from cortex.domain.failure import Failure
from cortex.durable.calls import Caller
from cortex.services.receipts import Receipts
from cortex.store import facts
from cortex.store.bridge import Port
from cortex.store.facts import Fact

_log = structlog.get_logger(__name__)


class FactSink:
    """Implements `Facts` on the port."""

    def __init__(self, port: Port, *, pod_id: UUID, receipts: Receipts) -> None:
        self._port = port
        self._pod_id = pod_id
        self._receipts = receipts

    async def failed(
        self, caller: Caller, failure: Failure, *, resolution: str, goes_on: bool = True
    ) -> None:
        """See `Facts.failed`."""
        fact = Fact(
            type="error",
            subtype=failure.code,
            source=failure.source,
            tenant=caller.tenant,
            job_id=caller.lease.job_id,
            attempt=caller.lease.attempt,
            step=caller.key,
            agent_id=caller.agent_id,
            agent_version=caller.agent_version,
            pod_id=self._pod_id,
            data={**failure.to_json(), "resolution": resolution},
        )
        try:
            await self._port(facts.append, [fact])
        except CortexError as error:
            _log.warning("failure not recorded", failure=failure.message, error=error.message)
        if goes_on:
            await self._receipts.went_on(caller, failure)
