"""`cortex doctor`: what it finds, also when nothing else works, and what it never prints."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cortex.domain.errors import UnavailableError
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import open_session
from cortex.store import doctor, pods
from cortex.store.background import subscriptions
from cortex.view.cells import width_of
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.in_process import Ended
from tests.support.life import Life
from tests.support.records.approvals import Askers
from tests.support.records.rows import move_clock
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.postgres import database_of, run_asyncio, sql

UNHEALTHY = 8


def checks(ended: Ended) -> dict[str, dict[str, Any]]:
    """Return the findings by the name of the check."""
    document = ended.document
    found = {each["check"]: each for each in document["checks"]}
    assert len(found) == len(document["checks"])
    assert document["healthy"] == (ended.code == 0)
    for each in found.values():
        assert set(each) == {"check", "grade", "found", "fix"}
        assert each["found"]
    return found


def grades(ended: Ended, grade: str) -> set[str]:
    return {name for name, each in checks(ended).items() if each["grade"] == grade}


@contextmanager
def transaction(dsn: str, *queries: str) -> Iterator[None]:
    """Somebody else's transaction, open while the block lasts."""
    begun, enough = threading.Event(), threading.Event()

    async def hold() -> None:
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            for query in queries:
                await connection.execute(query)
            begun.set()
            await asyncio.to_thread(enough.wait)
        await connection.close()

    thread = threading.Thread(target=run_asyncio, args=(hold,))
    thread.start()
    try:
        assert begun.wait(WITHIN_S)
        yield
    finally:
        enough.set()
        thread.join()


