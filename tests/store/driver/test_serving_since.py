"""Since when the server takes writes: before that, no pod could show that it lives."""

import signal
from datetime import datetime
from pathlib import Path

import pytest

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import pods
from tests.support.eventually import eventually
from tests.support.records.factories import a_pod
from tests.support.records.rows import as_runtime, new_id
from tests.support.servers.postgres import migrate, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.standby import standby_of


@pytest.fixture
def server(private_postgres: PrivatePostgres) -> PrivatePostgres:
    migrate(private_postgres.dsn)
    return private_postgres


def serving_since(server: PrivatePostgres) -> datetime:
    query = "SELECT cortex.serving_since() AS at"
    at: datetime = sql(as_runtime(server.dsn), query)[0]["at"]
    return at


def now(server: PrivatePostgres) -> datetime:
    at: datetime = sql(server.dsn, "SELECT clock_timestamp() AS at")[0]["at"]
    return at


def test_a_crash_of_one_session_is_a_start(server: PrivatePostgres) -> None:
    """Postgres ends all of them and recovers, and says that it has run all the time."""
    started = "SELECT pg_postmaster_start_time() AS at"
    before, began = serving_since(server), sql(server.dsn, started)
    crashed_at = now(server)
    assert before < crashed_at
    with open_session(Profile(dsn=server.dsn)) as session:
        session(pods.page)
        server.kill_backends(signal.SIGKILL)
    eventually(lambda: has_started_since(server, crashed_at), what="it says when it recovered")
    assert sql(server.dsn, started) == began


def has_started_since(server: PrivatePostgres, crashed_at: datetime) -> bool:
    """Whether it has noticed the crash: until then it still answers, or breaks connections."""
    try:
        return serving_since(server) > crashed_at
    except Exception:  # noqa: BLE001 -- it shows in many ways
        return False


def test_a_promotion_is_a_start(server: PrivatePostgres, run_dir: Path, bindir: Path) -> None:
    with open_session(Profile(dsn=server.dsn)) as session:
        session(pods.register, a_pod())
    with standby_of(server, run_dir, bindir) as standby:
        server.stop()
        promoted_at = now(standby)
        assert serving_since(standby) < promoted_at
        standby.promote()
        assert serving_since(standby) > promoted_at
        with open_session(Profile(dsn=standby.dsn)) as session:
            look = {"caller": new_id()}
            assert session(pods.without_lock, **look, settle_s=60.0) == []
            assert len(session(pods.without_lock, **look, settle_s=0.0)) == 1
