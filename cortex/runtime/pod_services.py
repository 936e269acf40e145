"""The services that a pod gives to the contexts of its jobs."""

from collections.abc import Sequence
from uuid import UUID

from cortex.actors.runner import Runner
from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.files import PromptFiles
from cortex.domain.callbacks import Signer
from cortex.domain.clock import Chance
from cortex.domain.log_line import JobLog
from cortex.durable.attempt import Services
from cortex.durable.tracing import Tracing
from cortex.postgres.bridge import Port
from cortex.runtime.calls.arrivals import StoreArrivals
from cortex.runtime.calls.batches import StoreBatches
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.calls.budget_guard import StoreBudgetGuard
from cortex.runtime.calls.bulk_operations import StoreBulkOperations
from cortex.runtime.calls.callback_urls import StoreCallbacks
from cortex.runtime.calls.children import StoreChildren
from cortex.runtime.calls.effect_gateway import StoreEffectGateway
from cortex.runtime.calls.fact_sink import FactSink
from cortex.runtime.calls.job_files import StoreFiles
from cortex.runtime.calls.job_signals import StoreSignals
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.calls.store_clock import StoreClock
from cortex.runtime.commit.committer import Committer
from cortex.runtime.jobs.policies import Policies
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.maintenance.runners import RunnerUpkeep
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.outbox.job_notifications import StoreChannels
from cortex.runtime.pod_parts import PodParts
from cortex.runtime.self_fence import SelfFence


def services_of(
    *,
    parts: PodParts,
    port: Port,
    pod_id: UUID,
    policies: Policies,
    breakers: BreakerRegistry,
    unsettled: PendingSettlements,
    receipts: Receipts,
    committer: Committer,
    self_fence: SelfFence,
    arrivals: StoreArrivals,
    runners: Sequence[Runner],
    metrics: Metrics,
    tracing: Tracing,
    log: JobLog,
    chance: Chance,
    signer: Signer,
) -> Services:
    """Return the services of one pod, made of its actors."""
    rng = chance.rng
    files = StoreFiles(port=port, rng=rng)
    facts = FactSink(port, pod_id=pod_id, receipts=receipts, metrics=metrics)
    return Services(
        models=ModelCalls(
            client=parts.client,
            breakers=breakers,
            budget_guard=StoreBudgetGuard(
                port, pod_id=pod_id, new_id=chance.new_id, unsettled=unsettled, rng=rng
            ),
            facts=facts,
            files=PromptFiles(files),
            rng=rng,
            meter=metrics,
            batches=None
            if parts.batch_models is None
            else StoreBatches(port=port, pod_id=pod_id, models=parts.batch_models, rng=rng),
        ),
        tools=parts.tools,
        files=files,
        specs=policies.specs,
        policies=policies,
        breakers=breakers,
        facts=facts,
        gateway=StoreEffectGateway(
            port=port,
            committer=committer,
            self_fence=self_fence,
            new_id=chance.new_id,
            rng=rng,
        ),
        clock=StoreClock(port=port, rng=rng),
        bulk=StoreBulkOperations(port=port, rng=rng),
        upkeep=RunnerUpkeep(runners),
        channels=StoreChannels(port=port, chance=chance),
        signals=StoreSignals(port=port, pod_id=pod_id, rng=rng),
        arrivals=arrivals,
        callbacks=StoreCallbacks(port=port, pod_id=pod_id, signer=signer, rng=rng),
        publisher=committer,
        children=StoreChildren(port=port, pod_id=pod_id, chance=chance, rng=rng),
        workspaces=parts.workspaces,
        rng=rng,
        meter=metrics,
        tracing=tracing,
        resources=parts.registry.resources,
        log=log,
    )
