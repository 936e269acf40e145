"""A whole pod with real jobs: a scrape returns their outcomes."""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.agent.spec import AgentSpec
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import standard_parts
from cortex.runtime.pod_ready import Ready
from cortex.store import retries, specs
from cortex.store.specs import SpecKind
from tests.support.apps import pod_app
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.rows import job_row, new_id, submit
from tests.support.scrape import Scrape, read
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import API_KEY, ScriptedModel, program, scripted_model


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as server:
        yield server


@pytest.fixture
async def pod(
    database: str, model: ScriptedModel, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Ready]:
    """A pod in this process; it is drained when the test is done."""
    client = AnthropicModel(standard(api_key=API_KEY, base_url=model.base_url))
    parts = attrs.evolve(standard_parts(apps=[pod_app], workspaces=tmp_path), client=client)
    shutdown, begun, ended = Shutdown(), trio.Event(), trio.Event()
    found: list[Ready] = []

    def ready(it: Ready) -> None:
        found.append(it)
        begun.set()

    async def run() -> None:
        await run_pod(
            Settings(settle_s=0, poll_s=0.2, pre_stop_s=0, abort_s=5, closed_s=9),
            dsn=database,
            parts=parts,
            chance=system_chance(),
            shutdown=shutdown,
            on_ready=ready,
        )
        ended.set()

    before = gc.get_threshold()
    nursery.start_soon(run)
    with trio.fail_after(WITHIN_S):
        await begun.wait()
    yield found[0]
    shutdown.request()
    with trio.fail_after(WITHIN_S):
        await ended.wait()
    await client.aclose()
    gc.unfreeze()
    gc.set_threshold(*before)


async def scrape(pod: Ready) -> Scrape:
    text, _ = await pod.metrics.exposition()
    return read(text)


async def until(dsn: str, job_id: UUID, status: str) -> dict[str, Any]:
    """Wait for a state of a job, off the loop that runs it."""

    async def look() -> dict[str, Any] | None:
        row = await trio.to_thread.run_sync(job_row, dsn, job_id)
        return row if row["status"] == status else None

    found: dict[str, Any] | None = await eventually_async(look, what=f"job is {status}")
    return found or {}


async def until_told(pod: Ready, name: str, *labels: str, value: float) -> Scrape:
    """Wait until a figure is exported: the row of a job is there just before its pod counts it."""

    async def look() -> Scrape | None:
        page = await scrape(pod)
        return page if page.get(name, *labels) == value else None

    found: Scrape | None = await eventually_async(look, what=f"{name} {labels} is {value}")
    assert found
    return found


async def test_scrape_counts_completed_jobs(pod: Ready, database: str) -> None:
    for job_id in [submit(database, "noop") for _ in range(3)]:
        await until(database, job_id, "COMPLETED")
    await until(database, submit(database, "steps", {"count": 4}), "COMPLETED")
    page = await until_told(pod, "cortex_jobs_ended_total", "steps", "COMPLETED", value=1)
    assert page["cortex_claims_total", "noop"] == 3
    assert page["cortex_jobs_ended_total", "noop", "COMPLETED"] == 3
    assert page["cortex_queue_wait_seconds_count"] == 4
    assert page["cortex_job_attempts_bucket", "1.0"] == 4
    assert page["cortex_step_seconds_count", "step"] == 4
    assert page["cortex_commit_operations_sum"] == 4 + 4
    assert page["cortex_commit_seconds_count"] == page["cortex_commit_operations_count"] > 0
    assert page["cortex_loop_lag_seconds_count"] > 0
    assert page.sum("cortex_errors_total") == page.sum("cortex_retries_total") == 0
    assert page["cortex_attempt_errors_total", "noop"] == 0
    assert page["cortex_database_up"] == 1


async def retried(pod: Ready, dsn: str, how: str, layer: str) -> Scrape:
    """Let a job fail once, then try again at once and go well."""
    job_id = submit(dsn, "flaky", {"how": how})
    await until_told(pod, "cortex_retries_total", layer, value=1)
    await pod.port(retries.retry_now, job_id, by="test", reason="now", new_id=new_id)
    await until(dsn, job_id, "COMPLETED")
    return await until_told(pod, "cortex_retries_succeeded_total", layer, value=1)


