"""Job types: their payloads, and invalid declarations."""

from types import ModuleType
from typing import Any, Generic, Literal, TypeVar

import attrs
import pytest

from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.policy import JobPolicy, policy_for
from cortex.durable.registry import JobType, Registry, Retry, job


@attrs.frozen
class Target:
    host: str
    port: int = 80


@job("fetch")
async def fetch(
    ctx: Any, urls: list[str], *, target: Target | None = None, retries: int = 2, extra: Any = None
) -> object:
    return urls, target, retries, extra


@pytest.mark.parametrize(
    "name", ["", "a b", "ä", "-a", "a\0", "\x1b[2J", "x" * 101, "a/b"], ids=ascii
)
def test_a_type_has_a_name_that_every_table_and_terminal_takes(name: str) -> None:
    async def handler(ctx: Any) -> None: ...

    with pytest.raises(UsageError, match="does not match"):
        job(name)(handler)


def test_arguments_take_their_shapes_and_defaults_are_left_to_the_handler() -> None:
    payload = '{"urls": ["a"], "target": {"host": "h"}, "extra": {"any": [1, null]}}'
    assert fetch.arguments(payload) == {
        "urls": ["a"],
        "target": Target("h", 80),
        "extra": {"any": [1, None]},
    }


@pytest.mark.parametrize(
    "payload, names",
    [
        ("[]", ["'fetch'", "not a JSON object"]),
        ("{}", ["'fetch'", "lacks urls"]),
        ('{"urls": "http://one"}', ["payload.urls", "list", "str"]),
        ('{"urls": ["a", 5]}', ["payload.urls[1]"]),
        ('{"urls": [], "retries": "2"}', ["payload.retries", "int"]),
        ('{"urls": [], "target": {"port": 1}}', ["payload.target.host", "missing"]),
        ('{"urls": [], "target": {"host": "h", "prot": 1}}', ["payload.target", "prot"]),
        ('{"urls": [], "target": "h:80"}', ["payload.target", "str"]),
        ('{"urls": [], "other": 1}', ["'fetch'", "unknown key 'other'"]),
    ],
)
def test_a_payload_that_does_not_fit_names_the_argument(payload: str, names: list[str]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        fetch.arguments(payload)
    assert all(name in caught.value.message for name in names), caught.value.message


def test_misspelt_argument_is_suggested() -> None:
    with pytest.raises(InvalidValueError) as caught:
        fetch.arguments('{"urls": [], "retires": 3}')
    assert caught.value.hint == "did you mean 'retries'?"


def test_context_is_never_an_argument() -> None:
    with pytest.raises(InvalidValueError, match="unknown key 'ctx'"):
        fetch.arguments('{"urls": [], "ctx": 1}')


async def test_a_job_type_can_be_called_like_the_function_that_it_is() -> None:
    assert await fetch(None, ["a"], retries=5) == (["a"], None, 5, None)


def test_a_bare_decorator_takes_the_name_of_the_function() -> None:
    @job
    async def resize(ctx: Any, image: str) -> list[Target]:
        return [Target(image)]

    @job(timeout=60)
    async def rotate(ctx: Any) -> None: ...

    assert (resize.name, rotate.name, rotate.policy.timeout_s) == ("resize", "rotate", 60)
    assert resize.result is not None
    assert resize.result.restore([{"host": "h"}], "result") == [Target("h")]


def test_a_result_that_json_cannot_give_is_refused_at_once() -> None:
    async def numbers(ctx: Any) -> list[complex]:
        return []

    with pytest.raises(UsageError, match=r"result of .*numbers cannot be made from JSON: complex"):
        job(numbers)


def test_policy_combines_the_given_limits_with_those_of_the_name() -> None:
    @job("run_agent", retry=Retry(max=0), timeout=30)
    async def mine(ctx: Any) -> None: ...

    known = policy_for("run_agent")
    assert mine.policy == attrs.evolve(known, max_retries=0, timeout_s=30)
    assert mine.policy.backoff.base_s == 5
    assert fetch.policy == JobPolicy()


@pytest.mark.parametrize(
    "options, field",
    [
        ({"timeout": 0}, "timeout_s"),
        ({"retry": Retry(max=101)}, "max_retries"),
        ({"retry": Retry(worker_attempts=0)}, "worker_attempts"),
    ],
)
def test_limits_are_checked_where_the_job_is_defined(options: dict[str, Any], field: str) -> None:
    async def handler(ctx: Any) -> None: ...

    with pytest.raises(UsageError, match=f"'mine'.*{field}"):
        job("mine", **options)(handler)


def not_async(ctx: Any) -> None: ...
async def no_context() -> None: ...
async def any_keywords(ctx: Any, **more: int) -> None: ...
async def any_number(ctx: Any, *more: int) -> None: ...
async def by_place_only(ctx: Any, given: int, /) -> None: ...


@pytest.mark.parametrize(
    "handler", [not_async, no_context, any_keywords, any_number, by_place_only]
)
def test_handler_that_no_payload_can_call_is_refused(handler: Any) -> None:
    with pytest.raises(UsageError, match="job type 'odd'"):
        job("odd")(handler)


def test_a_registry_finds_by_name_and_suggests_the_nearest() -> None:
    registry = Registry([fetch])
    assert registry.get("fetch") is fetch
    assert registry.names == ("fetch",)
    assert registry.policies == {"fetch": fetch.policy}
    with pytest.raises(UsageError) as caught:
        registry.get("fecth")
    assert caught.value.hint == "did you mean 'fetch'?"


def test_one_name_is_one_job_type() -> None:
    @job("fetch")
    async def other(ctx: Any) -> None: ...

    registry = Registry([fetch, fetch])  # the same one again is no second one
    with pytest.raises(UsageError, match="'fetch' is defined twice"):
        registry.add(other)
    assert registry.get("fetch") is fetch


def test_module_registers_only_its_job_types() -> None:
    module = ModuleType("app")
    module.fetch = module.alias = fetch  # type: ignore[attr-defined]
    module.number = 5  # type: ignore[attr-defined]
    registry = Registry()
    registry.collect(module)
    assert registry.names == ("fetch",)
    assert isinstance(registry.get("fetch"), JobType)


class Unmade:
    """Nothing says how it is made from JSON."""


@attrs.frozen
class Holder:
    inner: list[Unmade | None]


@attrs.frozen
class Lost:
    inner: "Unmade.Nowhere"  # type: ignore[name-defined]


T = TypeVar("T")


@attrs.frozen
class Box(Generic[T]):
    things: list[T]


@pytest.mark.parametrize(
    "hint",
    [
        *(list[Unmade], Unmade | None, dict[str, Unmade], Holder, Holder | None, complex),
        *(Lost, list[Lost], Box[Unmade]),
    ],
    ids=str,
)
def test_an_argument_that_json_cannot_be_made_into_is_refused_at_once(hint: Any) -> None:
    async def handler(ctx: Any, thing: Any) -> None: ...

    handler.__annotations__["thing"] = hint
    output = r"job type 'odd': argument 'thing' cannot be made from JSON: .*(Unmade|complex|Lost)"
    with pytest.raises(UsageError, match=output):
        job("odd")(handler)


@attrs.frozen
class Tree:
    branches: "list[Tree]"
    kind: Literal["oak", "elm"] = "oak"


def test_shapes_that_hold_themselves_and_literals_are_taken() -> None:
    @job("grow")
    async def grow(ctx: Any, tree: Tree, others: dict[str, int | None] | None = None) -> None: ...

    assert grow.arguments('{"tree": {"branches": []}}') == {"tree": Tree([])}
    with pytest.raises(InvalidValueError, match=r"payload\.tree"):
        grow.arguments('{"tree": {"branches": [], "kind": "ash"}}')


def test_a_generic_class_is_taken() -> None:
    @job("pack")
    async def pack(ctx: Any, box: Box[Tree]) -> None: ...

    assert pack.arguments('{"box": {"things": [{"branches": []}]}}') == {"box": Box([Tree([])])}


def test_a_word_that_is_none_of_a_literal_is_refused() -> None:
    @job("pick")
    async def pick(ctx: Any, word: Literal["a", "b"]) -> None: ...

    with pytest.raises(InvalidValueError, match="word"):
        pick.arguments('{"word": "c"}')


@pytest.mark.parametrize("final", [KeyError, [KeyError], (KeyError("a"),), (BaseException,)])
def test_final_must_be_a_tuple_of_exception_classes(final: Any) -> None:
    async def handler(ctx: Any) -> None:
        pass

    with pytest.raises(UsageError, match="final is"):
        job("work", final=final)(handler)
