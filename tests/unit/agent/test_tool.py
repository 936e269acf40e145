"""A function becomes a tool: its schema, the check of its input, its time-out, its result."""

import sys
import threading
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any, Literal

import attrs
import pytest
import trio

from cortex.agent.tool import Tool, ToolContext, ToolInputError, tool, tools_by_name
from cortex.domain.errors import InvalidValueError, TimedOutError, UsageError


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
            "unit": {"type": "string", "enum": ["m", "ft"]},
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
        """Tell whether this is the main thread."""
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

    with pytest.raises(TimedOutError, match=r"'wait' timed out after 0\.01 seconds"):
        await wait.call(context, {})
    assert seen == ["cancelled"]


async def test_a_thread_is_left_behind_at_its_time_out(context: ToolContext) -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def block() -> None:
        """Block until the test lets go."""
        release.wait()

    try:
        with trio.fail_after(5), pytest.raises(TimedOutError):
            await block.call(context, {})
    finally:
        release.set()


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

    with pytest.raises(InvalidValueError, match="'picture': data in the result is bytes"):
        await picture.call(context, {})


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


@pytest.mark.parametrize(
    "function, told",
    [
        (_no_docstring, "has no docstring"),
        (_no_type, "argument 'a' has no type"),
        (_no_form, "bytes has no JSON form"),
        (_no_name, "cannot be passed by its name"),
        (_describes_another, "unknown argument 'b'"),
        (_recursive, "Tree holds itself"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused(
    function: Callable[..., Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a" * 65, "a\n"])
def test_a_name_that_the_api_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="does not match"):
        tool(name=name)(_describes_another)


@pytest.mark.parametrize("timeout", [0, -1, 601, float("nan")])
def test_a_time_out_out_of_range_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        tool(timeout=timeout)(_describes_another)


def test_tools_are_found_in_modules() -> None:
    assert tools_by_name(sys.modules[__name__], look_up) == {"look-up": look_up}


def test_two_tools_of_one_name_are_refused() -> None:
    module = ModuleType("other")
    module.twin = _twin()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"two tools are named 'look-up': .* and .*_twin"):
        tools_by_name(look_up, module)


def _twin() -> Tool:
    @tool(name="look-up")
    def twin() -> None:
        """Have the same name."""

    return twin
