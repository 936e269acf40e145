"""A function becomes a tool: its schema, the check of its input, its time-out, its result."""

import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NotRequired, TypedDict

import attrs
import pydantic
import pytest
import trio

from cortex.agent.confinement import process
from cortex.agent.confinement.process import run_process
from cortex.agent.plain import RAW_MAX_BYTES
from cortex.agent.tools import abandon
from cortex.agent.tools.tool import AnyTool, ToolContext, ToolInputError, tool, tools_by_name
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import InvalidOutputError, TimedOutError, UsageError
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import Record, a_context


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


@attrs.frozen
class Place:
    """Somewhere.

    Attributes:
        city: Its name.
    """

    city: str
    zone: int | None = None


@tool(name="look-up", timeout=5)
async def look_up(
    context: ToolContext,
    place: Place,
    days: list[int],
    *,
    unit: Unit = Unit.METRE,
    mode: Literal["fast", "full"] = "fast",
    weights: dict[str, float] | None = None,
    loud: bool = False,
) -> dict[str, object]:
    """Look a place up.

    Costs nothing.

    Args:
        place: Where,
            in full.
        mode: How thoroughly.

    Returns:
        What was found.
    """
    return {
        "call": context.call_id,
        "place": place,
        "days": tuple(days),
        "unit": unit,
        "mode": mode,
        "weights": weights,
        "loud": loud,
    }


def test_the_schema_is_read_from_the_signature() -> None:
    place = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "zone": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": False,
        "description": "Where, in full.",
    }
    assert look_up.name == "look-up"
    assert look_up.description == "Look a place up.\n\nCosts nothing."
    assert look_up.timeout_s == 5
    assert look_up.input_schema == {
        "type": "object",
        "properties": {
            "place": place,
            "days": {"type": "array", "items": {"type": "integer"}},
            "unit": {"type": "string", "enum": ["m", "ft"], "default": "m"},
            "mode": {
                "type": "string",
                "enum": ["fast", "full"],
                "default": "fast",
                "description": "How thoroughly.",
            },
            "weights": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"type": "number"}},
                    {"type": "null"},
                ]
            },
            "loud": {"type": "boolean", "default": False},
        },
        "required": ["place", "days"],
        "additionalProperties": False,
    }


async def test_input_is_structured_and_the_result_made_plain(context: ToolContext) -> None:
    given = {"place": {"city": "Bern"}, "days": [1], "unit": "ft", "weights": {"a": 1}}
    assert await look_up.call(context, given) == {
        "call": "call_1",
        "place": {"city": "Bern", "zone": None},
        "days": [1],
        "unit": "ft",
        "mode": "fast",
        "weights": {"a": 1.0},
        "loud": False,
    }


async def test_input_that_does_not_fit_never_reaches_the_function(context: ToolContext) -> None:
    with pytest.raises(ToolInputError) as caught:
        await look_up.call(context, {"place": {"city": 3}, "days": [], "lod": True})
    assert "'look-up'" in caught.value.message
    assert "place.city must be text, got 3" in caught.value.message
    assert "lod is unknown; did you mean 'loud'?" in caught.value.message


async def test_a_function_without_async_runs_in_a_thread(context: ToolContext) -> None:
    @tool
    def where() -> bool:
        """Return whether this is the main thread."""
        return threading.current_thread() is threading.main_thread()

    assert await where.call(context, {}) is False


async def test_an_async_function_is_cancelled_at_its_time_out(context: ToolContext) -> None:
    seen = []

    @tool(timeout=0.01)
    async def wait() -> None:
        """Wait for ever."""
        try:
            await trio.sleep_forever()
        finally:
            seen.append("cancelled")

    with pytest.raises(TimedOutError, match=r"'wait' timed out after 0\.01 seconds") as caught:
        await wait.call(context, {})
    assert (caught.value.scope, caught.value.limit_s) == ("call", 0.01)
    assert seen == ["cancelled"]


