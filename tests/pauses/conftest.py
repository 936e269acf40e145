"""A database for the tests of a module, without jobs at the start of each."""

from collections.abc import Iterator

import pytest

from cortex.postgres.database import Profile
from tests.support.life import Life
from tests.support.records.rows import move_clock
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql


@pytest.fixture(scope="module")
def shared(shared_database: str) -> Iterator[Life]:
    with kept_session(Profile(dsn=shared_database)) as call:
        yield Life(call, shared_database)


@pytest.fixture
def clean(shared: Life) -> Life:
    """No tasks, pauses or rules; the clock runs right."""
    move_clock(shared.dsn, 0)
    sql(
        shared.dsn,
        "TRUNCATE cortex_worker.task, cortex_worker.pause, cortex.submit_key, cortex.submit_rule,"
        " cortex.idempotency_key, cortex_worker.strict_queue, cortex_worker.queue_due, cortex.turn",
    )
    return shared
