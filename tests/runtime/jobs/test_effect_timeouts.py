"""Effects that run out of time end as their rules say, each with its receipt."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import trio

from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import TimedOutError
from cortex.domain.job import StepKind
from cortex.domain.retry import CallRetry
from cortex.domain.timeouts import Phase, Scope
from cortex.durable.context import Context
from cortex.runtime.jobs import receipts
from cortex.runtime.jobs.fired_limits import PHASES
from cortex.store import timeouts
from tests.support.records.factories import Bench
from tests.support.records.many_jobs import Handler, ManyJobs, statuses
from tests.support.records.rows import assert_one_truth, job_row
from tests.support.servers.postgres import sql

LIMIT_S: Final = 0.2
LONG_S: Final = 3.0
ONE_CALL: Final = CallRetry(base_s=0.01, cap_s=0.01, attempts=1)


@pytest.fixture
async def pod(bench: Bench) -> ManyJobs:
    await bench.start_committing()
    return ManyJobs(bench)


def stays() -> None:
    threading.Event().wait(LONG_S)


async def applied(_: Invocation) -> Verdict:
    return Applied("there")


async def not_applied(_: Invocation) -> Verdict:
    return NotApplied()


async def unknown(_: Invocation) -> Verdict:
    return Unknown("no such page")


async def fails(_: Invocation) -> Verdict:
    raise KeyboardInterrupt


def late(function: Callable[..., object], **options: Any) -> Handler:
    async def handler(ctx: Context) -> object:
        return await ctx.effect("pay", function, timeout=LIMIT_S, **options)

    return handler


async def caught(ctx: Context) -> str:
    try:
        await ctx.effect("pay", trio.sleep_forever, timeout=LIMIT_S, reconcile=not_applied)
    except TimedOutError:
        return "caught"
    return "done"


async def gathered(ctx: Context) -> None:
    await ctx.gather(
        ctx.effect("pay", trio.sleep_forever, timeout=LIMIT_S),
        ctx.step("beside", trio.lowlevel.checkpoint),
    )


SLEEPS: Final = {"sync": stays, "async": trio.sleep_forever}


async def untimed(ctx: Context, function: Callable[..., object]) -> None:
    await ctx.effect("pay", function)


HANDLERS: Final[dict[str, tuple[Handler, str]]] = {
    "async": (late(trio.sleep_forever), "WAITING_FOR_APPROVAL"),
    "sync": (late(stays), "WAITING_FOR_APPROVAL"),
    "unknown": (late(trio.sleep_forever, reconcile=unknown), "WAITING_FOR_APPROVAL"),
    "fails": (late(trio.sleep_forever, reconcile=fails), "WAITING_FOR_APPROVAL"),
    "applied": (late(trio.sleep_forever, reconcile=applied), "COMPLETED"),
    "not applied": (late(stays, reconcile=not_applied), "RETRY"),
    "idempotent": (late(trio.sleep_forever, idempotent=True), "RETRY"),
    "idempotent sync": (late(stays, idempotent=True), "RETRY"),
    "both": (late(trio.sleep_forever, idempotent=True, reconcile=not_applied), "RETRY"),
    "caught": (caught, "COMPLETED"),
    "gathered": (gathered, "WAITING_FOR_APPROVAL"),
}


async def test_timed_out_effect_ends_by_its_rules(
    pod: ManyJobs, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.durable.outside.CALL_RETRIES", {"default": ONE_CALL})
    ids = await pod.run({name: handler for name, (handler, _) in HANDLERS.items()})
    assert statuses(database, ids) == {name: status for name, (_, status) in HANDLERS.items()}
    assert_one_truth(database)
    for name in ("async", "sync", "not applied", "idempotent", "idempotent sync", "both"):
        (receipt,) = await pod.bench.port(timeouts.of_job, ids[name])
        fired = receipt.receipt.interruption
        assert (fired.scope, fired.limit_s, fired.step_key) == (Scope.STEP, LIMIT_S, "pay")
        assert fired.phase is Phase.EFFECT


async def test_the_limit_of_the_job_cuts_an_effect(pod: ManyJobs, database: str) -> None:
    handlers = {name: partial(untimed, function=each) for name, each in SLEEPS.items()}
    ids = await pod.run(handlers, timeout_s=1)
    assert statuses(database, ids) == dict.fromkeys(handlers, "FAILED")
    for name, each in ids.items():
        assert job_row(database, each)["error_code"] == "job_timed_out", name
        (receipt,) = await pod.bench.port(timeouts.of_job, each)
        assert (receipt.receipt.interruption.phase, receipt.receipt.interruption.step_key) == (
            Phase.EFFECT,
            "pay",
        )


def test_every_kind_of_step_has_a_phase() -> None:
    assert PHASES.keys() == set(StepKind)


@pytest.mark.parametrize("broken", ["judged", "taken", "written"])
async def test_a_receipt_that_fails_ends_neither_job_nor_pod(
    pod: ManyJobs, database: str, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    target, name = {
        "judged": (receipts, "of_error"),
        "taken": (receipts, "take_receipt"),
        "written": (timeouts, "record"),
    }[broken]
    monkeypatch.setattr(target, name, fail)
    ids = await pod.run({"late": late(trio.sleep_forever, reconcile=not_applied)})
    assert statuses(database, ids) == {"late": "RETRY"}
    (fact,) = sql(database, "SELECT subtype FROM cortex.fact WHERE type = 'error'")
    assert fact["subtype"] == "timed_out"