@pytest.mark.parametrize(
    "how, layer, error",
    [
        ("infra", "worker", ("TRANSIENT_INFRA", "connection_reset")),
        ("app", "application", ("TRANSIENT_APP", "transient")),
    ],
)
async def test_scrape_counts_a_successful_retry(
    pod: Ready, database: str, how: str, layer: str, error: tuple[str, str]
) -> None:
    page = await retried(pod, database, how, layer)
    assert page["cortex_errors_total", *error] == page.sum("cortex_errors_total") == 1
    assert page["cortex_attempt_errors_total", "flaky"] == 1
    assert page["cortex_claims_total", "flaky"] == 2
    assert page["cortex_queue_wait_seconds_count"] == 1
    assert page["cortex_job_attempts_sum"] == 2
    assert page["cortex_retry_seconds_count", layer] == 1
    assert page["cortex_retry_seconds_sum", layer] > 0
    assert page.sum("cortex_dead_letters_total") == 0


async def test_scrape_counts_a_failed_job(pod: Ready, database: str) -> None:
    await until(database, submit(database, "steps", json_text="[1]"), "FAILED")
    page = await until_told(pod, "cortex_dead_letters_total", "steps", value=1)
    assert page["cortex_jobs_ended_total", "steps", "FAILED"] == 1
    assert page["cortex_errors_total", "PERMANENT", "invalid_value"] == 1
    assert page["cortex_dead_letters_unresolved", "OPEN"] + page[
        "cortex_dead_letters_unresolved", "ESCALATED"
    ] == len(sql(database, "SELECT FROM cortex.dead_letter"))


def ask(dsn: str, name: str, turn: dict[str, Any]) -> UUID:
    return submit(dsn, "ask", {"model": name, "prompt": program(turn, mark=name)})


async def test_scrape_counts_a_repeated_call(pod: Ready, database: str) -> None:
    turn = {"text": "all is well", "status": 529, "times": 1}
    await until(database, ask(database, "scripted", turn), "COMPLETED")
    page = await until_told(pod, "cortex_jobs_ended_total", "ask", "COMPLETED", value=1)
    assert page["cortex_errors_total", "TRANSIENT_APP", "overloaded"] == 1
    assert page["cortex_attempt_errors_total", "ask"] == 0
    assert page["cortex_retries_total", "step"] == 1
    assert page["cortex_retries_succeeded_total", "step"] == 1
    assert page["cortex_llm_seconds_count", "scripted", "failed"] == 1
    assert page["cortex_llm_seconds_count", "scripted", "kept"] == 1
    assert page["cortex_llm_tokens_total", "scripted", "output"] > 0
    assert page["cortex_llm_cost_usd_total", "scripted"] > 0
    assert page["cortex_step_seconds_count", "model"] == 1


async def test_scrape_shows_an_open_breaker(pod: Ready, database: str) -> None:
    job_id = ask(database, "lost", {"text": "one two", "fault": "early_end"})
    await until(database, job_id, "RETRY")
    page = await until_told(pod, "cortex_suspensions_total", "llm", value=1)
    assert page["cortex_breaker_openings_total", "llm"] == 1
    assert page["cortex_breaker_state", "llm:lost"] == 2
    assert page["cortex_llm_seconds_count", "other", "failed"] == 3, "its price is not known"
    assert page["cortex_jobs", "RETRY"] == 1
    assert page["cortex_retries_total", "application"] == 0


async def test_scrape_counts_a_failing_tool(pod: Ready, database: str) -> None:
    spec = AgentSpec(name="tester", model="scripted", system="You test.", tools=("break_down",))
    await pod.port(
        specs.apply, SpecKind.AGENT, new_id=new_id(), name=spec.name, spec=spec.to_json(), by="test"
    )
    asked = {"tools": [{"name": "break_down", "input": {"why": "out of paper"}}]}
    prompt = program(asked, {"text": "I give up"}, mark="tool")
    job_id = submit(database, "run_agent", {"prompt": prompt}, agent="tester")
    await until(database, job_id, "COMPLETED")
    page = await until_told(pod, "cortex_jobs_ended_total", "run_agent", "COMPLETED", value=1)
    assert page["cortex_tool_errors_total", "break_down"] == 1
    assert page["cortex_tool_seconds_count", "break_down", "failed"] == 1
    assert page["cortex_errors_total", "TRANSIENT_INFRA", "job_failed"] == 1
    assert page["cortex_step_seconds_count", "tool"] == 1
