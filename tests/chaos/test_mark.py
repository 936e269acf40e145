"""A database that chaos did not make is left alone."""

import pytest

from chaos.cluster.mark import UnmarkedError, mark, refuse_unmarked
from tests.support.records.rows import new_id
from tests.support.servers.postgres import run_asyncio, sql


def test_an_unmarked_database_is_refused(empty_database: str) -> None:
    with pytest.raises(UnmarkedError, match="was not made by"):
        run_asyncio(lambda: refuse_unmarked(empty_database))


def test_marked_database_is_accepted_and_half_a_mark_refused(empty_database: str) -> None:
    run_asyncio(lambda: mark(empty_database, run=new_id()))
    run_asyncio(lambda: refuse_unmarked(empty_database))
    sql(empty_database, "UPDATE public.chaos_mark SET run = $1", new_id())
    with pytest.raises(UnmarkedError):
        run_asyncio(lambda: refuse_unmarked(empty_database))
