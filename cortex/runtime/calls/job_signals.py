"""Signals for the steps that receive them.

Invariants: a signal belongs to one step, from one transaction on; asking again returns it again.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.crash_points import crash_point
from cortex.domain.control_flow import LeaseLost
from cortex.domain.job import Claim
from cortex.domain.signals import ReceivedSignal
from cortex.postgres.bridge import Port
from cortex.store import signals

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreSignals:
    """The signals of all job contexts of a pod."""

    port: Port
    pod_id: UUID
    rng: random.Random

    async def take(
        self, claim: Claim, *, step: str, name: str, key: str | None
    ) -> ReceivedSignal | None:
        """Give a step the next signal of its name; None: there is none. Raises `LeaseLost`."""
        crash_point("before_take")
        taken = await retry_while_unavailable(
            lambda: self.port(
                signals.take, lease=claim.lease, pod_id=self.pod_id, step=step, name=name, key=key
            ),
            log=_log,
            event="signal not read",
            rng=self.rng,
        )
        if not taken.is_owned:
            raise LeaseLost("another attempt owns the job")
        if taken.signal is not None:
            crash_point("after_take")
        return taken.signal
