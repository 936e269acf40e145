"""The configuration a job began with: found on any pod, and read once."""

from collections.abc import MutableMapping
from decimal import Decimal
from typing import Any

import attrs
import pytest

from cortex.domain.backoff import Backoff
from cortex.domain.clock import system_chance
from cortex.domain.errors import CortexError
from cortex.domain.job import Claim
from cortex.domain.policy import JobPolicy, RuntimeConfig, policy_for
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from cortex.postgres.bridge import Port
from cortex.runtime.jobs import policies as module
from cortex.runtime.jobs.policies import Policies, begin
from cortex.store import codes, configs, jobs, specs
from cortex.store.codes import Code
from cortex.store.specs import SpecKind
from tests.support.records.factories import JOB_TYPE, a_claim
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import sql

USAGE = Usage(input_tokens=1_000_000)
SPEC = {"name": "tester", "model": "scripted", "system": "You test."}


@attrs.define
class CountingPort:
    """A port that counts its calls."""

    port: Port
    count: int = 0

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return await self.port(*args, **kwargs)


def a_config(usd: str, **policy: Any) -> RuntimeConfig:
    """One with this price of input, and a policy of `JOB_TYPE`."""
    prices = LIST_PRICES.with_overrides({"scripted": {"input": usd}})
    return RuntimeConfig(policies={JOB_TYPE: JobPolicy(**policy)}, prices=prices)


async def policies_of(port: Any, own: RuntimeConfig) -> Policies:
    """The policies of a pod started with this configuration."""
    own_id = await port(configs.ensure, own.to_json())
    return Policies(port, config_id=own_id, config=own, code_id=1, rng=seeded_random())


async def claim_of(port: Any, dsn: str, config_id: int | None = None, **limits: Any) -> Claim:
    """A claim of a job of an agent that overrides these limits."""
    spec = {**SPEC, "limits": limits}
    new_id = system_chance().new_id()
    version, _ = await port(
        specs.apply, SpecKind.AGENT, new_id=new_id, name="tester", spec=spec, by="ana"
    )
    (row,) = sql(dsn, "SELECT id FROM cortex.agent")
    return a_claim(agent_id=row["id"], agent_version=version, config_id=config_id)


async def test_job_begun_here_uses_the_pods_own_configuration(port: FaultyPort) -> None:
    own = a_config("7", backoff=Backoff(base_s=9), call_s=44, connect_s=5)
    counting = CountingPort(port)
    policies = await policies_of(counting, own)
    asked = counting.count
    for config_id in (None, policies.config_id):
        claim = a_claim(config_id=config_id)
        assert await policies.policy(claim) == own.policies[JOB_TYPE]
        limits = await policies.limits(claim)
        assert limits.prices.cost("scripted", USAGE) == 7
        assert (limits.call_s, limits.connect_s) == (44, 5)
        assert (limits.idle_s, limits.step_s) == (60, 600)
    assert counting.count == asked


async def test_job_keeps_the_configuration_of_the_pod_that_began_it(port: FaultyPort) -> None:
    before = a_config("7", backoff=Backoff(base_s=9), call_s=44)
    old_id = await port(configs.ensure, before.to_json())
    counting = CountingPort(port)
    policies = await policies_of(counting, a_config("8"))
    assert policies.config_id != old_id
    asked = counting.count
    claim = a_claim(config_id=old_id)
    for _ in range(3):
        assert await policies.policy(claim) == before.policies[JOB_TYPE]
        limits = await policies.limits(claim)
        assert limits.prices.cost("scripted", USAGE) == 7
        assert limits.call_s == 44
    assert counting.count == asked + 1
    assert (await policies.limits(a_claim())).prices.cost("scripted", USAGE) == 8


async def test_equal_configurations_share_one_id(port: FaultyPort) -> None:
    ids = [(await policies_of(port, a_config(usd))).config_id for usd in ("7", "7.0", "7.1")]
    assert ids[0] == ids[1] != ids[2]


async def test_a_job_type_without_a_row_has_the_default(port: FaultyPort) -> None:
    policies = await policies_of(port, a_config("7", call_s=44))
    assert await policies.policy(a_claim(type="run_agent")) == policy_for("run_agent")