async def test_the_caller_may_give_another_time_out(context: ToolContext) -> None:
    @tool
    async def wait() -> None:
        """Wait for ever."""
        await trio.sleep_forever()

    with pytest.raises(TimedOutError) as caught:
        await wait.call(context, {}, timeout_s=0.02)
    assert caught.value.limit_s == 0.02


async def test_a_thread_is_left_behind_at_its_time_out(context: ToolContext) -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def block() -> None:
        """Block until the test lets go."""
        release.wait()

    try:
        with trio.fail_after(WITHIN_S), pytest.raises(TimedOutError):
            await block.call(context, {})
    finally:
        release.set()


async def test_an_async_function_that_shields_itself_is_left_behind(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandon, "PATIENCE_S", 0.01)
    release, ended = trio.Event(), trio.Event()

    @tool(timeout=0.01)
    async def stay() -> None:
        """Ignore every cancellation."""
        with trio.CancelScope(shield=True):
            await release.wait()
        ended.set()

    with trio.fail_after(WITHIN_S), pytest.raises(TimedOutError):
        await stay.call(context, {})
    assert not ended.is_set()
    release.set()
    with trio.fail_after(WITHIN_S):
        await ended.wait()


async def test_a_child_that_ignores_sigterm_does_not_hold_the_call(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.05)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    @tool(timeout=60)
    async def run(script: str) -> None:
        """Run a shell script."""
        argv = ["sh", "-c", script]
        environment = {"PATH": os.environ["PATH"]}
        await run_process(
            argv, folder=tmp_path, environment=environment, timeout_s=60, output_max_bytes=100
        )

    script = f"trap '' TERM; echo $$ > {fifo}; while :; do sleep 1000; done"
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.call, context, {"script": script})
            pid = int(await trio.to_thread.run_sync(fifo.read_text))
            nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_control_flow_passes_through_an_async_tool(context: ToolContext) -> None:
    @tool
    async def stop() -> None:
        """Raise control flow in place of an error."""
        raise LeaseLost

    with pytest.raises(LeaseLost):
        await stop.call(context, {})


async def test_cancellation_from_outside_is_no_time_out(context: ToolContext) -> None:
    @tool
    async def wait() -> None:
        """Wait for ever."""
        await trio.sleep_forever()

    with trio.move_on_after(0.01) as outer:
        await wait.call(context, {})
    assert outer.cancelled_caught


async def test_a_result_without_json_form_names_tool_and_place(context: ToolContext) -> None:
    @tool
    async def picture() -> dict[str, object]:
        """Return bytes."""
        return {"data": b"x"}

    with pytest.raises(
        InvalidOutputError, match="'picture': data in the result is bytes"
    ) as caught:
        await picture.call(context, {})
    assert caught.value.raw == "{'data': b'x'}"


@attrs.frozen
class Found:
    places: list[Place]
    kind: Literal["town", "lake"]
    at: Path = Path("/")
    count: int = attrs.field(init=False, default=1)


@tool
async def find(places: Any, kind: Any = "town") -> Found | None:
    """Return its argument."""
    return Found(places, kind) if isinstance(places, list) else places


async def test_a_result_of_the_declared_type_is_returned_as_json(context: ToolContext) -> None:
    given = {"places": [{"city": "Bern", "zone": 1}]}
    expected = {"places": [{"city": "Bern", "zone": 1}], "kind": "town", "at": "/", "count": 1}
    assert await find.call(context, given) == expected
    assert await find.call(context, {"places": None}) is None


@pytest.mark.parametrize(
    "given, output, raw",
    [
        (
            {"places": [{"city": 3}]},
            "'find': places[0].city in the result must be text, got 3",
            '{"places": [{"city": 3}], "kind": "town", "at": "/", "count": 1}',
        ),
        (
            {"places": [], "kind": "hill"},
            '\'find\': kind in the result must be one of "town", "lake", got "hill"',
            '{"places": [], "kind": "hill", "at": "/", "count": 1}',
        ),
        ({"places": "Bern"}, "'find': the result must be a mapping, got \"Bern\"", "Bern"),
        (
            {"places": {"kind": "lake"}},
            "'find': places in the result is missing",
            '{"kind": "lake"}',
        ),
    ],
)
async def test_a_result_that_does_not_fit_is_refused_and_kept(
    context: ToolContext, given: dict[str, object], output: str, raw: str
) -> None:
    with pytest.raises(InvalidOutputError) as caught:
        await find.call(context, given)
    assert output in caught.value.message
    assert caught.value.raw == raw


