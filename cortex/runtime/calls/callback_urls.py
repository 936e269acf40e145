"""Callback URLs of the jobs of a pod.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from functools import partial
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.crash_points import crash_point
from cortex.domain.callbacks import Callback, Signer, digest_of
from cortex.domain.control_flow import LeaseLost
from cortex.domain.job import Claim
from cortex.postgres.bridge import Port
from cortex.store import callbacks

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreCallbacks:
    """The callbacks of all jobs of a pod."""

    port: Port
    pod_id: UUID
    signer: Signer
    rng: random.Random

    async def open(
        self, claim: Claim, *, key: str, name: str, expires_s: float, schema: str | None
    ) -> Callback:
        """Open the callback of a step. Raises `UsageError`, and `LeaseLost`."""
        lineage_id = claim.lineage_id or claim.lease.job_id
        callback_id, address, signed_with = self.signer.new(lineage_id, key)
        token = self.signer.token(lineage_id, callback_id, signed_with)
        crash_point("before_callback")
        write = partial(
            self.port,
            callbacks.open_one,
            callback_id,
            lease=claim.lease,
            pod_id=self.pod_id,
            lineage_id=lineage_id,
            digest=digest_of(token),
            step=key,
            name=name,
            schema=schema,
            expires_s=expires_s,
        )
        expires_at = await retry_while_unavailable(
            write, log=_log, event="callback not opened", rng=self.rng
        )
        crash_point("after_callback")
        if expires_at is None:
            raise LeaseLost(f"job {claim.lease.job_id} is owned by another attempt")
        return Callback(
            address=address, id=callback_id, signed_with=signed_with, expires_at=expires_at
        )

    async def url(self, claim: Claim, callback: Callback) -> str:
        """Return the whole URL of a callback. Raises `UsageError`."""
        return self.signer.url(claim.lineage_id or claim.lease.job_id, callback)
