"""What a job began with: its policy, prices and limits, on every attempt and on every pod.

A configuration and an agent's version are immutable, so each is read once and kept.

On failure: an outage is waited out; the limits of the job around it decide how long. A
configuration of another version of Cortex that cannot be read hands the job back to another pod;
if its attempt has failed for another reason, this pod's own policy decides how that ends.
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_locked, retry_while_unavailable
from cortex.agent.spec import AgentSpec
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, MisfitKind, UnfitCodeError
from cortex.domain.job import RUN_FLOW, Claim
from cortex.domain.job_limits import JobLimit
from cortex.domain.known_tool import KnownTool
from cortex.domain.policy import JobPolicy, RuntimeConfig
from cortex.domain.queueing.submit_rules import SubmitRule
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.attempt import JobLimits
from cortex.postgres.bridge import Port
from cortex.store import codes, configs, jobs, mcp, specs
from cortex.store import limits as job_limits
from cortex.store.codes import Code
from cortex.store.specs import SpecKind

SPECS_CACHED_MAX: Final = 1_000

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class SpecCache:
    """Finds specifications of agents and flows; drops those least recently used.

    Versions are immutable, so each is read once.
    """

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self._specs: OrderedDict[tuple[SpecKind, UUID | str, int], dict[str, Any]] = OrderedDict()

    async def newest_agent(self, name: str) -> tuple[UUID, int]:
        """Return an agent's id and newest version. Raises `NotFoundError`."""
        return await self._answered(SpecKind.AGENT, lambda: self._port(specs.newest_agent, name))

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON. Raises `NotFoundError`."""
        return await self._spec(SpecKind.AGENT, agent_id, version)

    async def flow(self, name: str, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON. Raises `NotFoundError`."""
        return await self._spec(SpecKind.FLOW, name, version)

    async def known_tools(self, agent: str, server: str, identity: str) -> list[KnownTool]:
        """Return what is on record about the tools of an MCP server."""
        return await self._answered(
            SpecKind.AGENT, lambda: self._port(mcp.known, agent, server, identity)
        )

    async def note_tools(
        self, agent: str, server: str, identity: str, *, tools: dict[str, str], named: list[str]
    ) -> list[KnownTool]:
        """Record what a server says about its tools; return what is on record."""

        def note() -> Awaitable[list[KnownTool]]:
            return self._port(mcp.note, agent, server, identity, tools=tools, named=named)

        return await self._answered(SpecKind.AGENT, note)

    async def _spec(self, kind: SpecKind, series: UUID | str, version: int) -> dict[str, Any]:
        key = (kind, series, version)
        if key not in self._specs:
            self._specs[key] = await self._answered(kind, lambda: self._port(specs.spec, *key))
        self._specs.move_to_end(key)
        if len(self._specs) > SPECS_CACHED_MAX:
            self._specs.popitem(last=False)
        return self._specs[key]

    async def _answered(self, kind: SpecKind, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_while_unavailable(
            call, log=_log, event=f"{kind} not read", rng=self._rng
        )


CACHED_MAX: Final = 100


class Policies:
    """Finds policies by claim; the pod's own configuration needs no database."""

    def __init__(
        self,
        port: Port,
        *,
        config_id: int,
        config: RuntimeConfig,
        code_id: int,
        rng: random.Random,
    ) -> None:
        self.specs = SpecCache(port, rng=rng)
        self.config_id = config_id
        """The configuration that jobs keep which begin on this pod."""
        self.code_id = code_id
        """The code of this pod, by its id in the database."""
        self._port = port
        self._rng = rng
        self._own = config
        self._others: OrderedDict[int, RuntimeConfig] = OrderedDict()
        self._limits: dict[str, JobLimits] = {}
        """Those of this pod's configuration, by job type."""

    async def policy(self, claim: Claim) -> JobPolicy:
        """Return the job's attempts and time-outs."""
        try:
            config = await self._config(claim.config_id)
            agent = await self._agent(claim)
        except CortexError as error:
            # Needed when an attempt fails: an exception here would fail the pod instead.
            _log.warning("policy not read", job=str(claim.lease.job_id), error=error.message)
            return self._own.policy(claim.type)
        policy = config.policy(claim.type)
        return policy if agent is None else _overridden(policy, agent)

    def known_limits(self, claim: Claim) -> JobLimits | None:
        """Return the limits if that takes no database: of a job that began here without agent."""
        if claim.agent_id is not None or claim.config_id != self.config_id:
            return None
        limits = self._limits.get(claim.type)
        if limits is None:
            limits = self._limits[claim.type] = _limits(self._own, claim.type, None)
        return limits

    async def limits(self, claim: Claim) -> JobLimits:
        """Return the prices and the limits of the job's calls.

        Raises `UnfitCodeError` for what this version of Cortex cannot read.
        """
        known = self.known_limits(claim)
        if known is not None:
            return known
        config = await self._config(claim.config_id)
        return _limits(config, claim.type, await self._agent(claim))

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
        return AgentSpec.from_json(await self.specs.agent(claim.agent_id, claim.agent_version))


def _limits(config: RuntimeConfig, job_type: str, agent: AgentSpec | None) -> JobLimits:
    policy = config.policy(job_type)
    given = None if agent is None else agent.limits
    call_s = (given and given.call_timeout_seconds) or policy.call_s
    if job_type == RUN_FLOW:
        call_s = min(call_s, TIMEOUTS["flow_llm_call"].hard_s)
    return JobLimits(
        prices=config.prices,
        call_s=call_s,
        idle_s=(given and given.idle_timeout_seconds) or TIMEOUTS["llm_idle"].default_s,
        connect_s=(given and given.connect_timeout_seconds) or policy.connect_s,
        step_s=(given and given.step_timeout_seconds) or TIMEOUTS["step"].default_s,
    )


def _read(stored: dict[str, Any], config_id: int) -> RuntimeConfig:
    try:
        return RuntimeConfig.from_json(stored)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UnfitCodeError(
            f"configuration {config_id}, with which the job began, cannot be read: {error!r}",
            kind=MisfitKind.CONFIG,
            hint="run pods of one version of Cortex, the newest one that has run here",
        ) from error


def _overridden(policy: JobPolicy, agent: AgentSpec) -> JobPolicy:
    """Return the policy with the agent's overrides; attempts and time-out are the job's own."""
    given = agent.limits.backoff
    if given is None:
        return policy
    own = policy.backoff
    return attrs.evolve(
        policy,
        backoff=Backoff(
            base_s=own.base_s if given.base_seconds is None else given.base_seconds,
            cap_s=own.cap_s if given.cap_seconds is None else given.cap_seconds,
            multiplier=own.multiplier if given.multiplier is None else given.multiplier,
        ),
    )


async def begin(
    port: Port,
    *,
    config: RuntimeConfig,
    code: Code,
    limits: Mapping[str, Sequence[JobLimit]],
    rules: Mapping[str, SubmitRule | None],
    rng: random.Random,
) -> Policies:
    """Record a pod's code, the limits and rules of its types, and its configuration.

    Jobs that begin on it keep the configuration. The others hold for all pods from now on.

    Another pod may hold what this needs, for as long as the server lets its transaction idle.
    """

    async def record() -> tuple[int, int]:
        crash_point("before_enter")
        await port(jobs.ensure_types, config.policies)
        await port(job_limits.declare, limits)
        await port(jobs.ensure_rules, rules)
        config_id = await port(configs.ensure, config.to_json())
        code_id = await port(codes.ensure, code)
        crash_point("after_enter")
        return config_id, code_id

    config_id, code_id = await retry_while_locked(
        record, log=_log, event="pod not recorded", rng=rng
    )
    return Policies(port, config_id=config_id, config=config, code_id=code_id, rng=rng)
