"""Jobs in processes of their own: their work is recorded, and their death kills no pod.

Long because all of them run in the processes of one fork server, from one list of job types.
"""

import ctypes
import faulthandler
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from cortex.domain.classification import failure_of
from cortex.domain.errors import RejectedError, TimedOutError
from cortex.domain.job import BULK, Lease
from cortex.domain.log_line import Level
from cortex.durable.context import Context
from cortex.durable.job_log import LineBuffer
from cortex.durable.registry import Registry, Retry, job
from cortex.jobs.bulk import bulk
from cortex.runtime.isolation import fork_server as fork_server_module
from cortex.runtime.isolation import isolation
from cortex.runtime.isolation.fork_server import ForkServer, ForkServerCommand, start_fork_server
from cortex.runtime.isolation.isolation import Isolation
from cortex.runtime.isolation.runner import RunnerParts
from cortex.runtime.running import Stop
from cortex.store import jobs, tasks
from tests.support.eventually import eventually, eventually_async
from tests.support.records.bulk import a_request
from tests.support.records.dead_letters import fail
from tests.support.records.factories import Bench, EchoTools
from tests.support.records.rows import assert_one_truth, attempts, job_row, new_id
from tests.support.servers.postgres import sql

MEMORY_MB = 512
DEATHS_MAX = 3
APP = """
import os
from cortex.durable.context import Context
from cortex.durable.registry import job

@job("pid")
async def pid(_: Context) -> int:
    return os.getpid()
"""
ONCE = Retry(max=0, worker_attempts=1)


@job("steps")
async def steps_of_all_kinds(ctx: Context, name: str) -> dict[str, Any]:
    one = await ctx.step("one", process_id)
    said = await ctx.llm("ask", model="m", messages=[{"role": "user", "content": name}])
    tool = await ctx.tool("look", "look", {"at": name})
    sent = await ctx.effect("send", process_id)
    both = await ctx.gather(ctx.step("a", process_id), ctx.step("b", process_id))
    return {"pids": [one, sent, *both], "said": said.text, "tool": tool}


@job("segfault")
async def segfault(_: Context) -> None:
    faulthandler.disable()  # the traceback is not a finding
    ctypes.string_at(0)


@job("leaves")
async def leaves(_: Context) -> None:
    os._exit(3)


@job("eats")
async def eats(_: Context) -> None:
    eaten = []
    while True:
        eaten.append(bytes(2**24))


