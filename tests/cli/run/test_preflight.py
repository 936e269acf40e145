"""`cortex preflight`: which jobs in flight would not go on under new code."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from cortex.domain.job import NumberedStep, StepDone
from cortex.durable.context import Context
from cortex.flows.spec import parse_flows
from cortex.store import specs, steps
from cortex.store.specs import SpecKind
from tests.support.command_line import Cortex
from tests.support.life import CHANCE, Life
from tests.support.records.factories import LedgerDesk, Record, TrioClock, a_context
from tests.support.servers.postgres import sql

NEW = """
import socket, subprocess, time
from pathlib import Path
from cortex import Context, job, tool

async def load(number: int, tries: int = 3) -> int:
    raise SystemExit(f"a step ran: {number}")

async def pay(number: int) -> int:
    raise SystemExit(f"an effect ran: {number}")

@job("fits")
async def fits(ctx: Context, number: int, note: str = "") -> int:
    print("noise" * 100)
    is_new = ctx.patched("new way")
    await ctx.step("load", load, number=number)
    await ctx.effect("pay", pay, number)
    return await ctx.step("more", load, int(is_new))

@job("changed")
async def changed(ctx: Context, number: int) -> None:
    await ctx.step("load", load, number + 100)

@job("renamed")
async def renamed(ctx: Context, number: int) -> None:
    await ctx.step("load", load, number)
    await ctx.effect("pay customer", pay, number)

@job("argument")
async def argument(ctx: Context, number: str) -> None: ...

@job("lacks")
async def lacks(ctx: Context, number: int) -> None:
    await ctx.tool("look", "gone_tool", {})

@job("raises")
async def raises(ctx: Context, number: int) -> None:
    (await ctx.step("load", load, number)).nothing

@job("outside")
async def outside(ctx: Context, number: int) -> None:
    try:
        socket.create_connection(("127.0.0.1", 1))
    except OSError:
        await ctx.step("load", load, number)

@job("writes")
async def writes(ctx: Context, number: int) -> None:
    Path("written").write_text("x")

@job("starts")
async def starts(ctx: Context, number: int) -> None:
    subprocess.run(["touch", "written"])

@job("exits")
async def exits(ctx: Context, number: int) -> None:
    raise SystemExit(3)

@job("spins")
async def spins(ctx: Context, number: int) -> None:
    while True:
        try:
            await ctx.step("new", load, number)
        except BaseException:
            time.sleep(0.01)

@job("stays")
async def stays(ctx: Context, number: int) -> None:
    import trio
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
"""
OLD_TYPES = ("fits", "changed", "renamed", "argument", "lacks", "raises", "outside", "writes")
EVIL_TYPES = ("starts", "exits", "spins", "stays", "gone")


class Kept(Record):
    """A record that keeps the operations, too."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[StepDone] = []

    async def record(self, operation: StepDone) -> None:
        await super().record(operation)
        self.operations.append(operation)


async def load(number: int) -> int:
    return number


async def pay_by_card(number: int) -> int:
    return number


async def old(ctx: Context, number: int) -> None:
    await ctx.step("load", load, number)
    await ctx.effect("pay", pay_by_card, number)


def begun(
    life: Life, pod: Any, job_type: str, number: int, handler: Callable[..., Awaitable[None]] = old
) -> str:
    """A job whose record was made by other code; return its id."""
    job_id = life.job(job_type, payload=f'{{"number": {number}}}')
    claim = life.claim(pod, job_type)
    record = Kept()

    async def run() -> None:
        await handler(a_context(record, gateway=LedgerDesk(), clock=TrioClock()), number)

    trio.run(run)
    for seq, operation in enumerate(record.operations, 1):
        step = attrs.evolve(operation, lease=claim.lease, effect=None)
        head = f'{{"seq": {seq}}}'
        life.call(steps.commit, pod_id=pod, operations=[NumberedStep(step, seq, head)])
    return str(job_id)


@pytest.fixture
def pod(life: Life) -> Any:
    for each in (*OLD_TYPES, *EVIL_TYPES):
        life.type(each)
    return life.pod("pod", *OLD_TYPES, *EVIL_TYPES)


