"""The values at the top of every screen, read from the database."""

from datetime import timedelta

from cortex.store import operator
from tests.support.life import Life
from tests.support.servers.postgres import sql


def ready_and_living(life: Life) -> tuple[int, int]:
    head = life.call(operator.head)
    return head.pods_ready, head.pods_living


def be_silent(dsn: str, seconds: float) -> None:
    sql(
        dsn,
        "UPDATE cortex.pod SET heartbeat_at = cortex.now() - $1::interval",
        timedelta(seconds=seconds),
    )


def test_a_pod_that_has_been_silent_for_too_long_is_not_ready(life: Life, database: str) -> None:
    assert ready_and_living(life) == (0, 0)
    life.pod()
    assert ready_and_living(life) == (1, 1)
    be_silent(database, 93)
    assert ready_and_living(life) == (1, 1)
    be_silent(database, 96)
    assert ready_and_living(life) == (0, 1), "it is not known to be dead"
