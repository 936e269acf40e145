"""The cost of the last steps of a long job, compared with that of its first ones."""

from typing import Any

from cortex.bench.in_process import measure
from cortex.bench.throughput import until_done
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.job import Submission
from cortex.postgres import scratch
from cortex.postgres.bridge import Port
from cortex.store import jobs


def growth(dsn: str, settings: Settings, *, steps: int, window: int) -> dict[str, Any]:
    """Run one long job; compare the cost of its last steps with its first ones."""
    chance = system_chance()
    job = Submission(id=chance.new_id(), type="bench_steps", payload=f'{{"count":{steps}}}')

    async def fill(port: Port) -> None:
        await port(jobs.submit, [job])

    async def work(port: Port) -> tuple[float, float]:
        await until_done("bench_steps", 1)(port)
        return await port(scratch.step_spans, job.id, window)

    first_s, last_s = measure(dsn, settings, fill=fill, work=work)
    return {
        "steps": steps,
        "first_ms": round(1000 * first_s, 3),
        "last_ms": round(1000 * last_s, 3),
        "growth": round(last_s / first_s, 3),
    }
