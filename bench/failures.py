"""Cost of the safeguards: model calls behind breaker and budget, and jobs that fail once.

The model answers at once, in the same process, so only the runtime is measured: a call is admitted,
reserved in its budgets, booked with its cost, and its response is committed.
"""

from decimal import Decimal
from functools import partial
from typing import Any

from cortex.bench.in_process import measure
from cortex.bench.meter import metered
from cortex.bench.throughput import submit, until_done
from cortex.config import Settings
from cortex.domain.budget import Budget, Period, Scope, Unit
from cortex.domain.people import Identity
from cortex.postgres import scratch
from cortex.postgres.bridge import Port
from cortex.store import budgets
from cortex.store.people import system_user


def calls_per_s(
    dsn: str, settings: Settings, *, job_count: int, calls: int, with_budgets: bool
) -> dict[str, Any]:
    """Run jobs that make the given number of model calls each, one after another."""

    async def fill(port: Port) -> None:
        if with_budgets:
            await _give_budgets(port)
        await submit(port, "bench_calls", f'{{"count":{calls}}}', count=job_count)
        await port.cross(scratch.settle, dsn)

    work = partial(metered, until_done("bench_calls", job_count))
    done, cost = measure(dsn, settings, fill=fill, work=work)
    return {
        "jobs": job_count,
        "calls": calls,
        "budgets": 2 if with_budgets else 0,
        "calls_per_s": round(job_count * calls / done.elapsed_s),
        **cost.per("call", job_count * calls),
    }


def retries_per_s(dsn: str, settings: Settings, *, count: int) -> dict[str, Any]:
    """Run jobs that go to RETRY once and complete in their second attempt."""

    async def fill(port: Port) -> None:
        await submit(port, "bench_retry", "{}", count=count)
        await port.cross(scratch.settle, dsn)

    work = partial(metered, until_done("bench_retry", count))
    done, cost = measure(dsn, settings, fill=fill, work=work)
    return {
        "jobs": count,
        "retries_per_s": round(count / done.elapsed_s),
        **cost.per("job", count),
    }


async def _give_budgets(port: Port) -> None:
    """Create a money and a token budget that every call counts against and that never run out."""
    for unit in (Unit.USD, Unit.TOKENS):
        budget = Budget(scope=Scope.TENANT, subject="default", unit=unit, period=Period.DAY)
        limit = Decimal(1_000_000_000)
        by = Identity.from_system(system_user())
        await port(budgets.put, budget, limit=limit, by=by, reason="benchmark")
