"""Finds the specification of an agent version; versions are immutable, so it is asked for once.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

import structlog

from cortex.services.outage import until_answered
from cortex.store import agents
from cortex.store.bridge import Port

CACHED_MAX: Final = 1_000

_log = structlog.get_logger(__name__)


class AgentSpecCache:
    """Specifications by agent and version, the least recently used ones dropped."""

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._specs: OrderedDict[tuple[UUID, int], dict[str, Any]] = OrderedDict()

    async def spec(self, agent_id: UUID, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON. Raises `NotFoundError`."""
        key = (agent_id, version)
        if key in self._specs:
            self._specs.move_to_end(key)
            return self._specs[key]
        found = await until_answered(
            lambda: self._port(agents.spec, agent_id, version),
            log=_log,
            told="agent not read",
            rng=self._rng,
        )
        self._specs[key] = found
        if len(self._specs) > CACHED_MAX:
            self._specs.popitem(last=False)
        return found