def test_doctor_without_a_database_suggests_a_fix(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("doctor", "--json", "--data", str(cortex_nowhere.folder))
    assert ended.code == UNHEALTHY
    assert grades(ended, "FAIL") == {"database"}
    assert "cortex up" in checks(ended)["database"]["fix"]


def test_a_server_that_does_not_answer_and_a_secret_that_does_not_show(
    cortex_nowhere: Cortex,
) -> None:
    address = "postgresql://ana:hunter2@127.0.0.1:1/none"
    for mode in ([], ["--json"], ["-o", "yaml"]):
        ended = cortex_nowhere("doctor", *mode, env={"CORTEX_DSN": address})
        assert ended.code == UNHEALTHY
        assert "cannot reach the database at postgresql://ana:***@127.0.0.1:1/none" in ended.out
        assert "is Postgres running" in ended.out
        assert "hunter2" not in ended.out + ended.err
    assert "unhealthy: database" in cortex_nowhere("doctor", env={"CORTEX_DSN": address}).out
    assert cortex_nowhere("doctor", "-o", "name").out == "unhealthy\n"


def test_settings_that_make_no_sense_are_a_finding(cortex: Cortex) -> None:
    ended = cortex("doctor", "--json", env={"CORTEX_SLOTS": "many"})
    assert grades(ended, "FAIL") == {"config"}
    assert "CORTEX_SLOTS" in checks(ended)["config"]["found"]


def test_unknown_variable_is_a_finding(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("doctor", "--json", env={"CORTEX_SLOT": "9"})
    assert "config" in grades(ended, "warn")
    config = checks(ended)["config"]
    assert config["found"].endswith("not a setting: CORTEX_SLOT")
    assert config["fix"] == "set CORTEX_SLOTS"


@pytest.mark.parametrize(
    "variable, text",
    [
        ("ALL_PROXY=socks5://ana:hunter2@proxy:1", "ALL_PROXY is a proxy of the kind 'socks5'"),
        ("SSL_CERT_FILE=/none.pem", "SSL_CERT_FILE=/none.pem: "),
        ("SSL_CERT_DIR=/none", "SSL_CERT_DIR=/none: "),
    ],
)
def test_an_unusable_environment_is_a_finding(
    cortex_nowhere: Cortex, variable: str, text: str
) -> None:
    name, _, value = variable.partition("=")
    ended = cortex_nowhere("doctor", "--json", env={name: value})
    assert "environment" in grades(ended, "warn")
    finding = checks(ended)["environment"]
    assert text in finding["found"]
    assert name.rpartition("_")[0] in finding["fix"] or "NO_PROXY" in finding["fix"]
    assert "hunter2" not in ended.out


def test_missing_schema_is_a_finding(tmp_path: Path, empty_database: str) -> None:
    ended = Cortex(tmp_path, empty_database)("doctor", "--json")
    assert grades(ended, "FAIL") == {"schema"}
    assert "cortex migrate" in checks(ended)["schema"]["fix"]
    assert checks(ended)["connections"]["grade"] == "ok"


def test_doctor_runs_every_check(cortex: Cortex, life: Life) -> None:
    (cortex.folder / "cortex.toml").write_text("zombie_s = 200\n")
    ended = cortex("doctor", "--json")
    found = checks(ended)
    assert list(found) == [
        *("config", "database", "writes", "clock", "connections", "snapshots", "pooler"),
        *(
            "notifications",
            "schema",
            "logins",
            "pods",
            "runners",
            "retention",
            "access",
            "recovery",
            "queue",
            "code",
            "pauses",
            "limits",
            "breakers",
        ),
        *("dead letters", "effects", "approvals", "caching", "subscriptions", "schedules"),
        *("environment", "terminal"),
    ]
    assert found["config"]["found"] == (
        "data from CORTEX_DATA, dsn from CORTEX_DSN, zombie_s from cortex.toml; the rest by default"
    )
    assert ended.code == 0
    assert (
        {"pods"}
        <= grades(ended, "warn")
        <= {*("access", "pods", "writes", "snapshots", "connections")}
    )

    life.failed()
    life.pod("pod-7")
    found = checks(cortex("doctor", "--json"))
    assert found["dead letters"]["found"] == "1 failed job waits for a person"
    assert found["locks"]["found"] == "not held by pod-1, pod-7"
    assert found["versions"]["grade"] == "warn"
    assert found["pods"]["found"] == "2 ready"


def test_quick_asks_only_whether_a_pod_of_this_host_works(cortex: Cortex, life: Life) -> None:
    life.pod("elsewhere:7")
    ended = cortex("doctor", "--quick", "--json")
    assert (ended.code, grades(ended, "FAIL")) == (UNHEALTHY, {"pods"})
    name = f"{socket.gethostname()}:7"
    life.pod(name)
    ended = cortex("doctor", "--quick", "--json")
    assert checks(ended)["pods"]["found"] == f"alive: {name}"


def test_due_jobs_without_a_pod_are_a_failure(cortex: Cortex, life: Life) -> None:
    life.job()
    move_clock(life.dsn, 120)
    ended = cortex("doctor", "--json")
    assert grades(ended, "FAIL") == {"pods"}
    assert checks(ended)["queue"]["found"].startswith("1 due, the oldest for 0:02:0")


def test_locked_job_of_a_lost_pod_is_a_failure(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = life.job()
    life.claim(pod)
    life.call(pods.leave, pod)
    move_clock(life.dsn, 1000)
    assert "recovery" not in grades(cortex("doctor", "--json"), "FAIL")
    with transaction(life.dsn, f"SELECT FROM cortex.job_record WHERE id = '{job_id}' FOR UPDATE"):
        (holder,) = life.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND state = 'idle in transaction'",
            database_of(life.dsn),
        )
        found = checks(cortex("doctor", "--json"))["recovery"]
    assert found["grade"] == "FAIL"
    assert "1 jobs of lost pods are blocked" in found["found"]
    assert f"pg_terminate_backend({holder['pid']})" in found["fix"]


def test_read_only_server_fails_the_check_of_writes(cortex: Cortex, database: str) -> None:
    name = database_of(database)
    sql(database, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    ended = cortex("doctor", "--json")
    assert {"writes"} <= grades(ended, "FAIL")
    assert checks(ended)["writes"]["found"] == "this server is set to take no writes"


def test_behind_a_pooler(tmp_path: Path, database: str, server_home: Path) -> None:
    with pgbouncer(database, server_home) as pooler:
        ended = Cortex(tmp_path, pooler.dsn)("doctor", "--json")
    assert ended.code == 0
    found = checks(ended)
    assert found["pooler"]["grade"] == "warn"
    assert "notifications" not in found


@pytest.fixture
def plain_dsn(database: str) -> Iterator[str]:
    """The address for a user who sees no more of other roles' sessions than that they are there."""
    name = f"plain_{database_of(database)}"
    sql(database, f"CREATE ROLE {name} LOGIN")
    yield database.replace("//postgres@", f"//{name}@")
    sql(database, f"DROP ROLE {name}")


def test_open_snapshot_is_found_with_its_session(database: str, plain_dsn: str) -> None:
    held = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND state = 'idle in transaction'"
    began = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT pg_backend_pid()")
    with transaction(database, *began):
        (holder,) = sql(database, held, database_of(database))
        for dsn in (database, plain_dsn):
            (ours,) = sql(database, HELD_FOR, holder["pid"])
            with open_session(Profile(dsn=dsn, role=None)) as call:
                snapshots = call(doctor.connected).server.snapshots
            assert {each.kind for each in snapshots} == {"session"}
            # Other tests share the server: of them one may be older.
            assert all(each.pid and each.name.startswith(str(each.pid)) for each in snapshots)
            if dsn is plain_dsn:
                assert [each.held_s for each in snapshots] == [None]
            else:
                (longest,) = (each.held_s for each in snapshots)
                assert longest is not None
                assert longest >= ours["held_s"]


HELD_FOR = """
    SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS held_s
    FROM pg_stat_activity WHERE pid = $1
"""


def test_foreign_session_holding_a_lock_of_pods_is_a_failure(
    cortex: Cortex, plain_dsn: str
) -> None:
    assert "intruders" not in checks(cortex("doctor", "--json"))
    take = "SELECT pg_advisory_lock(hashtextextended('cortex.migration', 0))"
    with transaction(plain_dsn, take):
        ended = cortex("doctor", "--json")
        assert ended.code == UNHEALTHY
        found = checks(ended)["intruders"]
    assert found["grade"] == "FAIL"
    assert "belongs to no pod and holds the lock of migrations" in found["found"]
    assert "pg_terminate_backend" in found["fix"]


def test_sessions_of_other_roles_take_connections_too(database: str, plain_dsn: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(transaction(database))
        with open_session(Profile(dsn=plain_dsn, role=None)) as call:
            assert call(doctor.connected).server.connections_used >= 6


def test_a_session_that_is_lost_while_it_listens_is_no_notification(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end_listeners(db: Database, *, channel: str) -> None:
        await asyncio.to_thread(sql, database, END_LISTENERS, database_of(database), channel)

    monkeypatch.setattr(pods, "probe", end_listeners)
    with open_session(Profile(dsn=database, role=None)) as call:
        with pytest.raises(UnavailableError, match="was lost"):
            call(doctor.hint_ms)


END_LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = $1 AND query ILIKE '%listen%' || $2 || '%' AND pid <> pg_backend_pid()
"""


def test_unreadable_data_folder_is_a_failure(cortex_nowhere: Cortex) -> None:
    """Its name is too long, which holds for root, too."""
    folder = str(cortex_nowhere.folder / ("x" * 300))
    ended = cortex_nowhere("doctor", "--json", "--data", folder)
    assert grades(ended, "FAIL") == {"disk", "database"}
    assert "File name too long" in checks(ended)["disk"]["found"]
    assert "--data" in checks(ended)["disk"]["fix"]


@pytest.mark.parametrize("columns", [50, 120])
def test_lines_fit_on_a_terminal(cortex: Cortex, columns: int) -> None:
    terminal = cortex.on_terminal("doctor", columns=columns, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert all(width_of(line.rstrip()) <= columns for line in lines)
    starts = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert set(starts) <= {"ok", "warn", "needs"}  # not "healthy" as well: there are warnings
    assert any(line.strip() == "start one: cortex up" for line in lines)


def test_columns_make_no_sense(cortex: Cortex) -> None:
    ended = cortex("doctor", "--columns", "check")
    assert ended.code == 2
    assert "no columns" in ended.err


def test_approvals_without_a_notification_are_found(
    cortex: Cortex, life: Life, database: str
) -> None:
    askers = Askers(life.call, database)
    askers.asked()
    found = checks(cortex("doctor", "--json"))["approvals"]
    assert (found["grade"], found["found"]) == ("warn", "1 wait, and nobody was notified of them")
    assert "cortex subscriptions apply" in found["fix"]
    row = Subscription(name="ops", topic="approval.*", channel=Channel.LOG)
    life.call(subscriptions.put, row, by="ana", reason="")
    askers.asked()
    assert checks(cortex("doctor", "--json"))["approvals"]["found"].startswith("1 wait")
