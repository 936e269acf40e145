"""The page of the schema and the tables of its document are those of a migrated database."""

import re
from pathlib import Path

import asyncpg
import pytest

from tests.support.schema_page import DOCUMENT, PAGE, document, made
from tests.support.servers.postgres import run_asyncio

ANEW = "make it anew: python -m tests.support.generate schema"


def test_the_page_is_the_schema_of_all_migrations(database: str) -> None:
    assert PAGE.read_text("utf-8") == made(database).page, ANEW


def test_the_document_lists_and_draws_all_tables(database: str) -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text == document(made(database).tables), ANEW
    named = set(re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE))
    created = re.findall(r"^CREATE (?:UNLOGGED )?TABLE \w+\.(\w+)", page(), re.MULTILINE)
    assert named == set(created)


@pytest.mark.usefixtures("database")  # whose migrations made the roles of the server
def test_the_page_makes_the_schema_that_it_shows(empty_database: str) -> None:
    """Nothing that it leaves out is needed, and it is in an order that works."""

    async def build() -> None:
        connection = await asyncpg.connect(empty_database)
        try:
            await connection.execute(page())
        finally:
            await connection.close()  # noqa: ASYNC102 -- as the test ends

    run_asyncio(build)
    assert without_words(made(empty_database).page) == without_words(page())


def page() -> str:
    return Path(PAGE).read_text("utf-8")


def without_words(text: str) -> list[str]:
    """Its statements: descriptions of objects are comments, which a page cannot make again."""
    lines = (re.sub(r"(^|  )-- .*", "", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line]
