"""Finds the specification of an agent version; versions are immutable, so it is asked for once."""

from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

from cortex.store import agents
from cortex.store.bridge import Port

CACHED_MAX: Final = 1_000


class AgentSpecCache:
    """Specifications by agent and version, the least recently used ones dropped."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._specs: OrderedDict[tuple[UUID, int], dict[str, Any]] = OrderedDict()

    async def spec(self, agent_id: UUID, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON. Raises `NotFoundError`."""
        key = (agent_id, version)
        if key in self._specs:
            self._specs.move_to_end(key)
            return self._specs[key]
        found = await self._port(agents.spec, agent_id, version)
        self._specs[key] = found
        if len(self._specs) > CACHED_MAX:
            self._specs.popitem(last=False)
        return found
