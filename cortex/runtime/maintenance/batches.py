"""Sends model calls that wait in batches, reads the results, and wakes their jobs.

Reads and writes: batches and their calls, their reservations, and jobs that wait for a batch.
Invariants: a batch is in the hands of one process at a time, and on record before it is sent. A
call is in one batch that may have been sent, never in two: after a loss in the middle of sending
its batch is first looked for at the provider, by the ids in the results of those of that time,
which takes until they have ended. What is known to be sent twice nevertheless (a process that was
stopped while it sent) is cancelled and logged.

On failure: an outage of the database is waited out. What a provider refuses for good is called
directly by the jobs; what it refuses for now waits. After three days without an answer about what
became of a batch its calls are booked as lost, and are called directly.
On stop: nothing to do; other pods go on with open batches.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.runner import SOON_S, Runner, TickBudget, TickResult
from cortex.agent.models.batch_api import BatchApi, BatchModels, BatchResult, RemoteBatch
from cortex.agent.models.batched import of_kept
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.agent.models.files import PromptFiles
from cortex.crash_points import crash_point
from cortex.domain.classification import failure_of
from cortex.domain.clock import Chance
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.limits import MODEL_RESPONSE
from cortex.domain.model import Capabilities
from cortex.domain.policy import RuntimeConfig
from cortex.domain.prices import LIST_PRICES, PriceTable
from cortex.durable.codec import encode
from cortex.postgres.bridge import Port
from cortex.runtime.calls.job_files import StoreFiles
from cortex.runtime.hints import BATCH, POD_LOST
from cortex.store import configs, model_batches
from cortex.store.model_batches import EndedCall, GatheredCall, OpenBatch, OpenCall

CALLS_MAX: Final = 1_000
BYTES_MAX: Final = 32_000_000
"""Of one batch, files included: the API takes 256 MB, and all of it is in memory for a moment."""
WAIT_S: Final = 60.0
"""How long the first call of a batch waits for others."""
PREPARE_S: Final = 300.0
"""After this long a batch is not sent any more: another process may soon look for it."""
SEND_S: Final = 120.0
"""For the creation of a batch."""
LEASE_S: Final = 900.0
"""How long a process has a batch in its hands: longer than all that it does with it."""
SETTLED_S: Final = 600.0
"""After this long a batch that was sent appears in the list of its provider."""
POLL_S: Final = 60.0
"""Between two looks at a batch that was sent."""
AGAIN_S: Final = 60.0
"""Until a batch is sent again that its provider refused for now."""
LOST_AFTER: Final = timedelta(days=3)
"""Results of a batch exist after a day, if it was created."""
SKEW: Final = timedelta(minutes=10)
"""Between the clocks of the database and of a provider."""
IDLE_S: Final = 5.0
"""While something waits."""
CHUNK: Final = 100
CHUNK_BYTES: Final = 8_000_000
TAKES_ALL: Final = Capabilities()
CONFIGS_MAX: Final = 100
NOT_CREATED: Final = frozenset(
    {
        *("rate_limit", "overloaded", "connect_timeout", "connection_refused"),
        *("host_lookup_failed", "host_unreachable", "network_unreachable", "tls_failed"),
    }
)
"""Codes of failures after which no batch exists."""

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class _Files:
    """Whose files a request refers to."""

    lineage_id: UUID
    call_s: float = SEND_S


class Batches(Runner):
    name = "batches"
    failure = "batches not read"
    woken_by = frozenset({BATCH, POD_LOST})

    def __init__(
        self,
        port: Port,
        *,
        models: BatchModels | None,
        chance: Chance,
        wait_s: float = WAIT_S,
    ) -> None:
        super().__init__(rng=chance.rng)
        self._port = port
        self._models = models
        self._new_id = chance.new_id
        self._wait_s = wait_s
        self._files = PromptFiles(StoreFiles(port=port, rng=chance.rng))
        self._prices: OrderedDict[int, PriceTable] = OrderedDict()

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Send what has gathered, look at one batch that is due, and wake jobs."""
        endpoints = () if self._models is None else self._models.batch_endpoints()
        outlook = await self._port(model_batches.outlook, endpoints)
        number = 0
        if outlook.is_waiting:
            number += await self._send(endpoints)
        is_due = outlook.due_in_s is not None and outlook.due_in_s <= 0
        if is_due:
            number += await self._look(endpoints)
        crash_point("before_batch_wake")
        woken = await self._port(model_batches.wake, limit=budget.items)
        if woken:
            crash_point("after_batch_wake")
        forgotten = await self._port(model_batches.forget)
        is_open = outlook.is_waiting or outlook.due_in_s is not None
        return TickResult(
            items=number + woken + forgotten,
            is_skipped=False,
            next_s=SOON_S if number or is_due else IDLE_S if is_open else None,
        )

    # --- a new batch

    async def _send(self, endpoints: Sequence[str]) -> int:
        """Put waiting calls into a batch, if it is time for them, and send it."""
        batch_id = self._new_id()
        crash_point("before_batch_gather")
        calls = await self._port(
            model_batches.gather,
            batch_id,
            endpoints,
            calls_max=CALLS_MAX,
            bytes_max=BYTES_MAX,
            wait_s=self._wait_s,
            lease_s=LEASE_S,
        )
        if not calls:
            return 0
        crash_point("after_batch_gather")
        await self._create(calls[0].endpoint, batch_id, calls)
        return len(calls)

    async def _create(self, endpoint: str, batch_id: UUID, calls: Sequence[GatheredCall]) -> None:
        """Send a batch, and record what is known about that."""
        api, began = self._api(endpoint), trio.current_time()
        async with AsyncExitStack() as stack:
            requests, unfit = await self._prepared(api, calls, stack)
            if unfit:
                await self._keep(batch_id, unfit)
            is_late = trio.current_time() - began > PREPARE_S
            if is_late or not requests:
                why = "it took too long to prepare" if is_late else "none of its calls can be sent"
                await self._unsend(batch_id, why, again_s=AGAIN_S)
                return
            try:
                remote = await api.create(requests, within_s=SEND_S)
            except (ModelRejectedError, UsageError) as error:
                await self._unsend(batch_id, error.message, again_s=None)
            except ModelUnavailableError as error:
                if failure_of(error).code in NOT_CREATED:
                    await self._unsend(batch_id, error.message, again_s=AGAIN_S)
                    return
                _log.warning("batch may be sent", batch=str(batch_id), error=error.message)
                await self._port(model_batches.put_off, batch_id, again_s=SETTLED_S)
            else:
                await self._adopt(api, endpoint, batch_id, remote)

    async def _prepared(
        self, api: BatchApi, calls: Sequence[GatheredCall], stack: AsyncExitStack
    ) -> tuple[dict[str, Any], list[EndedCall]]:
        """Return what is sent, by custom ids, and the calls that cannot be sent so."""
        assert self._models is not None  # noqa: S101 -- else nothing was gathered
        requests: dict[str, Any] = {}
        unfit: list[EndedCall] = []
        for call in calls:
            request = of_kept(call.request)
            request = attrs.evolve(request, model=self._models.named_there(call.model))
            files = self._files.put_in(request, _Files(lineage_id=call.lineage_id), TAKES_ALL)
            try:
                filled = await stack.enter_async_context(files)
                requests[str(call.id)] = await api.prepared(filled)
            except CortexError as error:
                unfit.append(EndedCall.failed(call.id, error.message))
        return requests, unfit

    async def _adopt(
        self, api: BatchApi, endpoint: str, batch_id: UUID, remote: RemoteBatch
    ) -> None:
        """Record the provider's id of a batch; cancel it if its calls are elsewhere by now."""
        crash_point("before_batch_sent")
        is_new = await self._port(model_batches.sent, batch_id, remote.id, again_s=POLL_S)
        crash_point("after_batch_sent")
        if is_new:
            _log.info("batch sent", batch=str(batch_id), remote=remote.id, calls=remote.call_count)
            return
        known = await self._port(model_batches.others, endpoint, [remote.id])
        if remote.id in known:
            return
        _log.error("batch sent twice, cancelled", batch=str(batch_id), remote=remote.id)
        await api.cancel(remote.id)

    async def _unsend(self, batch_id: UUID, why: str, *, again_s: float | None) -> None:
        _log.warning("batch not sent", batch=str(batch_id), error=why)
        crash_point("before_batch_unsend")
        await self._port(model_batches.unsend, batch_id, why, again_s=again_s)
        crash_point("after_batch_unsend")

    # --- open batches

    async def _look(self, endpoints: Sequence[str]) -> int:
        """Look at one batch that is due."""
        crash_point("before_batch_look")
        batch = await self._port(model_batches.claim, endpoints, lease_s=LEASE_S)
        if batch is None:
            return 0
        crash_point("after_batch_look")
        api = self._api(batch.endpoint)
        try:
            if batch.remote_id is None:
                return await self._search(api, batch)
            remote = await api.retrieve(batch.remote_id)
            if not remote.has_ended:
                await self._port(model_batches.put_off, batch.id, again_s=POLL_S)
                return 0
            return await self._read(api, batch, batch.remote_id)
        except (ModelRejectedError, ModelUnavailableError, UsageError) as error:
            _log.warning("batch not read", batch=str(batch.id), error=error.message)
            is_gone = batch.remote_id is not None and failure_of(error).code == "not_found"
            if is_gone or batch.now - batch.created_at > LOST_AFTER:
                await self._give_up(batch, error)
                return 1
            await self._port(model_batches.put_off, batch.id, again_s=POLL_S)
            return 0

    async def _give_up(self, batch: OpenBatch, error: CortexError) -> None:
        """End a batch of which nothing more is to be learned: its calls are booked as lost."""
        why = f"nobody knows what became of its batch: {error.message}"
        is_sent = batch.remote_id is not None
        lost = await self._end(batch.id, are_lost=not is_sent, why=why)
        _log.error("batch lost", batch=str(batch.id), calls=lost, error=error.message)

    async def _read(self, api: BatchApi, batch: OpenBatch, remote_id: str) -> int:
        """Keep the results of a batch that has ended."""
        calls = {str(each.id): each for each in await self._port(model_batches.calls, batch.id)}
        chunk: list[EndedCall] = []
        size = 0

        async def flush() -> None:
            nonlocal size
            if chunk:
                await self._keep(batch.id, chunk)
                chunk.clear()
                size = 0

        async def take(result: BatchResult) -> None:
            nonlocal size
            call = calls.get(result.custom_id)
            if call is None:
                return
            ended = await self._ended(call, result)
            chunk.append(ended)
            size += len(ended.answer or "")
            if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
                await flush()

        await api.results(remote_id, take)
        await flush()
        why = "its batch has no result of it"
        lost = await self._end(batch.id, are_lost=False, why=why)
        _log.info("batch ended", batch=str(batch.id), calls=len(calls), lost=lost)
        return len(calls)

    async def _keep(self, batch_id: UUID, ended: Sequence[EndedCall]) -> None:
        crash_point("before_batch_results")
        await self._port(model_batches.end_calls, batch_id, ended)
        crash_point("after_batch_results")

    async def _end(self, batch_id: UUID, *, are_lost: bool, why: str) -> int:
        """End a batch; return how many calls had no result."""
        crash_point("before_batch_end")
        lost: int = await self._port(model_batches.end, batch_id, are_lost=are_lost, why=why)
        crash_point("after_batch_end")
        return lost

    async def _ended(self, call: OpenCall, result: BatchResult) -> EndedCall:
        usage, answer, failure = result.usage, None, result.failure
        if result.response is not None:
            try:
                what = "the answer in a batch"
                answer = encode(result.response.to_json(), what=what, limit=MODEL_RESPONSE)
            except CortexError as error:
                failure = error.message
        cost_usd: Decimal | None = None
        if usage is not None:
            prices = await self._prices_of(call.config_id)
            cost_usd = prices.cost(call.model, usage)
        return EndedCall(
            id=call.id,
            answer=answer,
            usage=None if usage is None else usage.to_json(),
            cost_usd=cost_usd,
            failure=failure,
        )

    async def _prices_of(self, config_id: int | None) -> PriceTable:
        """Return the prices of the configuration that a job began with."""
        if config_id is None:
            return LIST_PRICES
        if config_id not in self._prices:
            stored = await self._port(configs.spec, config_id)
            self._prices[config_id] = RuntimeConfig.from_json(stored).prices
            if len(self._prices) > CONFIGS_MAX:
                self._prices.popitem(last=False)
        return self._prices[config_id]

    # --- a batch whose sender was lost

    async def _search(self, api: BatchApi, batch: OpenBatch) -> int:
        """Find out whether a batch was created, by the results of those of that time."""
        if batch.now - batch.created_at < timedelta(seconds=SETTLED_S):
            await self._port(model_batches.put_off, batch.id, again_s=SETTLED_S)
            return 0
        ids = {str(each.id) for each in await self._port(model_batches.calls, batch.id)}
        found = [
            each for each in await api.since(batch.created_at - SKEW) if each.call_count == len(ids)
        ]
        others = await self._port(model_batches.others, batch.endpoint, [each.id for each in found])
        found = [each for each in found if each.id not in others]
        for each in filter(lambda one: one.has_ended, found):
            if await _has_one_of(api, each, ids):
                await self._adopt(api, batch.endpoint, batch.id, each)
                return 1
        if any(not each.has_ended for each in found):
            await self._port(model_batches.put_off, batch.id, again_s=POLL_S)
            return 0
        await self._unsend(batch.id, "it was not created", again_s=0.0)
        return 1

    def _api(self, endpoint: str) -> BatchApi:
        assert self._models is not None  # noqa: S101 -- else there are no endpoints
        return self._models.batches(endpoint)


async def _has_one_of(api: BatchApi, remote: RemoteBatch, custom_ids: set[str]) -> bool:
    """Return whether a batch that has ended has calls of these ids."""
    seen: set[str] = set()

    async def take(result: BatchResult) -> None:
        seen.add(result.custom_id)

    await api.results(remote.id, take)
    return not seen.isdisjoint(custom_ids)
