"""No secret that the process knows is sent to the database, by whichever way a text goes there."""

import ast
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cortex.domain import redaction
from cortex.postgres.database import Profile
from cortex.postgres.dsn import password_of
from tests.support.knowing import forget_secrets
from tests.support.servers.postgres import run_asyncio

STORE = Path(__file__).parent.parent.parent / "cortex" / "store"
VALUE = 'sk-"0f9e8d7c'
MARKER = "[secret TOKEN, 12 characters]"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)
    redaction.register("TOKEN", VALUE)


def sent(dsn: str, method: str, text: str, *args: object) -> Any:
    """The result of a statement run on a connection of the store."""

    async def ask() -> Any:
        connection = await Profile(dsn=dsn).connect()
        try:
            return await getattr(connection, method)(text, *args)
        finally:
            connection.terminate()

    return run_asyncio(ask)


@pytest.mark.parametrize("method", ["fetch", "fetchrow", "fetchval"])
def test_every_parameter_is_redacted(database: str, method: str) -> None:
    query = "SELECT ($1::text, $2::text[], $3::jsonb, $4::bytea, $5::int)"
    list_ = [f"a {VALUE}", None, "b"]
    json = r'{"k": ["sk-\"0f9e8d7c", 12]}'
    found = sent(database, method, query, f"<{VALUE}>", list_, json, VALUE.encode(), 7)
    row = found if method == "fetchval" else found[0][0] if method == "fetch" else found[0]
    text, texts, document, octets, number = row
    assert text == f"<{MARKER}>"
    assert texts == [f"a {MARKER}", None, "b"]
    assert document == f'{{"k": ["{MARKER}", 12]}}'
    assert octets == VALUE.encode()  # a digest must stay one
    assert number == 7


def test_executed_statements_are_redacted_too(database: str) -> None:
    query = "SELECT pg_catalog.set_config('application_name', $1, false)"
    assert sent(database, "execute", query, VALUE) == "SELECT 1"
    table = "CREATE TEMP TABLE t AS SELECT 'none' AS v"

    async def ask() -> Any:
        connection = await Profile(dsn=database, role=None).connect()
        try:
            await connection.execute(table)
            await connection.execute("UPDATE t SET v = $1", VALUE)
            return await connection.fetchval("SELECT v FROM t")
        finally:
            connection.terminate()

    assert run_asyncio(ask) == MARKER


def test_parameters_pass_unchanged_when_no_secret_is_known(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_secrets(monkeypatch)
    assert sent(database, "fetchval", "SELECT $1::text", VALUE) == VALUE


def test_store_uses_only_redacted_connection_methods() -> None:
    """Another way to send parameters (prepared, copied, many at once) would go past."""
    ways = {
        name
        for name in dir(asyncpg.Connection)
        if name.startswith(("copy", "cursor", "execute", "fetch", "prepare"))
    }
    redacted = {"execute", "fetch", "fetchrow", "fetchval"}
    assert ways > redacted
    found = {
        f"{path.name}:{node.lineno} {node.attr}"
        for path in STORE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ways - redacted
    }
    assert found == set()


@pytest.mark.parametrize(
    "dsn, password",
    [
        ("postgresql://u:p%40ss%20word@h/db", "p@ss word"),
        ("postgresql://u@h/db?password=abcdefgh", "abcdefgh"),
        ("host=h user=u password='a b c d' dbname=d", "a b c d"),
        ("host=h password=abcdefgh", "abcdefgh"),
        ("postgresql://postgres:postgres@h/db", None),
        ("postgresql://u:database@h/database", None),
        ("host=h user=postgres password=postgres", None),
        ("postgresql://u@h/db", None),
        ("postgresql:///db?host=/tmp", None),
        ("postgresql://u:p/w@h/db", None),
    ],
)
def test_password_of_a_dsn_is_found(dsn: str, password: str | None) -> None:
    assert password_of(dsn) == password