async def test_kept_part_of_an_invalid_result_is_bounded_and_storable(context: ToolContext) -> None:
    @tool
    async def flood() -> int:
        """Return text in place of a number."""
        return "\0\ud800" + "ä" * RAW_MAX_BYTES  # type: ignore[return-value]

    with pytest.raises(InvalidOutputError) as caught:
        await flood.call(context, {})
    assert caught.value.raw.startswith("\ufffd\ufffdä")
    assert RAW_MAX_BYTES - 4 < len(caught.value.raw.encode()) <= RAW_MAX_BYTES
    assert len(caught.value.message) < 300


async def test_text_that_cannot_be_stored_is_no_misfit(context: ToolContext) -> None:
    @tool
    async def odd() -> str:
        """Return NUL and half a pair."""
        return "a\0b\ud800"

    assert await odd.call(context, {}) == "a\ufffdb\ufffd"


@pytest.mark.parametrize("declared", [{}, {"return": Any}, {"return": object}])
async def test_a_result_of_no_declared_type_is_not_checked(
    context: ToolContext, declared: dict[str, object]
) -> None:
    async def anything():  # type: ignore[no-untyped-def] # noqa: ANN202
        """Return a mixture."""
        return {"a": [1, "b", None]}

    anything.__annotations__ = declared
    assert await tool(anything).call(context, {}) == {"a": [1, "b", None]}


async def test_unparsable_input_is_reported_verbatim(context: ToolContext) -> None:
    with pytest.raises(ToolInputError) as caught:
        await look_up.call(context, {"invalid_input": '{"place": '})
    assert "input is not a JSON object" in caught.value.message
    assert caught.value.raw == '{"place": '


def test_tool_declares_its_breaker_and_whether_it_is_required() -> None:
    @tool(local=True, required=True)
    def near() -> None:
        """Need nothing."""

    @tool(breaker=lambda arguments: f"http:{arguments.host}")
    def far(host: str) -> None:
        """Need a host."""

    assert (near.is_required, near.breaker_name(near.parse({}))) == (True, None)
    assert far.breaker_name(far.parse({"host": "a.org"})) == "http:a.org"
    assert not look_up.is_required
    assert (
        look_up.breaker_name(look_up.parse({"place": {"city": ""}, "days": []})) == "tool:look-up"
    )


def test_a_tool_without_a_figure_gets_that_of_any_tool_call() -> None:
    def do() -> None:
        """Do it."""

    assert tool(do).timeout_s == 120
    assert tool(timeout=30)(do).timeout_s == 30


async def test_the_functions_own_error_passes_through(context: ToolContext) -> None:
    @tool
    async def fail() -> None:
        """Fail."""
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        await fail.call(context, {})


def _no_docstring(a: str) -> None:
    pass