@job("grows")
async def grows(_: Context) -> int:
    assert len(b"x" * (MEMORY_MB * 2**20 * 3 // 5))
    return os.getpid()


@job("spins", timeout=1)
async def spins(_: Context) -> None:
    while True:
        pass


@job("steps_then_dies")
async def steps_then_dies(ctx: Context) -> None:
    for attempt in range(ctx.attempt):
        await ctx.step(f"attempt {attempt}", process_id)
    if ctx.attempt <= 4:
        os.kill(os.getpid(), signal.SIGKILL)


@job("raises", retry=ONCE)
async def raises(ctx: Context) -> None:
    try:
        await ctx.step("slow", trio.sleep_forever, timeout=0.05)
    except TimedOutError as error:
        raise RejectedError(f"after {error.limit_s} s") from error


@job("waits")
async def waits(ctx: Context) -> None:
    await ctx.approve("publish")


@job("hangs")
async def hangs(ctx: Context) -> None:
    await ctx.step("first", process_id)
    await ctx.step("hang", trio.sleep_forever)


@job("rests")
async def rests(ctx: Context) -> None:
    await ctx.sleep("cool off", days=2)


@job("pid")
async def pid(_: Context) -> int:
    return os.getpid()


@job("meddles")
async def meddles(ctx: Context) -> None:
    """Cancel other jobs, as a bulk operation does."""
    await ctx.services.bulk.choose(ctx.job_id, a_request(jobs=""))


@job("babbles")
async def babbles(_: Context, text: str) -> None:
    for number in range(3, 64):
        with suppress(OSError):
            stat.S_ISSOCK(os.fstat(number).st_mode) and os.write(number, bytes.fromhex(text))
    await trio.sleep_forever()


@job("returns_much", retry=ONCE)
async def returns_much(ctx: Context, how: str) -> Any:
    text = "x" * (MEMORY_MB * 2**20 * 3 // 5)
    if how == "step":
        return await ctx.step("x", str, text)
    return [{"text": text}]


@job("talks")
async def talks(ctx: Context) -> None:
    ctx.log("begun", level="warning", n=1)
    await ctx.step("say", lambda: sys.stdout.write("said\n"))
    sys.stdout.write("not ended")


@job("guarded")
async def guarded(ctx: Context) -> list[str]:
    breakers = ctx.services.breakers
    async with breakers.admit("tool:a") as admission:
        admission.opened(idle_s=1.0)
        await admission.succeeded()
    async with breakers.admit("tool:b"):  # left without a report
        pass
    async with breakers.admit("tool:c") as admission:
        await admission.failed(failure_of(ValueError("no")))
    return ["a", "b", "c"]


def start_daemon(path: Path) -> None:
    """Start a program in a session of its own, whose parent is gone."""
    daemon = f"setsid sh -c 'echo $$ > {path}; exec sleep 1000' &"
    subprocess.run(["/bin/sh", "-c", daemon], check=True)
    eventually(lambda: path.exists() and path.read_text() != "", what="the daemon runs")


@job("starts", timeout=5)
async def starts(_: Context, path: str, then: str) -> None:
    start_daemon(Path(path))
    if then == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "hangs":
        while True:
            pass


async def process_id() -> int:
    return os.getpid()


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def frame(**message: Any) -> bytes:
    text = json.dumps(message).encode()
    return len(text).to_bytes(4, "big") + text


TYPES = (
    *(steps_of_all_kinds, segfault, leaves, eats, grows, spins),
    *(steps_then_dies, raises, waits, rests, hangs, pid, guarded, babbles, bulk, meddles),
    *(starts, returns_much, talks),
)


def room_mb() -> int:
    """The limit for processes forked from this one: they begin with all that it holds."""
    held = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    assert held is not None
    return MEMORY_MB + int(held[1]) // 1024


@pytest.fixture
def fork_server(tmp_path: Path) -> Iterator[ForkServer]:
    parts = RunnerParts(
        registry=Registry(TYPES), tools=EchoTools(), workspaces=Path("workspaces"), cpu_s=60
    )
    app = tmp_path / "isolated_app.py"
    app.write_text(APP)
    wish: dict[str, object] = {
        "dsn": None,
        "key_variables": [],
        "secrets": [],
        "apps": [str(app)],
        "packages": [],
        "workspaces": str(tmp_path / "workspaces"),
        "is_unsafe": True,
        "cpu_s": 60,
        "memory_mb": MEMORY_MB,
        "workspace_bytes": 1 << 30,
    }
    again = ForkServerCommand(
        (sys.executable, "-P", "-m", "cortex.cli.run.fork_server"), json.dumps(wish).encode()
    )
    started = start_fork_server(parts.run, memory_mb=room_mb(), warm=parts.warm, again=again)
    yield started
    started.close()


@pytest.fixture
async def isolated(bench: Bench, fork_server: ForkServer) -> Bench:
    """A pod whose jobs all are suspects."""
    bench.registry = Registry(TYPES)
    bench.isolation = Isolation(
        fork_server, slots=4, memory_mb=MEMORY_MB, committer=bench.committer, running=bench.running
    )
    await bench.start(fork_server)
    await bench.start(bench.isolation)
    await bench.start_committing()
    return bench


async def runs(bench: Bench, dsn: str, kind: str, **fields: Any) -> UUID:
    """Submit a suspect and let it run."""
    (job_id,) = await bench.submit(type=kind, **fields)
    sql(dsn, "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = $1", job_id)
    await goes_on(bench, kind)
    return job_id


async def goes_on(bench: Bench, kind: str) -> None:
    (claim,) = await bench.port(tasks.claim, pod_id=bench.pod.id, types=[kind], limit=1)
    bench.run(claim)


async def result_of(bench: Bench, dsn: str, job_id: UUID) -> Any:
    await bench.running.wait_until_empty()
    return job_row(dsn, job_id)["result"]


async def test_everything_that_a_job_does_in_its_own_process_is_on_record(
    isolated: Bench, database: str
) -> None:
    job_id = await runs(isolated, database, "steps", payload='{"name": "ana"}')
    result = await result_of(isolated, database, job_id)
    (process,) = set(result.pop("pids"))
    assert process != os.getpid()
    assert result == {"said": "ana", "tool": {"at": "ana"}}
    keys = sql(database, "SELECT key FROM cortex.job_step ORDER BY seq")
    assert {row["key"] for row in keys} == {"one", "ask", "look", "send", "a", "b"}
    row = job_row(database, job_id)
    assert (row["checkpoint"]["seq"], row["checkpoint"]["input_tokens"]) == (6, 10)
    assert_one_truth(database)


@pytest.mark.parametrize("then", ["ends", "dies", "hangs"])
async def test_programs_that_a_job_has_started_end_with_it(
    isolated: Bench, database: str, tmp_path: Path, then: str
) -> None:
    path = tmp_path / "pid"
    payload = json.dumps({"path": str(path), "then": then})
    await runs(isolated, database, "starts", payload=payload)
    if then == "hangs":
        await eventually_async(path.exists, what="the daemon runs")
        isolated.running.end_all(Stop.CANCELLED)
    await isolated.running.wait_until_empty()
    await eventually_async(lambda: not is_alive(int(path.read_text())), what="the daemon is gone")


async def test_lines_of_an_isolated_job_reach_its_pod(isolated: Bench, database: str) -> None:
    buffer = LineBuffer(trio.current_time)
    isolated.log = buffer
    job_id = await runs(isolated, database, "talks")
    await isolated.running.wait_until_empty()
    lines = buffer.take(10)
    assert [(line.message, line.step, line.level) for line in lines] == [
        ("begun", None, Level.WARNING),
        ("said", "say", Level.INFO),
        ("not ended", None, Level.INFO),
    ]
    assert {line.lease for line in lines} == {Lease(job_id, 1)}


async def test_isolated_calls_pass_the_breakers_of_the_pod(isolated: Bench, database: str) -> None:
    result = await result_of(isolated, database, await runs(isolated, database, "guarded"))
    assert result == ["a", "b", "c"]


@pytest.fixture
def weight() -> bytes:
    """More than a runner may grow by, held by the process that forks them."""
    return b"x" * (MEMORY_MB * 2**20 * 3 // 5)


@pytest.mark.usefixtures("weight")
async def test_a_runner_that_behaves_is_used_again(isolated: Bench, database: str) -> None:
    first, second = [
        await result_of(isolated, database, await runs(isolated, database, "pid")) for _ in range(2)
    ]
    assert first == second != os.getpid()


async def test_runner_that_has_grown_is_not_reused(isolated: Bench, database: str) -> None:
    results = [
        await result_of(isolated, database, await runs(isolated, database, kind))
        for kind in ("grows", "pid")
    ]
    assert len({*results, os.getpid()}) == 3


async def test_after_a_death_a_job_gets_a_fresh_process(isolated: Bench, database: str) -> None:
    first = await result_of(isolated, database, await runs(isolated, database, "pid"))
    sql(database, "ALTER TABLE cortex.job_record ALTER process_deaths SET DEFAULT 1")
    second = await result_of(isolated, database, await runs(isolated, database, "pid"))
    assert first != second


@pytest.mark.parametrize(
    "kind, how",
    [
        ("segfault", "it was killed by signal 11 (SIGSEGV)"),
        ("leaves", "it ended itself with exit code 3"),
        ("eats", "it asked for more memory than isolated_mb allows"),
    ],
)
async def test_three_deaths_of_its_own_process_are_poison(
    isolated: Bench, database: str, kind: str, how: str
) -> None:
    neighbour = await runs(isolated, database, "hangs")
    job_id = await runs(isolated, database, kind)
    for number in range(1, DEATHS_MAX):
        await eventually_async(lambda: len(isolated.running) == 1, what="the process has died")
        row = job_row(database, job_id)
        found = row["process_deaths"], row["task_state"], row["attempts_spent"]
        assert found == (number, "READY", 0)
        await goes_on(isolated, kind)
    await eventually_async(lambda: len(isolated.running) == 1, what="the process has died")
    row = job_row(database, job_id)
    assert (row["status"], row["error_code"], row["error_class"]) == (
        "FAILED",
        "poison",
        "PERMANENT",
    )
    assert f"its own process died 3 times in a row: {how}" in row["error_message"]
    assert attempts(database, job_id) == [(1, "process_died"), (2, "process_died")]
    assert [row["job_id"] for row in sql(database, "SELECT * FROM cortex.dead_letter")] == [job_id]
    isolated.running.end(neighbour, 1, Stop.CANCELLED)
    await isolated.running.wait_until_empty()
    assert job_row(database, neighbour)["status"] == "CANCELLED"
    assert_one_truth(database)


async def test_a_step_resets_the_deaths_of_a_process(isolated: Bench, database: str) -> None:
    job_id = await runs(isolated, database, "steps_then_dies")
    for _ in range(4):
        await isolated.running.wait_until_empty()
        assert job_row(database, job_id)["process_deaths"] == 1
        await goes_on(isolated, "steps_then_dies")
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["checkpoint"]["seq"]) == ("COMPLETED", 5)


async def test_errors_are_judged_as_in_the_pod(isolated: Bench, database: str) -> None:
    job_id = await runs(isolated, database, "raises")
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "rejected")
    assert row["error_message"] == "after 0.05 s"
    (fact,) = sql(
        database, "SELECT data->>'stack' AS stack FROM cortex.fact WHERE job_id = $1", job_id
    )
    assert "in raises" in fact["stack"]


@pytest.mark.parametrize("how, what", [("nested", "result of"), ("step", "input of step 'x'")])
async def test_a_value_that_fills_the_memory_is_too_large(
    isolated: Bench, database: str, how: str, what: str
) -> None:
    payload = json.dumps({"how": how})
    job_id = await runs(isolated, database, "returns_much", payload=payload)
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["process_deaths"]) == ("FAILED", 0)
    assert row["error_message"].startswith(what)
    assert "bytes of JSON, more than" in row["error_message"]


async def test_a_job_that_sleeps_leaves_its_process(isolated: Bench, database: str) -> None:
    job_id = await runs(isolated, database, "rests")
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["waiting_on"], row["retry_count"]) == ("RETRY", "sleep", 0)


