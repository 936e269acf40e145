"""No error of job code ends its pod: the job ends as the error's class says, counted and logged."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from types import AsyncGeneratorType
from typing import Any, Final

import pytest
import trio
import trio.testing

from cortex.domain.effect import Invocation, NotApplied, Verdict
from cortex.durable import stray_errors
from cortex.durable.context import Context
from cortex.runtime import running
from cortex.runtime.interpreter_hooks import hooked
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import Bench
from tests.support.records.many_jobs import ManyJobs, statuses
from tests.support.records.rows import assert_one_truth, attempts, job_row

Lines = list[MutableMapping[str, Any]]
Handler = Callable[[Context], Awaitable[Any]]

DEPTH: Final = 5_000


class Stop(BaseException):
    """An error of a library's own that is no `Exception`."""


class UnreadableError(Exception):
    """An error that raises when its text is read."""

    def fail(self, *_: object) -> Any:
        raise KeyboardInterrupt

    __str__ = __repr__ = fail


class SpitefulError(UnreadableError):
    """An error each of whose parts runs code that fails."""

    fail = UnreadableError.fail
    __str__ = __repr__ = __eq__ = __hash__ = fail
    __class__ = args = __traceback__ = __cause__ = failure = status_code = property(fail)


HOSTILE_PARTS: Final = (
    *("__traceback__", "__cause__", "__context__", "__suppress_context__", "__class__"),
    *("__notes__", "args", "with_traceback", "__str__", "__repr__", "__eq__", "__hash__"),
    *("__getattribute__", "__module__"),
)
HOSTILE_METHODS: Final = (
    *("with_traceback", "__str__", "__repr__", "__eq__", "__hash__", "__getattribute__"),
    *("split", "subgroup", "derive"),
)
HOSTILE_GROUP_PARTS: Final = ("exceptions", "split", "subgroup", "derive", "message")


class Nameless(type):
    """A metaclass whose classes have no readable names."""

    def __getattribute__(cls, name: str) -> Any:
        raise KeyboardInterrupt


def nameless() -> BaseException:
    return Nameless("NamelessError", (Exception,), {})("odd")  # type: ignore[no-any-return]


def forgetful() -> BaseException:
    """Return an error whose method overrides that of its class, and returns nothing."""

    def with_traceback(error: Exception, traceback: Any) -> None:
        Exception.with_traceback(error, traceback)

    return type("ForgetfulError", (Exception,), {"with_traceback": with_traceback})("odd")  # type: ignore[no-any-return]


def hostile(part: str) -> BaseException:
    """Return an error with one part that runs code which fails."""
    fail = UnreadableError.fail
    part_of_class = {part: fail if part in HOSTILE_METHODS else property(fail)}
    if part not in HOSTILE_GROUP_PARTS:
        return type("HostileError", (Exception,), part_of_class)("odd")  # type: ignore[no-any-return]
    group = type("HostileGroup", (ExceptionGroup,), part_of_class)
    return group("several", [ValueError("one"), TypeError("two")])  # type: ignore[no-any-return]


def cancelled_by_hand() -> BaseException:
    return trio.Cancelled._create(source="unknown", reason=None)


def deep_group() -> BaseException:
    error: BaseException = ValueError("at the bottom")
    for _ in range(DEPTH):
        error = BaseExceptionGroup("one more", [error])
    return error


def long_chain() -> BaseException:
    error: BaseException = ValueError("the first")
    for _ in range(DEPTH):
        following = ValueError("the next")
        following.__cause__ = error
        error = following
    return error


def recurse() -> None:
    recurse()


def allocate() -> None:
    bytearray(2**62)


def thrower(make: Callable[[], BaseException]) -> Callable[[], None]:
    def throw() -> None:
        raise make()

    return throw