def _no_type(a) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Take anything."""


def _no_form(a: bytes) -> None:
    """Take bytes."""


def _no_name(*a: str) -> None:
    """Take many."""


def _describes_another(a: str) -> None:
    """Take a.

    Args:
        b: Not there.
    """


@attrs.frozen
class Tree:
    below: "list[Tree]"


def _recursive(tree: Tree) -> None:
    """Take a tree."""


def _returns_bytes() -> bytes:
    """Return bytes."""
    return b""


def _takes_a_taken_name(invalid_input: str) -> None:
    """Take a."""


@pytest.mark.parametrize(
    "function, output",
    [
        (_no_docstring, "has no docstring"),
        (_no_type, "argument 'a' has no type"),
        (_no_form, "bytes has no JSON form"),
        (_no_name, "cannot be passed by its name"),
        (_describes_another, "unknown argument 'b'"),
        (_recursive, "Tree contains itself"),
        (_returns_bytes, "its result: bytes has no JSON form"),
        (_takes_a_taken_name, "'invalid_input' is taken"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused(
    function: Callable[..., Any], output: str
) -> None:
    with pytest.raises(UsageError, match=output):
        tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 65, "a\n"])
def test_a_name_that_the_api_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="does not match"):
        tool(name=name)(_describes_another)


@pytest.mark.parametrize("timeout", [0, -1, 601, float("nan")])
def test_a_time_out_out_of_range_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        tool(timeout=timeout)(_describes_another)


class Basket(TypedDict):
    items: list["Line"]
    note: NotRequired[str]


@dataclasses.dataclass
class Line:
    """A line of a basket.

    Attributes:
        price: In euros.
    """

    price: Decimal
    count: int = 1


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(description="In full.", alias="fullName")
    friends: list["Friend"] = []


class Friend(pydantic.BaseModel):
    name: str


@tool
async def order(basket: Basket, customer: Customer) -> Customer:
    """Order a basket."""
    return customer.model_copy(update={"name": f"{customer.name}, {basket['items'][0].count}"})


async def test_a_tool_takes_and_returns_dataclasses_typed_dicts_and_pydantic_models(
    context: ToolContext,
) -> None:
    properties = order.input_schema["properties"]
    line = properties["basket"]["properties"]["items"]["items"]["properties"]
    assert line["price"]["description"] == "In euros."
    assert properties["basket"]["required"] == ["items"]
    assert properties["customer"]["properties"]["name"]["description"] == "In full."
    friend = properties["customer"]["properties"]["friends"]["items"]
    assert friend["properties"]["name"]["type"] == "string"
    given = {"basket": {"items": [{"price": "1.10", "count": 3}]}, "customer": {"fullName": "Ana"}}
    assert await order.call(context, given) == {"name": "Ana, 3", "friends": []}
    canonical = order.canonical(order.parse(given))
    assert canonical["basket"] == {"items": [{"price": "1.10", "count": 3}]}
    assert order.parse(canonical) == order.parse(given)
    with pytest.raises(ToolInputError, match=r"customer\.friends\[0\]\.name is refused"):
        order.parse({"basket": {"items": []}, "customer": {"name": "A", "friends": [{"name": 1}]}})


def test_a_model_that_contains_itself_has_no_schema() -> None:
    class Node(pydantic.BaseModel):
        nodes: "list[Node]"

    async def walk(node: Node) -> None:
        """Walk."""

    walk.__annotations__["node"] = Node
    with pytest.raises(UsageError, match="Node contains itself"):
        tool(walk)


async def test_a_tool_can_be_called_like_its_function() -> None:
    basket: Basket = {"items": [Line(Decimal(1))]}
    customer = Customer(fullName="Ana")
    assert (await order(basket, customer=customer)).name == "Ana, 1"
    record = Record()
    for _ in range(2):
        ctx = a_context(record, tools=Toolbox({"order": order}))
        called = await ctx.tool(
            "order", order, {"basket": basket_json(), "customer": {"name": "B"}}
        )
        assert called == Customer(fullName="B, 1")


def basket_json() -> dict[str, Any]:
    return {"items": [{"price": 1}]}


async def test_tool_without_effect_has_no_invocation(context: ToolContext) -> None:
    @tool
    def blind(context: ToolContext) -> str:
        """Ask for what only an effect has."""
        return str(context.invocation.id)

    with pytest.raises(UsageError, match=r"^context\.invocation: .* write @tool\(effect=True\)$"):
        await blind.call(context, {})


def test_tools_are_found_in_modules() -> None:
    assert tools_by_name(sys.modules[__name__], look_up) == {
        "look-up": look_up,
        "find": find,
        "order": order,
    }


def test_two_tools_of_one_name_are_refused() -> None:
    module = ModuleType("other")
    module.twin = _twin()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"two tools are named 'look-up': .* and .*_twin"):
        tools_by_name(look_up, module)


def _twin() -> AnyTool:
    @tool(name="look-up")
    def twin() -> None:
        """Have the same name."""

    return twin
