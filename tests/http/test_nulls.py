"""Every answer and page that shows rows, each nullable column of the schema null in turn."""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
import orjson
import pytest

from cortex.domain.token import Role
from cortex.http.framework.api import CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME
from cortex.http.framework.principal import Principal
from cortex.http.framework.route import Method, Route
from cortex.http.page import approval_view, inbox
from cortex.http.page.visitor import Visitor
from cortex.http.routes import ROUTES
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import approvals
from tests.support.records.nulls import (
    Answers,
    Asked,
    Column,
    Reading,
    at_each_null,
    fill,
    nullable,
    reading,
)
from tests.support.records.rows import new_id
from tests.support.servers.postgres import SharedPostgres, sql
from tests.support.terminal.tui import on_asyncio

ANA: Final = Principal(name="ana", roles=frozenset(Role), token_id=new_id())
THINGS: Final = {
    "approval_id": "SELECT id FROM cortex.approval ORDER BY id",
    "job_id": "SELECT id FROM cortex.job ORDER BY id",
    "effect_id": "SELECT id FROM cortex.effect ORDER BY id",
    "name": "SELECT name AS id FROM cortex.breaker ORDER BY name",
    "schedule": "SELECT name AS id FROM cortex.schedule ORDER BY name",
    "message_id": "SELECT id FROM cortex.outbox ORDER BY seq",
}
"""The replacement for a parameter of a path."""
LETTERS: Final = "SELECT job_id AS id FROM cortex.dead_letter ORDER BY 1"
ROWLESS: Final = {"/v1/jobs/{job_id}/events", "/v1/jobs/{job_id}/result"}
"""They ask actors of the pod, not the database."""
LOOKS: Final = {
    each.path: each
    for each in ROUTES
    if each.method is Method.GET
    and (each.path.startswith("/v1/") or each.path == inbox.PATH)
    and each.path not in ROWLESS
}


@attrs.frozen
class Request:
    """Parts of a request that handlers read."""

    cookies: Mapping[str, str] = attrs.field(factory=lambda: {COOKIE_NAME: "s"})
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Api:
    """Parts of the API that handlers use."""

    rows: Reading

    async def port(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        return await method(self.rows, *args, **kwargs)


@pytest.fixture(scope="module")
def everything(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database with one of each thing that a person can look at."""
    dsn = shared_postgres.create_migrated()
    with open_session(Profile(dsn=dsn, hot_path=True)) as call:
        fill(call, dsn)
    yield dsn
    shared_postgres.drop(dsn)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", LOOKS)
@on_asyncio
async def test_answer_fits_its_schema_with_any_column_null(everything: str, path: str) -> None:
    route = LOOKS[path]
    seen: set[str] = set()
    parts: list[tuple[dict[str, Any], Answers]] = []
    async with reading(everything) as rows:

        async def look_again(given: dict[str, Any], column: Column, _: list[Asked]) -> None:
            assert await look(rows, route, given) == [], (given, str(column))

        for given in parameters(everything, path):
            rows.asked.clear()
            await look(rows, route, given)
            answers = await Answers.to(rows, everything, rows.asked.values(), seen)
            parts.append((given, answers))
        await at_each_null(rows, parts, look_again)


@pytest.mark.timeout(300)
@on_asyncio
async def test_the_page_of_a_request_is_drawn_whichever_column_is_null(everything: str) -> None:
    visitor = Visitor(principal=ANA, session="s", link=None)
    async with reading(everything) as rows:
        for row in sql(everything, THINGS["approval_id"]):
            before = await approvals.show(rows, row["id"])  # type: ignore[arg-type]  # it reads
            approval_view.show(before, visitor)
            for column in nullable(everything):
                async with rows.null(column) as is_somewhere:
                    if is_somewhere:
                        found = await approvals.show(rows, row["id"])  # type: ignore[arg-type]
                        if found != before:
                            response = approval_view.show(found, visitor)
                            assert b">None<" not in bytes(response.body), str(column)


async def look(rows: Reading, route: Route, path: Mapping[str, Any]) -> list[str]:
    """Ask, and return where the answer has null against its promise."""
    asked = CheckedRequest(
        query=None if route.query is None else route.query(),
        body=None,
        path=path,
        principal=ANA,
        address="127.0.0.1",
        key=None,
        request=Request(),  # type: ignore[arg-type]  # as much of one as they look at
        size=0,
    )
    response = await route.handle(asked, Api(rows))  # type: ignore[arg-type]  # the same
    assert response.status_code in route.answers
    shape = route.answers[response.status_code]
    if shape is None:
        assert b">None<" not in bytes(response.body)
        return []
    return list(broken(shape, orjson.loads(response.body), route.path))


def broken(hint: Any, value: Any, place: str) -> Iterator[str]:
    """Yield the places of forbidden nulls."""
    origin, members = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, types.UnionType):
        if value is not None or type(None) not in members:
            (first, *others) = (each for each in members if each is not type(None))
            yield from () if others else broken(first, value, place)
    elif value is None:
        yield from () if hint is Any else (place,)
    elif attrs.has(origin) and isinstance(value, dict):  # some are written as text
        hints = get_type_hints(origin)
        for name in hints.keys() & value.keys():
            yield from broken(hints[name], value[name], f"{place}.{name}")
    elif origin in (list, Sequence):
        for number, each in enumerate(value):
            yield from broken(members[0], each, f"{place}[{number}]")


def parameters(dsn: str, path: str) -> list[dict[str, Any]]:
    """Return a value that a path allows."""
    found = [name for name in THINGS if f"{{{name}}}" in path]
    if not found:
        assert "{" not in path, path
        return [{}]
    query = LETTERS if path.startswith("/v1/dead-letters/{job_id}") else THINGS[found[0]]
    given: list[UUID | str] = [row["id"] for row in sql(dsn, query)]
    return [{found[0]: each} for each in given]
