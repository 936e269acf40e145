"""Logins of the test server with the rights of a role of Cortex."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from tests.support.servers.postgres import sql


@contextmanager
def login_with(dsn: str, *roles: str) -> Iterator[str]:
    """Create a login with these roles for the block; yields the address for it."""
    name = f"login_{uuid4().hex[:12]}"
    sql(dsn, f"CREATE ROLE {name} LOGIN")
    try:
        for role in roles:
            sql(dsn, f"GRANT {role} TO {name}")
        yield dsn.replace("://postgres@", f"://{name}@")
    finally:
        ends = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1"
        sql(dsn, ends, name)
        sql(dsn, f"DROP ROLE {name}")


def name_of(dsn: str) -> str:
    """The login of an address."""
    return dsn.partition("://")[2].partition("@")[0]
