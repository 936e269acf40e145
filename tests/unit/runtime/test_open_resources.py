"""Resources are opened before the first job, and closed after the last one, within bounds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio

from cortex.durable.resources import Resource, Resources
from cortex.durable.stray_errors import END_S
from cortex.runtime.open_resources import (
    CANCELLED_WITHIN_S,
    CLOSES_WITHIN_S,
    OPENS_WITHIN_S,
    OpenResources,
    ResourceError,
)


def declared(name: str, function: Callable[[], AbstractAsyncContextManager[Any]]) -> Resource[Any]:
    kind = type(name, (SimpleNamespace,), {})
    return Resource(name=name, kind=kind, open=function, place="app.py:7")


async def using(
    *given: Resource[Any],
    work: Callable[[Resources], Awaitable[None]],
    on_failure: Callable[[], None] = lambda: None,
) -> None:
    """Open them, work with them and close them. Raises `ResourceError`."""
    resources = Resources()
    resources.declare(given)
    error: ResourceError | None = None
    async with trio.open_nursery() as nursery:
        held = OpenResources(resources, nursery, on_failure)
        try:
            await held.open()
            await work(resources)
        except ResourceError as caught:
            error = caught
        await held.close()
    assert resources.opened == {}
    if error is not None:
        raise error


async def test_they_are_opened_in_order_and_closed_in_reverse() -> None:
    happened: list[str] = []

    def noting(name: str) -> Resource[Any]:
        @asynccontextmanager
        async def hold() -> AsyncIterator[str]:
            happened.append(f"open {name}")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                yield name
                nursery.cancel_scope.cancel()
            happened.append(f"close {name}")

        return declared(name, hold)

    async def work(resources: Resources) -> None:
        assert list(resources.opened.values()) == ["a", "b"]
        happened.append("work")

    failures: list[str] = []
    await using(noting("a"), noting("b"), work=work, on_failure=lambda: failures.append("failed"))
    assert happened == ["open a", "open b", "work", "close b", "close a"]
    assert failures == []


async def _nothing(_: Resources) -> None: ...


@pytest.mark.parametrize("number", [0, 1])
async def test_one_that_fails_to_open_is_named_and_the_others_are_closed(number: int) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def well() -> AsyncIterator[str]:
        yield "well"
        closed.append("well")

    @asynccontextmanager
    async def fails() -> AsyncIterator[str]:
        raise ConnectionRefusedError("nobody listens")
        yield "never"

    given = [declared("well", well), declared("client", fails)]
    with pytest.raises(ResourceError) as caught:
        await using(*given[number:], work=_nothing)
    assert caught.value.message == (
        "resource client (app.py:7) failed to open: ConnectionRefusedError: nobody listens"
    )
    assert closed == ["well"][number:]


async def test_one_that_never_opens_has_a_bound(autojump_clock: object) -> None:
    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        await trio.sleep_forever()
        yield "never"

    began = trio.current_time()
    with pytest.raises(ResourceError, match=r"client \(app.py:7\) did not open within 60 seconds"):
        await using(declared("client", hangs), work=_nothing)
    assert trio.current_time() - began == pytest.approx(OPENS_WITHIN_S)


async def test_one_that_never_closes_is_cancelled_and_logged(autojump_clock: object) -> None:
    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        yield "well"
        await trio.sleep_forever()

    began = trio.current_time()
    with structlog.testing.capture_logs() as logs:
        both = [declared(name, hangs) for name in ("client", "pool")]
        await using(*both, work=_nothing)
    assert trio.current_time() - began <= CLOSES_WITHIN_S + CANCELLED_WITHIN_S
    assert {each["resource"] for each in logs} == {"client (app.py:7)", "pool (app.py:7)"}


async def test_one_that_never_closes_leaves_the_others_time(autojump_clock: object) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def closes() -> AsyncIterator[str]:
        yield "well"
        await trio.lowlevel.checkpoint()
        closed.append("pool")

    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        yield "well"
        await trio.sleep_forever()

    with structlog.testing.capture_logs() as logs:
        await using(declared("pool", closes), declared("client", hangs), work=_nothing)
    assert [each["resource"] for each in logs] == ["client (app.py:7)"]
    assert closed == ["pool"]


async def test_one_that_shields_its_close_is_ended(autojump_clock: object) -> None:
    ran: list[str] = []

    @asynccontextmanager
    async def hangs() -> AsyncIterator[str]:
        async with trio.open_nursery() as nursery:
            yield "well"
            with trio.CancelScope(shield=True):
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()
        ran.append("on")

    with structlog.testing.capture_logs() as logs, trio.fail_after(60):
        began = trio.current_time()
        await using(declared("client", hangs), declared("pool", hangs), work=_nothing)
    assert trio.current_time() - began <= CLOSES_WITHIN_S + CANCELLED_WITHIN_S + END_S
    assert {each["resource"] for each in logs} == {"client (app.py:7)", "pool (app.py:7)"}
    assert ran == []


async def test_one_that_fails_while_open_is_logged_and_reported() -> None:
    @asynccontextmanager
    async def breaks() -> AsyncIterator[str]:
        async def crash() -> None:
            raise ConnectionResetError("gone")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            yield "well"

    failed = trio.Event()

    async def work(_: Resources) -> None:
        with trio.fail_after(5):
            await failed.wait()

    with structlog.testing.capture_logs() as logs:
        await using(declared("client", breaks), work=work, on_failure=failed.set)
    assert failed.is_set()
    assert "gone" in str(logs)


async def test_a_failed_one_is_opened_again() -> None:
    count = 0

    @asynccontextmanager
    async def fragile() -> AsyncIterator[int]:
        nonlocal count
        count += 1
        async with trio.open_nursery() as nursery:
            if count == 1:
                nursery.cancel_scope.cancel()
            yield count

    resources = Resources()
    resources.declare([declared("client", fragile)])
    async with trio.open_nursery() as nursery:
        held = OpenResources(resources, nursery, lambda: None)
        for _ in range(3):
            await held.open_again()
            await trio.testing.wait_all_tasks_blocked()
        await held.close()
    assert count == 2


@pytest.mark.parametrize("when", ["open", "close"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
async def test_an_error_that_is_no_exception_ends_no_other_task(
    error: BaseException, when: str
) -> None:
    @asynccontextmanager
    async def exits() -> AsyncIterator[str]:
        if when == "open":
            raise error
        yield "well"
        raise error

    if when == "open":
        with pytest.raises(
            ResourceError, match=rf"client \(app.py:7\) failed to open: .*{type(error).__name__}"
        ):
            await using(declared("client", exits), work=_nothing)
    else:
        with structlog.testing.capture_logs() as logs:
            await using(declared("client", exits), work=_nothing)
        assert type(error).__name__ in logs[0]["error"]