async def test_a_job_that_waits_for_people_leaves_its_process(
    isolated: Bench, database: str
) -> None:
    job_id = await runs(isolated, database, "waits")
    await isolated.running.wait_until_empty()
    assert job_row(database, job_id)["status"] == "WAITING_FOR_APPROVAL"
    (asked,) = sql(database, "SELECT key FROM cortex.approval")
    assert asked["key"] == "publish"


async def test_a_bulk_operation_may_run_in_a_process_and_no_other_job_does_its_work(
    isolated: Bench, database: str
) -> None:
    fail(database, 3)
    job_id = new_id()
    await isolated.port(jobs.submit, [a_request().submission(job_id)], by="ana")
    sql(database, "UPDATE cortex_worker.task SET is_suspect = true")
    await isolated.port(tasks.promote)
    await goes_on(isolated, BULK)
    result = await result_of(isolated, database, job_id)
    assert result["counts"]["resubmitted"] == 3
    sql(database, "DELETE FROM cortex_worker.task")
    job_id = await runs(isolated, database, "meddles")
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert row["status"] == "FAILED"
    assert "a job of type 'meddles' may not call choose of bulk" in row["error_message"]


async def test_a_busy_loop_ends_with_its_time_and_its_process(
    isolated: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "STOP_S", 0.1)
    job_id = await runs(isolated, database, "spins", timeout_s=1)
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["error_code"], row["process_deaths"]) == (
        "FAILED",
        "job_timed_out",
        0,
    )