THROW: Final[dict[str, Callable[[], None]]] = {
    "interrupt": thrower(KeyboardInterrupt),
    "exit": thrower(lambda: SystemExit(3)),
    "generator exit": thrower(GeneratorExit),
    "trio": thrower(cancelled_by_hand),
    "asyncio": thrower(asyncio.CancelledError),
    "own": thrower(Stop),
    "group": thrower(lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), cancelled_by_hand()])),
    "deep group": thrower(deep_group),
    "long chain": thrower(long_chain),
    "unreadable": thrower(UnreadableError),
    "spiteful": thrower(SpitefulError),
    "recursion": recurse,
    "no memory": allocate,
}


HOSTILE: Final[dict[str, Callable[[], None]]] = {
    **{each: thrower(partial(hostile, each)) for each in (*HOSTILE_PARTS, *HOSTILE_GROUP_PARTS)},
    "nameless": thrower(nameless),
    "forgetful": thrower(forgetful),
    "group of spiteful": thrower(lambda: BaseExceptionGroup("g", [SpitefulError(), ValueError()])),
}


def throw(kind: str) -> None:
    (THROW | HOSTILE)[kind]()


async def throw_later(kind: str) -> None:
    await trio.lowlevel.checkpoint()
    (THROW | HOSTILE)[kind]()


async def in_handler(_: Context, kind: str) -> None:
    throw(kind)


async def in_step(ctx: Context, kind: str) -> None:
    await ctx.step("x", throw_later, kind)


async def in_limited_step(ctx: Context, kind: str) -> None:
    await ctx.step("x", throw_later, kind, timeout=5)


async def in_thread(ctx: Context, kind: str) -> None:
    await ctx.step("x", throw, kind)


async def in_gather(ctx: Context, kind: str) -> Any:
    return await ctx.gather(ctx.step("x", throw_later, kind), ctx.step("y", trio.sleep_forever))


async def in_generator(_: Context, kind: str) -> None:
    async def numbers() -> AsyncIterator[int]:  # noqa: ASYNC900 -- as bad code does
        yield 1
        throw(kind)

    async for _number in numbers():
        await trio.lowlevel.checkpoint()


async def not_applied(_: Invocation) -> Verdict:
    return NotApplied()


async def in_effect(ctx: Context, kind: str) -> None:
    await ctx.effect("x", throw_later, kind, reconcile=not_applied)


async def in_effect_thread(ctx: Context, kind: str) -> None:
    await ctx.effect("x", throw, kind, reconcile=not_applied)


