"""Arrays of Postgres's own types: the driver knows them, and does not ask the server."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from cortex.postgres import connections
from cortex.postgres.database import Database
from cortex.postgres.session import Session


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The types that the driver asks the server for, as they come."""
    oids: list[int] = []
    really = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def ask(self: Any, typeoids: Sequence[int], timeout: float | None) -> Any:
        oids.extend(typeoids)
        return await really(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    return oids


def _fetch(store: Session, query: str, *args: object) -> list[asyncpg.Record]:
    async def fetch(db: Database) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await db.transact(
            lambda connection: connection.fetch(query, *args)
        )
        return rows

    return store(fetch)


def test_known_array_types_match_the_server(store: Session) -> None:
    query = """
        SELECT a.oid::int, e.typname::text AS name, e.oid::int AS element
        FROM pg_type a JOIN pg_type e ON e.oid = a.typelem
        WHERE a.oid::int = ANY($1) AND a.typname = '_' || e.typname AND a.typdelim = ','
    """
    rows = _fetch(store, query, list(connections.ARRAYS))
    assert {row["oid"]: (row["name"], row["element"]) for row in rows} == connections.ARRAYS


@pytest.mark.parametrize("name", sorted(name for name, _ in connections.ARRAYS.values()))
def test_arrays_round_trip_without_type_queries(
    store: Session, asked: list[int], name: str
) -> None:
    """A null among them is as good as any value of a type."""
    [row] = _fetch(
        store, f"SELECT $1::{name}[] AS back, array_length($1::{name}[], 1) AS n", [None]
    )
    assert (list(row["back"]), row["n"]) == ([None], 1)
    assert asked == []


def test_array_elements_are_decoded(store: Session, asked: list[int]) -> None:
    [row] = _fetch(store, "SELECT ARRAY[1, 2]::int8[] AS numbers, ARRAY[[true], [false]] AS nested")
    assert (row["numbers"], row["nested"]) == ([1, 2], [[True], [False]])
    assert asked == []


def test_unknown_array_type_is_queried_beside_known_ones(store: Session, asked: list[int]) -> None:
    query = "SELECT ARRAY['LATER']::cortex_worker.task_state[] AS own, $1::uuid[] AS known"
    [row] = _fetch(store, query, [])
    assert (row["own"], row["known"]) == (["LATER"], [])
    assert asked
    assert not set(asked) & set(connections.ARRAYS)