async def test_a_pod_that_drains_hands_its_isolated_jobs_back(
    isolated: Bench, database: str
) -> None:
    job_id = await runs(isolated, database, "hangs")
    await eventually_async(lambda: job_row(database, job_id)["checkpoint"], what="its first step")
    isolated.running.end_all(Stop.HANDED_BACK)
    await isolated.running.wait_until_empty()
    assert attempts(database, job_id) == [(1, "handed_back")]
    row = job_row(database, job_id)
    assert (row["status"], row["task_state"], row["process_deaths"]) == ("RUNNING", "READY", 0)


async def test_a_runner_that_dies_on_a_pod_that_leaves_is_not_counted(
    isolated: Bench, database: str
) -> None:
    job_id = await runs(isolated, database, "segfault")
    isolated.running.leaving.set()
    await isolated.running.wait_until_empty()
    assert attempts(database, job_id) == [(1, "handed_back")]


async def test_a_forge_that_is_killed_is_replaced(
    isolated: Bench, fork_server: ForkServer, database: str
) -> None:
    job_id = await runs(isolated, database, "hangs")
    await eventually_async(lambda: job_row(database, job_id)["checkpoint"], what="its first step")
    os.kill(fork_server.pid, signal.SIGKILL)
    await isolated.running.wait_until_empty()
    assert attempts(database, job_id) == [(1, "handed_back")]
    assert isolated.actors().isolated_slots == 0
    await until_replaced(isolated)
    assert fork_server.restarts_count == 1
    result = await result_of(isolated, database, await runs(isolated, database, "pid"))
    assert result not in {os.getpid(), fork_server.pid}


