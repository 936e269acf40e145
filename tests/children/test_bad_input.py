"""What job code asks for and cannot have: one line that names it."""

from collections.abc import Awaitable, Callable
from itertools import repeat
from typing import Any

import pytest

from cortex import Context, CortexError, job
from cortex.testing import Cortex, StuckError


@job
async def resize(ctx: Context, image: str, width: int = 1) -> str:
    return image


@job
async def idle(ctx: Context) -> None: ...


async def plain(image: str) -> str:
    return image


async def _drained(results: Any) -> None:
    async for _ in results:
        pass


async def _drained_twice(results: Any) -> None:
    await _drained(results)
    await _drained(results)


@job
async def greet(ctx: Context, name: str = "world", tags: int = 1) -> str:
    return f"hello {name}"


_ASKED: list[tuple[Callable[[Context], Awaitable[Any]], str]] = [
    (lambda ctx: ctx.call(plain, image="a"), "plain is not a job type"),  # type: ignore[call-overload]
    (lambda ctx: ctx.call(resize, image=3), "payload.image must be text"),
    (lambda ctx: ctx.call(resize), "lacks image"),
    (lambda ctx: ctx.call("bulk"), "bulk"),
    (lambda ctx: ctx.call(""), "job type '' is not text of 1 to 100 characters"),
    (lambda ctx: ctx.call(resize, image="a", priority=99_999), "priority 99999 is not a whole"),
    (lambda ctx: ctx.call(resize, image="a", delay=float("nan")), "delay nan is not 0 to"),
    (lambda ctx: ctx.call(resize, image="a", tags="ab"), "tags 'ab' are not"),
    (lambda ctx: ctx.call(resize, image="a", queue=""), "queue '' is not text"),
    (lambda ctx: ctx.call(resize, image="a", budget=5), "budget 5 is not an amount by its unit"),  # type: ignore[call-overload]
    (lambda ctx: ctx.call(resize, image="a", budget={"eur": 5}), "budget has no unit 'eur'"),  # type: ignore[call-overload]
    (lambda ctx: ctx.call(resize, image="a", budget={"usd": -1}), "budget usd -1 is not a number"),
    (lambda ctx: ctx.call(resize, image="a", budget={"usd": float("nan")}), "budget usd nan is"),
    (lambda ctx: ctx.call(resize, image="a", budget={"usd": "5"}), "budget usd '5' is not a"),  # type: ignore[call-overload]
    (lambda ctx: ctx.call(resize, image="a", budget={"tokens": 10**13}), "budget tokens 1000000"),
    (lambda ctx: _drained(ctx.map(resize, ["a"], concurrency=0)), "concurrency 0 is not a whole"),
    (lambda ctx: _drained(ctx.map(resize, ["a"], image="b")), "'image' of job type 'resize' is"),
    (lambda ctx: _drained(ctx.map(idle, ["a"])), "takes no argument that an item could be"),
    (lambda ctx: _drained(ctx.map("resize", ["a"])), "is not a mapping of arguments by name: 'a'"),  # type: ignore[list-item]
    (lambda ctx: _drained(ctx.map(resize, ["a"], concurrency=None)), "concurrency None is not"),  # type: ignore[call-overload]
    (lambda ctx: ctx.call(greet, name="Ana"), "'name' is an option of children and an argument"),
    (lambda ctx: ctx.call("greet", name="Ana"), "'name' is an option of children and an argument"),
    (lambda ctx: _drained(ctx.map(greet, ["a"], tags=["b"])), "'tags' is an option of children"),
    (lambda ctx: ctx.call(resize, payload={"image": "a"}, width=2), "payload and width exclude"),
    (lambda ctx: _drained_twice(ctx.map(resize, ["a"])), "results of map 'resize' have been taken"),
    (lambda ctx: _drained(ctx.map(resize, 3)), "are 3, nothing to iterate over"),  # type: ignore[call-overload]
    (lambda ctx: _drained(ctx.map(resize, repeat("a"))), "'resize' has more than 100,000 items"),
]


@job
async def ask(ctx: Context, number: int) -> None:
    await _ASKED[number][0](ctx)


def test_child_that_cannot_be_is_refused_in_one_line(cortex: Cortex) -> None:
    for number, (_, words) in enumerate(_ASKED):
        error = cortex.run_sync(ask, number=number).error
        assert isinstance(error, CortexError), words
        assert words in error.message
        assert "\n" not in error.message


def test_map_that_is_never_iterated_is_named(cortex: Cortex) -> None:
    @job
    async def parent(ctx: Context) -> None:
        ctx.map(resize, ["a"])

    error = cortex.run_sync(parent).error
    assert "has returned without awaiting 'resize'" in str(error)


def test_child_of_an_unknown_type_leaves_its_parent_waiting(cortex: Cortex) -> None:
    @job
    async def parent(ctx: Context) -> None:
        await ctx.call("rezise", image="a")

    with pytest.raises(StuckError, match="a job of type 'rezise', which no loaded module has"):
        cortex.run_sync(parent)


def test_map_of_nothing_yields_nothing(cortex: Cortex) -> None:
    @job
    async def parent(ctx: Context) -> int:
        return len([each async for each in ctx.map(resize, [])])

    run = cortex.run_sync(parent)
    assert run.result == 0
    run.replays()


def test_argument_named_like_an_option_is_given_in_the_payload(cortex: Cortex) -> None:
    @job
    async def parent(ctx: Context) -> str:
        (mapped,) = [each async for each in ctx.map(greet, ["Bo"], name="all")]
        return mapped + await ctx.call(greet, name="step", payload={"name": "Ana"})

    run = cortex.run_sync(parent)
    assert run.result == "hello Bohello Ana"
    assert run.steps == ["all", "all result", "step", "step result"]