async def test_agent_overrides_only_the_limits_it_sets(port: FaultyPort, database: str) -> None:
    config = a_config("7", backoff=Backoff(base_s=9, cap_s=99), call_s=44, max_retries=4)
    policies = await policies_of(port, config)
    claim = await claim_of(
        port,
        database,
        backoff={"base_seconds": 2, "multiplier": 5},
        call_timeout_seconds=30,
        idle_timeout_seconds=20,
        step_timeout_seconds=100,
    )
    policy = await policies.policy(claim)
    assert policy.backoff == Backoff(base_s=2, cap_s=99, multiplier=5)
    assert policy.max_retries == 4
    limits = await policies.limits(claim)
    assert (limits.call_s, limits.idle_s, limits.step_s) == (30, 20, 100)
    assert limits.connect_s == config.policies[JOB_TYPE].connect_s


async def test_an_agent_keeps_its_version_over_another_pods_configuration(
    port: FaultyPort, database: str
) -> None:
    old_id = await port(configs.ensure, a_config("7", backoff=Backoff(cap_s=77)).to_json())
    policies = await policies_of(port, a_config("8"))
    first = await claim_of(port, database, old_id, backoff={"base_seconds": 2})
    second = await claim_of(port, database, policies.config_id, backoff={"base_seconds": 3})
    assert (first.agent_version, second.agent_version) == (1, 2)
    assert (await policies.policy(first)).backoff == Backoff(base_s=2, cap_s=77)
    assert (await policies.policy(second)).backoff == Backoff(base_s=3)


async def test_cache_of_policies_is_bounded(
    port: FaultyPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHED_MAX", 2)
    old_ids = [await port(configs.ensure, a_config(str(n)).to_json()) for n in (1, 2, 3)]
    counting = CountingPort(port)
    policies = await policies_of(counting, a_config("8"))

    async def cost(config_id: int) -> Decimal | None:
        limits = await policies.limits(a_claim(config_id=config_id))
        return limits.prices.cost("scripted", USAGE)

    asked = counting.count
    assert [await cost(each) for each in old_ids] == [1, 2, 3]
    assert await cost(old_ids[2]) == 3
    assert counting.count == asked + 3
    assert await cost(old_ids[0]) == 1
    assert counting.count == asked + 4


async def test_policy_lookup_waits_out_an_outage(port: FaultyPort, database: str) -> None:
    """A job that asks during it is not to fail for it."""
    old_id = await port(configs.ensure, a_config("7").to_json())
    policies = await policies_of(port, a_config("8"))
    for _ in range(2):
        port.refuse(configs.spec)
    limits = await policies.limits(a_claim(config_id=old_id))
    assert limits.prices.cost("scripted", USAGE) == 7
    claim = await claim_of(port, database, call_timeout_seconds=30)
    port.refuse(specs.spec)
    assert (await policies.limits(claim)).call_s == 30
    assert not port.faults_left


async def test_unreadable_configuration_fails_the_job_and_not_the_pod(
    port: FaultyPort, database: str, log_lines: list[MutableMapping[str, Any]]
) -> None:
    own = a_config("8")
    policies = await policies_of(port, own)
    newer_id = await port(configs.ensure, {**own.to_json(), "policies": {JOB_TYPE: {"new": 1}}})
    of_config = a_claim(config_id=newer_id)
    of_agent = await claim_of(port, database, invented_seconds=5)
    of_nothing = a_claim(config_id=2**31 - 1)
    for claim, output in (
        (of_config, f"configuration {newer_id}"),
        (of_agent, "stored agent"),
        (of_nothing, "configuration 2147483647 does not exist"),
    ):
        with pytest.raises(CortexError, match=output):
            await policies.limits(claim)
        assert await policies.policy(claim) == own.policies[JOB_TYPE]
        assert log_lines[-1]["event"] == "policy not read"


@pytest.mark.parametrize(
    "method",
    [jobs.ensure_types, jobs.ensure_rules, configs.ensure, codes.ensure],
    ids=["types", "rules", "config", "code"],
)
async def test_pod_starts_once_a_locked_row_is_free(port: Port, method: Any) -> None:
    faulty = FaultyPort(port)
    faulty.refuse(method, is_locked=True)
    code = Code(version="1")
    for _ in range(2):
        found = await begin(
            faulty, config=a_config("1"), code=code, limits={}, rules={}, rng=seeded_random()
        )
        assert (found.config_id, found.code_id) == (1, 1)
    assert not faulty.faults_left