async def until_replaced(bench: Bench) -> None:
    await eventually_async(
        lambda: bench.actors().isolated_slots > 0, what="another fork server is ready"
    )


async def test_a_forge_that_does_not_answer_is_replaced(
    isolated: Bench, fork_server: ForkServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server_module, "FORK_WITHIN_S", 0.1)
    os.kill(fork_server.pid, signal.SIGSTOP)
    job_id = await runs(isolated, database, "pid")
    await isolated.running.wait_until_empty()
    assert (job_row(database, job_id)["attempts_spent"], fork_server.restarts_count) == (0, 0)
    monkeypatch.undo()
    await eventually_async(lambda: fork_server.restarts_count, what="it is replaced")
    await until_replaced(isolated)
    assert await result_of(isolated, database, await runs(isolated, database, "pid"))


async def test_ending_pod_does_not_wait_for_unreported_deaths(
    fork_server: ForkServer,
) -> None:
    async with trio.open_nursery() as pod:
        await pod.start(fork_server.run)
        runner = await fork_server.fork()
        os.kill(fork_server.pid, signal.SIGSTOP)
        pod.start_soon(fork_server.kill, runner)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        pod.cancel_scope.cancel()
    assert trio.current_time() - began < fork_server_module.GONE_WITHIN_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_death_of_an_idle_runner_is_not_counted_against_its_next_job(
    isolated: Bench, database: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await result_of(isolated, database, await runs(isolated, database, "pid"))
    monkeypatch.setattr(isolation, "BEGIN_WITHIN_S", 0.1)
    monkeypatch.setattr(isolation, "STOP_S", 0.1)
    (job_id,) = await isolated.submit(type="pid")
    sql(database, "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = $1", job_id)
    (claim,) = await isolated.port(tasks.claim, pod_id=isolated.pod.id, types=["pid"], limit=1)
    os.kill(runner, number)
    isolated.run(claim)
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["process_deaths"], row["attempts_spent"]) == (0, 0)
    if row["status"] == "RUNNING":  # its death was noticed too late: put off, not lost
        assert (row["task_state"], attempts(database, job_id)) == ("LATER", [(1, "handed_back")])
    monkeypatch.undo()
    assert runner != await result_of(isolated, database, await runs(isolated, database, "pid"))


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 8,
        b"\0\0\0\2[]",
        b"\0\0\0\2{}",
        frame(notify="end", given={"name": "Finish", "end": {}, "grown_kb": 0}),
        10 * frame(call="gateway.until_it_may_begin", number=7, given={"call_s": 1e9}),
        20_000 * frame(notify="step", given={"what": "begun", "kind": "odd", "key": "k"}),
    ],
)
async def test_runner_that_sends_nonsense_is_ended_and_its_pod_continues(
    isolated: Bench, database: str, said: bytes
) -> None:
    text = json.dumps({"text": said[:60_000].hex()})
    job_id = await runs(isolated, database, "babbles", payload=text)
    await isolated.running.wait_until_empty()
    row = job_row(database, job_id)
    assert (row["status"], row["process_deaths"]) == ("RUNNING", 1)
    assert await result_of(isolated, database, await runs(isolated, database, "pid"))


def test_forge_and_runners_die_with_their_pod() -> None:
    """Killed from outside, it has no time to end them."""
    reading, writing = os.pipe()
    pod = os.fork()
    if pod == 0:
        parts = RunnerParts(
            registry=Registry(TYPES), tools=EchoTools(), workspaces=Path("workspaces"), cpu_s=60
        )
        started = start_fork_server(parts.run, memory_mb=room_mb(), warm=parts.warm)
        os.write(writing, started.pid.to_bytes(4, "big"))
        signal.pause()
    os.close(writing)
    assert len(os.read(reading, 4)) == 4
    os.kill(pod, signal.SIGKILL)
    os.waitpid(pod, 0)
    assert os.read(reading, 1) == b""  # the fork server has held the other end, too
    os.close(reading)
