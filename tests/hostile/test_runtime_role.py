"""A pod's role cannot write what only people may write."""

import asyncpg
import pytest

from tests.support.records.rows import as_runtime
from tests.support.servers.postgres import sql


@pytest.mark.parametrize("table", ["retention", "job_history", "migration"])
@pytest.mark.parametrize("verb", ["DELETE FROM cortex.{}", "TRUNCATE cortex.{}"])
def test_the_runtime_role_is_refused(shared_database: str, table: str, verb: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=table):
        sql(as_runtime(shared_database), verb.format(table))
