"""What a job began with: its policy, prices and limits, on every attempt and on every pod.

A configuration and an agent's version are immutable, so each is asked for once and kept.

On failure: an outage is waited out; the limits of the job around it decide how long. What cannot be
read, since another version of Cortex wrote it, fails the job's calls and so the job; how that
attempt ends is then decided by what this pod has.
"""

import random
from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.agent.spec import AgentSpec
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.job import Claim
from cortex.domain.policy import JobPolicy, RuntimeConfig
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.attempt import JobLimits
from cortex.postgres.bridge import Port
from cortex.store import agents, configs

# --- Finds the specification of an agent version; versions are immutable, so it is asked for once.


SPECS_CACHED_MAX: Final = 1_000


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
        found = await retry_while_unavailable(
            lambda: self._port(agents.spec, agent_id, version),
            log=_log,
            event="agent not read",
            rng=self._rng,
        )
        self._specs[key] = found
        if len(self._specs) > SPECS_CACHED_MAX:
            self._specs.popitem(last=False)
        return found


# ---


CACHED_MAX: Final = 100

_log = structlog.get_logger(__name__)


class Policies:
    """Finds them by claim; the pod's own configuration never asks the database."""

    def __init__(
        self,
        port: Port,
        *,
        config_id: int,
        config: RuntimeConfig,
        agents: AgentSpecCache,
        rng: random.Random,
    ) -> None:
        self.agents = agents
        self.config_id = config_id
        """What jobs that begin on this pod keep."""
        self._port = port
        self._rng = rng
        self._own = config
        self._others: OrderedDict[int, RuntimeConfig] = OrderedDict()

    async def policy(self, claim: Claim) -> JobPolicy:
        """Return how often and how long the job may be tried."""
        try:
            config = await self._config(claim.config_id)
            agent = await self._agent(claim)
        except CortexError as error:
            # Asked for when an attempt fails: to raise here would fail the pod in its place.
            _log.warning("policy not read", job=str(claim.lease.job_id), error=error.message)
            return self._own.policy(claim.type)
        policy = config.policy(claim.type)
        return policy if agent is None else _overridden(policy, agent)

    async def limits(self, claim: Claim) -> JobLimits:
        """Return the prices and the limits of the job's calls.

        Raises `UsageError` for what this version of Cortex cannot read.
        """
        config = await self._config(claim.config_id)
        policy = config.policy(claim.type)
        agent = await self._agent(claim)
        given = None if agent is None else agent.limits
        return JobLimits(
            prices=config.prices,
            call_s=(given and given.call_timeout_seconds) or policy.call_s,
            idle_s=(given and given.idle_timeout_seconds) or TIMEOUTS["llm_idle"].default_s,
            connect_s=(given and given.connect_timeout_seconds) or policy.connect_s,
            step_s=(given and given.step_timeout_seconds) or TIMEOUTS["step"].default_s,
        )

    async def _config(self, config_id: int | None) -> RuntimeConfig:
        if config_id is None or config_id == self.config_id:
            return self._own
        if config_id not in self._others:
            stored = await retry_while_unavailable(
                lambda: self._port(configs.spec, config_id),
                log=_log,
                event="configuration not read",
                rng=self._rng,
            )
            self._others[config_id] = _read(stored, config_id)
        self._others.move_to_end(config_id)
        if len(self._others) > CACHED_MAX:
            self._others.popitem(last=False)
        return self._others[config_id]

    async def _agent(self, claim: Claim) -> AgentSpec | None:
        if claim.agent_id is None or claim.agent_version is None:
            return None
        return AgentSpec.from_json(await self.agents.spec(claim.agent_id, claim.agent_version))


def _read(stored: dict[str, Any], config_id: int) -> RuntimeConfig:
    try:
        return RuntimeConfig.from_json(stored)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(
            f"configuration {config_id}, with which the job began, cannot be read: {error!r}",
            hint="run pods of one version of Cortex, the newest one that has run here",
        ) from error


def _overridden(policy: JobPolicy, agent: AgentSpec) -> JobPolicy:
    """Return the policy as the agent has it; attempts and the time-out stand on the job itself."""
    given = agent.limits.backoff
    if given is None:
        return policy
    known = policy.backoff
    return attrs.evolve(
        policy,
        backoff=Backoff(
            base_s=known.base_s if given.base_seconds is None else given.base_seconds,
            cap_s=known.cap_s if given.cap_seconds is None else given.cap_seconds,
            multiplier=known.multiplier if given.multiplier is None else given.multiplier,
        ),
    )
