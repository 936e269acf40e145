"""One pod's parts, a strict server of batches, and pods."""

from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.actors.runner import TickBudget, TickResult
from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.files import PromptFiles
from cortex.agent.models.providers import Models
from cortex.demo.batches import Batches as Served
from cortex.demo.script import Call, Refusal, Reply
from cortex.demo.server import ScriptedServer, serve
from cortex.domain.clock import system_chance
from cortex.domain.control_flow import Suspended
from cortex.domain.job import Claim, Suspend
from cortex.domain.model import ModelRequest
from cortex.domain.prices import LIST_PRICES
from cortex.durable.calls import Caller
from cortex.durable.step_outcome import StepOutcome
from cortex.runtime.calls.batches import StoreBatches
from cortex.runtime.calls.budget_guard import StoreBudgetGuard
from cortex.runtime.calls.job_files import StoreFiles
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.maintenance import batches as module
from cortex.runtime.maintenance.batches import Batches
from cortex.store import facts, tasks
from cortex.testing.services import ClosedBreakers, NoFacts
from tests.e2e.conftest import agent, database, gate, model, pods
from tests.runtime.conftest import bench, log_lines, port
from tests.support.records.factories import Bench
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

__all__ = ["agent", "bench", "database", "gate", "log_lines", "model", "pods", "port"]

MODEL = "claude-sonnet-5-5"


def answer(call: Call) -> Reply | Refusal:
    """Answer as the prompt says."""
    text = call.user_text(-1)
    if text.startswith("refuse"):
        return Refusal(status=400, error_type=text.removeprefix("refuse "))
    return Reply(content=({"type": "text", "text": f"heard {text}"},))


@attrs.define
class Stage:
    """Jobs that call a model in batches, and the runner that sends these."""

    bench: Bench
    dsn: str
    server: ScriptedServer
    models: Models = attrs.field(factory=Models)
    runner: Batches = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    @property
    def served(self) -> Served:
        return self.server.batches

    @property
    def paid(self) -> list[str]:
        """The prompts of all calls that were answered."""
        return [each["prompt"] for each in self.server.calls.as_json()["calls"]]

    def restart(self) -> None:
        """Have another process run the runner."""
        self.runner = Batches(self.bench.port, models=self.models, chance=system_chance())

    async def ask(self, claim: Claim, prompt: Any, *, key: str = "1", **fields: Any) -> StepOutcome:
        """Make a call as a step of a job does."""
        request = ModelRequest(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=100,
            batch=True,
            **fields,
        )
        port, rng = self.bench.port, self.bench.rng
        calls = ModelCalls(
            client=self.models,
            breakers=ClosedBreakers(),
            budget_guard=StoreBudgetGuard(
                port,
                pod_id=self.bench.pod.id,
                new_id=new_id,
                unsettled=PendingSettlements(port),
                rng=rng,
            ),
            facts=NoFacts(),
            rng=rng,
            files=PromptFiles(StoreFiles(port=port, rng=rng)),
            batches=StoreBatches(port=port, pod_id=self.bench.pod.id, models=self.models, rng=rng),
        )
        return await calls.respond(request, self.caller(claim, key))

    def caller(self, claim: Claim, key: str) -> Caller:
        return Caller(
            lease=claim.lease,
            lineage_id=claim.lineage_id or claim.lease.job_id,
            tenant=claim.tenant,
            agent_id=None,
            agent_version=None,
            config_id=None,
            key=key,
            prices=LIST_PRICES,
            call_s=60.0,
            idle_s=60.0,
            connect_s=10.0,
        )

    async def suspended(self, claim: Claim, prompt: Any, **fields: Any) -> None:
        """Make a call, and have its job wait as its attempt would."""
        with pytest.raises(Suspended) as raised:
            await self.ask(claim, prompt, **fields)
        wish = raised.value
        waits = Suspend(
            lease=claim.lease,
            delay_s=wish.delay_s,
            is_counted=False,
            waiting_on=wish.waiting_on,
            error=wish.reason,
        )
        await self.bench.port(tasks.suspend, pod_id=self.bench.pod.id, operations=[waits])

    async def waiting(self, *prompts: str) -> list[UUID]:
        """Have one job wait for each prompt."""
        claims = await self.bench.claimed(len(prompts))
        for claim, prompt in zip(claims, prompts, strict=True):
            await self.suspended(claim, prompt)
        return [each.lease.job_id for each in claims]

    async def tick(self, *, later: bool = True) -> TickResult:
        """Run the runner once. `later`: when everything that waits for time is due."""
        if later:
            hurry(self.dsn)
        return await self.runner.tick(TickBudget(items=100))

    async def until_over(self) -> None:
        """Run the runner until no call is open."""
        for _ in range(50):
            await self.tick()
            if not self.rows("done_at IS NULL"):
                return
        raise AssertionError(f"still open: {self.rows()}")

    async def until_woken(self) -> None:
        """Run the runner until no call is open, and once more."""
        await self.until_over()
        await self.tick()

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        query = f"SELECT * FROM cortex.model_batch_call WHERE {where} ORDER BY added_at"  # noqa: S608
        return [dict(row) for row in sql(self.dsn, query)]

    def states(self) -> list[str]:
        rows = sql(self.dsn, "SELECT state FROM cortex.model_batch ORDER BY created_at")
        return [row["state"] for row in rows]

    def has_task(self, job_id: UUID) -> bool:
        query = "SELECT worker_job_id FROM cortex.job_record WHERE id = $1"
        return sql(self.dsn, query, job_id)[0]["worker_job_id"] is not None

    async def costs(self, job_id: UUID) -> list[tuple[str, Decimal | None]]:
        found = await self.bench.port(facts.of_job, job_id)
        return [(each.data["outcome"], each.amount) for each in found if each.type == "cost"]


def hurry(dsn: str) -> None:
    """Have everything that waits for time be due."""
    sql(
        dsn,
        "UPDATE cortex.model_batch SET due_at = cortex.now() - interval '1 second', "
        "created_at = created_at - interval '11 minutes' "
        "WHERE ended_at IS NULL AND created_at > cortex.now() - interval '5 minutes'",
    )
    sql(
        dsn,
        "UPDATE cortex.model_batch SET due_at = cortex.now() - interval '1 second' "
        "WHERE ended_at IS NULL",
    )
    sql(
        dsn,
        "UPDATE cortex.model_batch_call SET ready_at = cortex.now() - interval '61 seconds' "
        "WHERE state = 'WAITING'",
    )


@pytest.fixture
async def stage(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    """A server whose batches end at once, and a pod's parts."""
    async with serve(answer) as server:
        server.batches.takes_s = 0.0
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "scripted-key")
        made = Stage(bench, database, server)
        yield made
        await made.models.aclose()


@attrs.define
class Killed(BaseException):
    """In place of a process's end."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Ends what the runner does at a crash point, once."""
    left: list[str] = []

    def passed(name: str) -> None:
        if name in left:
            left.remove(name)
            raise Killed

    monkeypatch.setattr(module, "crash_point", passed)
    yield left.append
    assert not left, f"never passed: {left}"