async def in_own_task(_: Context, kind: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(throw_later, kind)
        nursery.start_soon(trio.sleep_forever)


async def in_own_nursery(_: Context, kind: str) -> None:
    async with trio.open_nursery():
        throw(kind)


async def in_own_thread(_: Context, kind: str) -> None:
    await trio.to_thread.run_sync(throw, kind)


async def in_cancelled_scope(_: Context, kind: str) -> None:
    with trio.CancelScope() as scope:  # noqa: ASYNC100 -- leaving it is what is tested
        scope.cancel()
        throw(kind)


async def in_left_generator(_: Context, kind: str) -> None:
    async def numbers() -> AsyncIterator[int]:  # noqa: ASYNC900 -- as bad code does
        try:
            yield 1
        finally:
            throw(kind)

    async for _number in numbers():
        break
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    raise ValueError


PLACES: Final = (
    *(in_handler, in_step, in_limited_step, in_thread, in_gather, in_generator),
    *(in_effect, in_effect_thread, in_own_task, in_own_nursery),
)
HOSTILE_PLACES: Final = (
    *(in_handler, in_own_task, in_own_nursery),
    *(in_own_thread, in_cancelled_scope, in_left_generator),
)
OWN_NURSERIES: Final = (in_own_task, in_own_nursery)
"""Trio itself swallows a cancellation there."""


@pytest.fixture
async def pod(bench: Bench) -> ManyJobs:
    await bench.start_committing()
    return ManyJobs(bench)


# --- raised anywhere


async def test_errors_of_job_code_never_end_the_pod(
    pod: ManyJobs, database: str, log_lines: Lines
) -> None:
    handlers = {
        f"{kind} {place.__name__}": partial(place, kind=kind)
        for kind in THROW
        for place in PLACES
        if not (place in OWN_NURSERIES and kind == "trio")
    }
    handlers |= {
        f"{part} {place.__name__}": partial(place, kind=part)
        for part in HOSTILE
        for place in HOSTILE_PLACES
    }
    with hooked():
        ids = await pod.run(handlers, worker_attempts=1)
    assert statuses(database, ids) == dict.fromkeys(handlers, "FAILED")
    events = {"attempt failed", "error not classified"}
    logged = {line["job"] for line in log_lines if line["event"] in events}
    assert [name for name, each in ids.items() if str(each) not in logged] == []
    assert_one_truth(database)


async def test_values_of_a_cancelled_task_are_freed_at_once(pod: ManyJobs) -> None:
    class Held:
        pass

    held: list[weakref.ref[Held]] = []

    async def hold() -> None:
        own = Held()
        held.append(weakref.ref(own))
        await trio.sleep_forever()

    async def holder(_: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    gc.collect()
    gc.disable()
    try:
        with hooked():
            await pod.run({"holds": holder}, worker_attempts=1)
        assert [each() for each in held] == [None]
    finally:
        gc.enable()


async def test_stray_error_is_retried_by_its_class(pod: ManyJobs, database: str) -> None:
    ids = await pod.run({kind: partial(in_step, kind=kind) for kind in THROW})
    for name, each in ids.items():
        assert attempts(database, each) == [(1, "failed")], name
        assert job_row(database, each)["task_state"] == "LATER", name


# --- values


def fail(*_: object) -> Any:
    raise KeyboardInterrupt


HOSTILE_VALUES: Final[dict[str, type]] = {
    "class": type("Value", (), {"__class__": property(fail)}),
    "attributes": type("Value", (), {"__getattribute__": fail}),
    "dict": type("Value", (), {"__dict__": property(fail)}),
    "iter": type("Value", (list,), {"__iter__": fail, "__len__": fail}),
    "keys": type("Value", (dict,), {"keys": fail, "items": fail, "__iter__": fail}),
    "text": type("Value", (), {"__repr__": fail, "__str__": fail}),
    "hash": type("Value", (str,), {"__hash__": fail, "__eq__": fail}),
}


async def in_result(_: Context, value: type) -> Any:
    return {"value": [value()]}


async def in_output(ctx: Context, value: type) -> None:
    await ctx.step("x", value)


async def in_input(ctx: Context, value: type) -> None:
    await ctx.step("x", type, value())


async def in_effect_output(ctx: Context, value: type) -> None:
    await ctx.effect("x", value, reconcile=not_applied)


async def in_gathered_output(ctx: Context, value: type) -> None:
    await ctx.gather(ctx.step("x", value), ctx.step("y", trio.lowlevel.checkpoint))


async def test_values_of_job_code_never_end_the_pod(pod: ManyJobs, database: str) -> None:
    handlers = {
        f"{name} {place.__name__}": partial(place, value=value)
        for name, value in HOSTILE_VALUES.items()
        for place in (in_result, in_output, in_input, in_effect_output, in_gathered_output)
    }
    with hooked():
        ids = await pod.run(handlers, worker_attempts=1)
    readable = {"iter", "hash"}  # the encoder reads subclasses of plain types without their methods
    ended = statuses(database, ids)
    completed = {name.split()[0] for name, status in ended.items() if status == "COMPLETED"}
    assert completed <= readable
    assert set(ended.values()) == {"FAILED", "COMPLETED"}
    assert_one_truth(database)


async def swallow() -> None:
    while True:
        with suppress(BaseException):
            await trio.sleep_forever()


async def shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def wait_in_thread() -> None:
    await trio.to_thread.run_sync(RELEASED.wait)


RELEASED: Final = threading.Event()
KEPT: Final[list[object]] = []
Below = Callable[[], Awaitable[None]]


async def open_nursery(below: Below) -> AsyncIterator[int]:  # noqa: ASYNC900 -- as bad code does
    manager = trio.open_nursery()
    nursery = await manager.__aenter__()
    nursery.start_soon(below)
    yield 1
    await manager.__aexit__(None, None, None)


async def leaves_nursery_open(ctx: Context, below: Below) -> str:
    async for _number in open_nursery(below):
        break
    await ctx.step("x", trio.lowlevel.checkpoint)
    return "left"


async def keeps_nursery_open(ctx: Context, below: Below) -> str:
    generator = open_nursery(below)
    KEPT.append(generator)
    await anext(generator)
    await ctx.step("x", trio.lowlevel.checkpoint)
    return "kept"


async def test_a_nursery_that_job_code_leaves_open_ends_no_pod(
    pod: ManyJobs, database: str, log_lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stray_errors, "HEED_S", 0.2)
    monkeypatch.setattr(stray_errors, "END_S", 0.2)
    RELEASED.clear()
    handlers = {
        f"{handler.__name__} {below.__name__}": partial(handler, below=below)
        for handler in (leaves_nursery_open, keeps_nursery_open)
        for below in (trio.sleep_forever, swallow, shield, wait_in_thread)
    }
    with hooked():
        ids = await pod.run(handlers, worker_attempts=1)
        RELEASED.set()
        KEPT.clear()
        gc.collect()
    assert set(statuses(database, ids).values()) == {"FAILED"}
    left = [line["tasks"] for line in log_lines if line["event"] == "tasks left behind"]
    assert len(left) == 2, "all others were ended"
    generators = [each for each in gc.get_objects() if isinstance(each, AsyncGeneratorType)]
    assert [each for each in generators if each.__name__ == open_nursery.__name__] == []


async def waits_with_nursery_open(_: Context, begun: trio.Event) -> None:
    generator = open_nursery(trio.sleep_forever)
    KEPT.append(generator)
    await anext(generator)
    begun.set()
    await trio.sleep_forever()


@pytest.mark.parametrize("how", ["drain", "abort"])
async def test_a_nursery_that_is_open_when_the_pod_ends_the_job_ends_no_pod(
    bench: Bench, database: str, how: str
) -> None:
    await bench.start_committing()
    begun = trio.Event()
    with hooked(), trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as bench.jobs:
            handlers = {"waits": partial(waits_with_nursery_open, begun=begun)}
            ids = await ManyJobs(bench).begin(handlers)
            await begun.wait()
            if how == "drain":
                bench.running.end_all(running.Stop.HANDED_BACK)
            else:
                bench.jobs.cancel_scope.cancel(reason="the pod aborts")
        KEPT.clear()
        gc.collect()
    state = {"drain": "READY", "abort": "LOCKED"}[how]
    row = job_row(database, ids["waits"])
    assert (row["status"], row["task_state"]) == ("RUNNING", state)


class Falls:
    def __del__(self) -> None:
        raise KeyboardInterrupt


async def drops(_: Context) -> None:
    Falls()
    thread = threading.Thread(target=throw, args=("exit",), name="its own")
    thread.start()
    thread.join()
    thread = threading.Thread(target=throw, args=("own",), name="its own")
    thread.start()
    thread.join()


async def test_an_error_that_no_code_can_catch_is_logged_with_its_job(
    pod: ManyJobs, database: str, log_lines: Lines
) -> None:
    with hooked():
        ids = await pod.run({"drops": drops})
    assert statuses(database, ids) == {"drops": "COMPLETED"}
    ignored = [line for line in log_lines if line.get("at") == "Falls.__del__"]
    assert [(line["event"], line["error"], line["job"]) for line in ignored] == [
        ("error ignored", "KeyboardInterrupt", str(ids["drops"]))
    ]
    (failed,) = [line for line in log_lines if line["event"] == "thread failed"]
    assert (failed["thread"], failed["error"]) == ("its own", "Stop")
