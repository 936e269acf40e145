"""A login with cortex_tenant_reader reads rows of its tenant alone, and no table."""

from collections.abc import Iterator
from typing import Final

import asyncpg
import pytest

from tests.hostile.test_tenants import Records, of_two_tenants
from tests.support.logins import login_with, name_of
from tests.support.servers.postgres import sql

ROLE: Final = "cortex_tenant_reader"
VIEWS: Final = {
    "approval": "id = '{r.approval}'",
    "dead_letter": "job_id = '{r.letter}'",
    "effect": "id = '{r.effect}'",
    "fact": "source = '{r.fact}'",
    "job": "id = '{r.job}'",
    "job_attempt": "job_id = '{r.job}'",
    "job_file": "job_id = '{r.job}'",
    "job_published": "job_id = '{r.job}'",
    "job_history": "job_id = '{r.job}'",
    "job_step": "job_id = '{r.letter}'",
    "log_line": "job_id = '{r.job}'",
    "schedule": "name = '{r.schedule}'",
    "signal": "job_id = '{r.job}'",
}
"""Views, and a condition that a record of each tenant fulfils."""
READABLE: Final = f"""
    SELECT c.oid::regclass::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname LIKE 'cortex%' AND c.relkind IN ('r', 'v', 'S')
      AND (has_any_column_privilege('{ROLE}', c.oid, 'SELECT, INSERT, UPDATE')
           OR has_table_privilege('{ROLE}', c.oid, 'DELETE, TRUNCATE'))
"""  # noqa: S608
REVEALED: Final = "1 / (CASE WHEN {condition} THEN 0 ELSE 1 END) = 1"
"""Fails for a row that it is evaluated for, and so shows that there is one."""


@pytest.fixture(scope="module")
def records(shared_database: str) -> tuple[Records, Records]:
    """Of acme and of bolt."""
    return of_two_tenants(shared_database)


@pytest.fixture(scope="module")
def of_acme(shared_database: str) -> Iterator[str]:
    """The address of a login that reads acme."""
    with login_with(shared_database, ROLE) as dsn:
        sql(shared_database, "INSERT INTO cortex.login_tenant VALUES ($1, 'acme')", name_of(dsn))
        yield dsn
        sql(shared_database, "DELETE FROM cortex.login_tenant WHERE login = $1", name_of(dsn))


def test_every_readable_view_has_a_row(shared_database: str) -> None:
    readable = {row["name"] for row in sql(shared_database, READABLE)}
    assert readable == {f"cortex_tenant.{each}" for each in VIEWS}


def found(dsn: str, view: str, condition: str) -> bool:
    """Whether a login sees a row."""
    query = f"SELECT EXISTS (SELECT FROM cortex_tenant.{view} WHERE {condition}) AS found"  # noqa: S608
    return bool(sql(dsn, query)[0]["found"])


@pytest.mark.parametrize("view", VIEWS)
def test_a_reader_of_one_tenant_sees_its_rows_alone(
    of_acme: str, shared_database: str, records: tuple[Records, Records], view: str
) -> None:
    own, foreign = (VIEWS[view].format(r=each) for each in records)
    assert found(of_acme, view, own)
    assert not found(of_acme, view, foreign)
    assert not found(of_acme, view, f"{foreign} AND {REVEALED.format(condition=foreign)}")
    assert not found(f"{of_acme}&role={ROLE}", view, foreign)
    with login_with(shared_database, ROLE) as of_none:
        assert not found(of_none, view, "true")


ATTEMPTS: Final = (
    "SELECT FROM cortex.job",
    "SELECT FROM cortex.job_record",
    "SELECT FROM cortex.login_tenant",
    "INSERT INTO cortex.login_tenant VALUES (session_user, 'bolt')",
    "UPDATE cortex_tenant.job SET tenant = 'bolt'",
    "DELETE FROM cortex_tenant.fact",
    "SELECT cortex.submit_job('work')",
    "SET ROLE cortex_reader",
)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_reader_of_one_tenant_may_do_nothing_else(of_acme: str, attempt: str) -> None:
    with pytest.raises(
        (asyncpg.InsufficientPrivilegeError, asyncpg.ObjectNotInPrerequisiteStateError)
    ):
        sql(of_acme, attempt)


def test_no_setting_gives_a_reader_another_tenant(
    of_acme: str, records: tuple[Records, Records]
) -> None:
    query = "SELECT set_config('cortex.tenant', 'bolt', false), cortex_tenant.own() AS tenant"
    assert records
    assert sql(of_acme, query)[0]["tenant"] == "acme"


def test_no_table_has_policies_that_plans_would_heed(shared_database: str) -> None:
    query = "SELECT relname FROM pg_class WHERE relrowsecurity AND relname NOT LIKE 'pg_%'"
    assert sql(shared_database, query) == []