def contents(dsn: str) -> list[Any]:
    """Each row's last transaction, by table."""
    tables = ("cortex.job_record", "cortex.job_step", "cortex.fact", "cortex_worker.task")
    query = "SELECT count(*), sum(xmin::text::bigint) FROM "
    return [tuple(row) for table in tables for row in sql(dsn, query + table)]


def test_preflight_lists_unfit_jobs_and_runs_nothing(
    cortex: Cortex, life: Life, pod: Any, tmp_path: Path
) -> None:
    ids = {each: begun(life, pod, each, 1) for each in (*OLD_TYPES, *EVIL_TYPES)}
    begun(life, pod, "changed", 2)
    path = tmp_path / "new.py"
    path.write_text(NEW)
    before = contents(life.dsn)
    done = cortex("preflight", "--app", str(path), "--json")
    assert done.code == 9, done.err
    report = done.document
    assert (report["jobs"], report["fit"], report["misfits"]) == (14, 1, 13)
    found = {each["type"]: each for each in report["groups"]}
    assert {name: each["problem"] for name, each in found.items()} == {
        "changed": "diverges",
        "renamed": "diverges",
        "argument": "arguments",
        "lacks": "tool",
        "raises": "raises",
        "outside": "outside",
        "writes": "outside",
        "starts": "outside",
        "exits": "stuck",
        "spins": "stuck",
        "stays": "stuck",
        "gone": "type",
    }
    assert (found["changed"]["count"], found["changed"]["where"]) == (2, "load")
    assert found["changed"]["example"] == ids["changed"]
    assert "number: 1 → 101" in found["changed"]["message"]
    assert found["renamed"]["where"] == "pay"
    assert contents(life.dsn) == before
    assert not (tmp_path / "written").exists()


def test_agents_and_flows_are_replayed(cortex: Cortex, life: Life) -> None:
    for each in ("run_agent", "run_flow"):
        life.type(each)
    life.agent()
    spec = {"name": "lost", "model": "claude", "system": "Find out.", "tools": ["gone_tool"]}
    life.call(specs.apply, SpecKind.AGENT, new_id=CHANCE.new_id(), name="lost", spec=spec, by="ana")
    (flow,) = parse_flows(
        "{name: f, steps: [{name: look, uses: tool, with: {tool: gone_tool, arguments: {}}}]}", "f"
    )
    life.call(specs.apply, SpecKind.FLOW, name="f", spec=flow.to_json(), by="ana")
    (flow,) = parse_flows(
        "{name: g, steps: [{name: inspect, uses: tool, with: "
        "{tool: read_file, arguments: {file: x}}}]}",
        "g",
    )
    life.call(specs.apply, SpecKind.FLOW, name="g", spec=flow.to_json(), by="ana")
    life.job("run_flow", payload='{"flow": "g", "version": 1}')
    life.job("run_agent", payload='{"prompt": "hello"}', agent="researcher")
    life.job("run_agent", payload='{"prompt": "hello"}', agent="lost")
    life.job("run_flow", payload='{"flow": "f", "version": 1}')
    report = cortex("preflight", "--json").document
    assert (report["jobs"], report["fit"], report["unsure"]) == (4, 1, 0), report
    found = [(each["type"], each["problem"], each["message"]) for each in report["groups"]]
    for job_type, words in (
        ("run_agent", "gone_tool"),
        ("run_flow", "gone_tool"),
        ("run_flow", "read_file"),
    ):
        assert any((job_type, "tool") == each[:2] and words in each[2] for each in found), found


def test_an_app_without_a_name_is_refused(cortex: Cortex) -> None:
    """In a pipeline it is a variable that is not set: nothing of the new code would be checked."""
    done = cortex("preflight", "--app", "")
    assert (done.code, done.out) == (2, "")
    assert "invalid value for '--app': it is empty" in done.err


def test_exit_code_reports_whether_all_jobs_fit(
    cortex: Cortex, life: Life, pod: Any, tmp_path: Path
) -> None:
    begun(life, pod, "fits", 1)
    path = tmp_path / "new.py"
    path.write_text(NEW)
    done = cortex("preflight", "--app", str(path))
    assert "1 job that is not over, all fit" in done.err
    assert done.code == 0
    begun(life, pod, "changed", 1)
    done = cortex("preflight", "--app", str(path))
    assert done.code == 9
    assert "2 jobs that are not over, 1 would not go on" in done.err
    assert "number: 1 → 101" in done.out
