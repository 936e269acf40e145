"""What agents pay for their prompts with a cache, compared with the same agents without one.

The pod, its client and its tools are real. The model is scripted; its server counts usage by the
rules of the Messages API: prefix match, minimum length, lifetime.
"""

import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import attrs
import orjson
import trio

from cortex.agent.limits import CacheTerms
from cortex.agent.models.anthropic import standard
from cortex.agent.spec import AgentSpec
from cortex.config import Settings
from cortex.demo import mail
from cortex.demo.job import DEMO_JOBS, SCRIPTED, SCRIPTED_MODEL, demo_agent
from cortex.demo.script import Call, Refusal, Reply, at_pace
from cortex.demo.script_inspect import inspect
from cortex.demo.script_tools import tools
from cortex.demo.server import serve
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import JobStatus, Submission
from cortex.durable.registry import Registry
from cortex.jobs.run_agent import run_agent
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import standard_parts
from cortex.runtime.pod_ready import Ready
from cortex.store import facts, jobs, specs
from cortex.store.facts import CostGroup, CostRow
from cortex.store.specs import SpecKind
from cortex.view.resource import Field

TURNS: Final = 30
DEMO: Final = "the demo's five"
LONG: Final = f"an agent of {TURNS} turns"
MOST: Final = {LONG: Decimal("0.25"), DEMO: Decimal("0.55")}
"""Share of the uncached input cost that each may pay."""
READ, WRITTEN = Decimal("0.1"), Decimal("1.25")
"""Prices of tokens read from the cache and written to it for five minutes; one of input is 1."""
FILE_BYTES: Final = 4_000
BOUND_S: Final = 120.0
SYSTEM: Final = "You read the parts of a book, one after another, and say what each is about. "
COLUMNS: Final = tuple(
    Field[dict[str, Any]](name=name, is_right=name not in ("agent", "ok"))
    for name in ("agent", "calls", "prompt_tokens", "read", "written", "share", "at_most", "ok")
)


def caching(dsn: str, settings: Settings, folder: Path) -> Iterator[dict[str, Any]]:
    """Run each agent with and without the cache; yield a row for each, with its bar."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request
    book = folder / "book"
    book.mkdir()
    for number in range(1, TURNS):
        Path(book, f"{number}.txt").write_text(f"{number} ".ljust(FILE_BYTES, "x"), "utf-8")
    found = trio.run(_measure, dsn, settings, book)
    for name, most in MOST.items():
        cached, plain = found[name, True], found[name, False]
        share = _input_cost(cached) / _input_cost(plain)
        yield {
            "agent": name,
            "calls": cached.calls,
            "prompt_tokens": plain.input_tokens,
            "read": cached.cache_read_tokens,
            "written": cached.cache_write_tokens,
            "share": f"{share:.3f}",
            "at_most": f"{most}",
            "ok": share <= most and cached.calls == plain.calls,
        }


def _input_cost(row: CostRow) -> Decimal:
    """Return what the prompts cost, in tokens of input at their full price."""
    cached = READ * row.cache_read_tokens + WRITTEN * row.cache_write_tokens
    return row.input_tokens + cached


def _script(call: Call) -> Reply | Refusal:
    return tools(call) if call.user_text(0).startswith("{") else inspect(call)


async def _measure(dsn: str, settings: Settings, book: Path) -> dict[tuple[str, bool], CostRow]:
    found: dict[tuple[str, bool], CostRow] = {}
    shutdown = Shutdown()

    async def work(port: Port) -> None:
        for is_cached in (True, False):
            found[LONG, is_cached] = await _run(port, *_long(book), is_cached=is_cached)
            found[DEMO, is_cached] = await _run(port, *_demo(), is_cached=is_cached)
        shutdown.request()

    def start(ready: Ready) -> None:
        ready.nursery.start_soon(work, ready.port)

    async with serve(at_pace(0, _script)) as server:
        parts = standard_parts(
            apps=[mail],
            workspaces=book.parent / "workspaces",
            endpoints=[standard(base_url=server.base_url, api_key="scripted")],
        )
        parts = attrs.evolve(parts, registry=Registry([DEMO_JOBS[SCRIPTED], run_agent]))
        await run_pod(
            settings,
            dsn=dsn,
            parts=parts,
            chance=system_chance(),
            shutdown=shutdown,
            on_ready=start,
        )
    return found


def _long(book: Path) -> tuple[str, AgentSpec, dict[str, Any]]:
    turns = [
        {"text": "The next part.", "tools": [{"name": "read_file", "input": {"path": f"{n}.txt"}}]}
        for n in range(1, TURNS)
    ]
    prompt = orjson.dumps({"turns": [*turns, {"text": "All parts are read."}]}).decode()
    agent = AgentSpec(
        name="reader",
        model=SCRIPTED_MODEL,
        system=SYSTEM * 20,
        tools=("list_files", "read_file", "run_command", "write_file"),
    )
    return run_agent.name, agent, {"prompt": prompt, "folder": str(book)}


def _demo() -> tuple[str, AgentSpec, dict[str, Any]]:
    checkout = Path(__file__).parent.parent
    payload = {"folder": str(checkout), "model": SCRIPTED_MODEL}
    return SCRIPTED, demo_agent(SCRIPTED, SCRIPTED_MODEL), payload


async def _run(
    port: Port, job_type: str, agent: AgentSpec, payload: dict[str, Any], *, is_cached: bool
) -> CostRow:
    """Run an agent's job to its end; return the usage of its calls."""
    chance = system_chance()
    if not is_cached:
        agent = attrs.evolve(agent, cache=CacheTerms(ttl="off"))
    await port(
        specs.apply,
        SpecKind.AGENT,
        new_id=chance.new_id(),
        name=agent.name,
        spec=agent.to_json(),
        by="bench",
    )
    job_id = chance.new_id()
    given = orjson.dumps(payload).decode()
    await port(jobs.submit, [Submission(id=job_id, type=job_type, payload=given, agent=agent.name)])
    await _ended(port, job_id)
    rows, _ = await port(facts.costs, by=CostGroup.JOB, since_s=BOUND_S * 10, limit=10)
    return next(each for each in rows if each.name == str(job_id))


async def _ended(port: Port, job_id: UUID) -> None:
    with trio.move_on_after(BOUND_S):
        while True:
            counts = await port(jobs.counts, [job_id])
            if counts.get(JobStatus.COMPLETED):
                return
            if any(status.is_terminal for status in counts):
                break
            await trio.sleep(0.1)
    raise TimedOutError(f"job {job_id} did not complete within {BOUND_S:g} s")
