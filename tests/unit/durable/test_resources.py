"""Resources: what a parameter gets, and which declarations are refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.effect import Applied, Invocation, NotApplied
from cortex.domain.errors import UsageError
from cortex.durable.registry import Registry, job
from cortex.durable.resources import Resource, Resources, resource
from tests.support.records.factories import LedgerDesk, Record, a_context


class Client:
    """Something that JSON cannot give."""

    def __init__(self, name: str = "opened") -> None:
        self.name = name


@attrs.frozen
class Config:
    url: str


@resource
async def client() -> AsyncIterator[Client]:
    yield Client()


@resource
async def config() -> AsyncIterator[Config]:
    yield Config("http://a")


def module(**values: Any) -> ModuleType:
    made = ModuleType("app")
    vars(made).update(values)
    return made


def opened() -> Resources:
    resources = Resources(opened={Client: Client(), Config: Config("http://a")})
    resources.declare([client, config])
    return resources


async def fetch(url: str, client: Client) -> str:
    return f"{url} by {client.name}"


async def join(url: str) -> str:
    return url


async def test_a_step_whose_resource_is_not_declared_is_refused_in_one_line() -> None:
    reason = r"test_resources\.py:\d+: fetch takes a \S+\.Client, which no open @cortex\.resource"
    for resources in (Resources(), Resources(opened={Config: Config("http://a")})):
        ctx = a_context(resources=resources)
        with pytest.raises(UsageError, match=reason):
            await ctx.step("fetch", fetch, "http://b")
        with pytest.raises(TypeError, match="'url'"):
            await ctx.step("join", join)


async def test_a_step_gets_a_resource_that_is_no_part_of_its_input() -> None:
    record = Record()
    ctx = a_context(record, resources=opened())
    assert await ctx.step("a", fetch, "x") == "x by opened"
    assert record.inputs["a"] == '{"url":"x"}'
    assert await a_context(record).step("a", fetch, "x") == "x by opened"
    assert await ctx.step("in a thread", lambda: len("a")) == 1


async def test_a_value_that_is_given_wins() -> None:
    def name_of(client: Client, *, config: Config, suffix: str = "") -> str:
        return f"{client.name} {config.url}{suffix}"

    bind = opened().bind
    assert bind(name_of)() == "opened http://a"
    assert bind(name_of, (Client("own"),))(Client("own")) == "own http://a"
    assert bind(name_of, (), "client")(client=Client("own")) == "own http://a"
    assert bind(name_of, (), "suffix")(suffix="!") == "opened http://a!"
    for plain in (len, sum, dict, lambda client: client):
        assert bind(plain) is plain


async def test_effects_and_their_reconcile_get_resources() -> None:
    asked: list[str] = []

    async def pay(invocation: Invocation, euros: int, client: Client) -> str:
        if euros == 0:
            raise ConnectionResetError
        return f"{euros} by {client.name} {invocation.attempt}"

    async def applied(invocation: Invocation, client: Client) -> Applied | NotApplied:
        asked.append(client.name)
        return Applied("found")

    ctx = a_context(Record(), gateway=LedgerDesk(), resources=opened())
    assert await ctx.effect("pay", pay, 5, reconcile=applied) == "5 by opened 1"
    ctx = a_context(Record(), gateway=LedgerDesk(), resources=opened())
    assert await ctx.effect("pay", pay, 0, reconcile=applied) == "found"
    assert asked == ["opened"]


async def test_a_tool_gets_a_resource_that_its_schema_does_not_show(tmp_path: Path) -> None:
    context = ToolContext(job_id=UUID(int=1), attempt=1, call_id="c", workspace=tmp_path)

    @tool
    async def look_up(context: ToolContext, city: str, client: Client, config: Config) -> str:
        """Look up."""
        return f"{city} by {client.name} {config.url}"

    assert list(look_up.input_schema["properties"]) == ["city"]
    parsed = look_up.parse({"city": "Rome"})
    assert await look_up.invoke(context, parsed, resources=opened()) == "Rome by opened http://a"


def test_a_handlers_resources_are_no_arguments() -> None:
    @job
    async def digest(ctx: Any, urls: list[str], client: Client, config: Config) -> None: ...

    registry = Registry()
    registry.collect(module(digest=digest, client=client, config=config))
    assert digest.arguments('{"urls": []}') == {"urls": []}
    assert list(digest.schema["properties"]) == ["urls"]


def test_a_request_that_nothing_answers_names_handler_and_type() -> None:
    @job
    async def digest(ctx: Any, client: Client) -> None: ...

    with pytest.raises(UsageError, match=r"resources\.py:\d+: job type 'digest' takes .*Client"):
        Registry().collect(module(digest=digest))


def test_a_resource_declared_after_its_handler_is_named() -> None:
    @attrs.frozen
    class Late:
        url: str

    @job
    async def digest(ctx: Any, late: Late) -> None: ...

    async def make_late() -> AsyncIterator[Late]:  # noqa: ASYNC900 -- decorated below
        yield Late("a")

    make_late.__annotations__["return"] = AsyncIterator[Late]
    with pytest.raises(UsageError, match="is declared later"):
        Registry().collect(module(digest=digest, late=resource(make_late)))


def test_two_resources_of_one_type_are_refused_by_name() -> None:
    @resource
    async def other() -> AsyncIterator[Client]:
        yield Client()

    with pytest.raises(
        UsageError, match=r"two resources have the type Client: client .* and other"
    ):
        Registry().collect(module(client=client, other=other))


async def test_a_function_that_is_a_context_manager_already_is_taken() -> None:
    @resource
    @asynccontextmanager
    async def ready() -> AsyncIterator[Client]:
        yield Client("ready")

    assert isinstance(ready, Resource)
    async with ready() as value:
        assert value.name == "ready"


async def _coroutine() -> Client:
    return Client()


async def _with_parameters(url: str) -> AsyncIterator[Client]:  # noqa: ASYNC900 -- refused
    yield Client(url)


async def _bare() -> Any:  # noqa: ASYNC900 -- refused
    yield Client()


async def _of_text() -> AsyncIterator[str]:  # noqa: ASYNC900 -- refused
    yield "text"


@pytest.mark.parametrize(
    "function, problem",
    [
        (_coroutine, "not an async generator"),
        (_with_parameters, "takes parameters"),
        (_bare, "does not say the class"),
        (_of_text, "does not say the class"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_declaration_that_cannot_work_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        resource(function)
