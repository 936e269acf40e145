"""Starting: pods at once make one schema; what cannot work is refused in one clear line."""

import re
import signal
from pathlib import Path

import pytest

from cortex.runtime.loop_guard import LoopGuard
from tests.support.eventually import eventually
from tests.support.pods import Pods, end_of_pod, run_cli, until_pods
from tests.support.records.rows import submit, submit_many, until_jobs, until_status
from tests.support.recovering import recovering
from tests.support.servers.postgres import database_of, sql

PODS = 4
JOBS = 100
UP = ("up", "--app", "tests.support.apps.pod_app", "--json")


def test_pods_at_once_make_one_schema(empty_database: str, tmp_path: Path) -> None:
    pods = Pods(empty_database, tmp_path)
    try:
        for _ in range(PODS):
            pods.launch()
        for pod in pods.all:
            pod.until_ready()
        until_pods(empty_database, READY=PODS)
        applied = sql(empty_database, "SELECT version FROM cortex.migration ORDER BY version")
        assert [row["version"] for row in applied] == list(range(1, len(applied) + 1))
        submit_many(empty_database, JOBS, "noop", {})
        until_jobs(empty_database, "status = 'COMPLETED' AND attempt = 1", count=JOBS)
        assert len({pod.name for pod in pods.all}) == PODS
        assert {pod.stop() for pod in pods.all} == {0}
        until_pods(empty_database, STOPPED=PODS, READY=0, DEAD=0)
    finally:
        pods.close()


def test_a_pod_guards_its_event_loop_and_stores_the_version_of_its_code(pods: Pods) -> None:
    pod = pods.start()
    query = "SELECT c.version FROM cortex.pod p JOIN cortex.code c ON c.id = p.code_id"
    assert re.fullmatch("[0-9a-f]{12}", sql(pods.dsn, query)[0]["version"])
    pod.signal(signal.SIGUSR1)  # it writes what all its tasks are at
    eventually(lambda: LoopGuard.name in pod.log, what="the guard is there")


def test_pod_with_lost_threads_restarts(pods: Pods) -> None:
    pods.is_forked = False
    pod = pods.start("--app", "tests.support.apps.worn_app", **end_of_pod(1))
    submit(pods.dsn, "stays")
    pod.until_ready()
    until_pods(pods.dsn, READY=1, STOPPED=1)
    until_status(pods.dsn, submit(pods.dsn, "quick"), "COMPLETED")
    assert "pod starts again" in pod.log
    assert pod.stop() == 0


def test_pod_registers_its_liveness_settings(pods: Pods) -> None:
    settings = {"peer_check_s": 0.25, "heartbeat_s": 7, "zombie_s": 50, "sweep_s": 3}
    pod = pods.start("--code-version", "1.4.2", **settings)
    (row,) = sql(
        pods.dsn,
        "SELECT peer_check_s, heartbeat_s, zombie_s, sweep_s, c.version AS code_version "
        "FROM cortex.pod p JOIN cortex.code c ON c.id = p.code_id WHERE name = $1",
        pod.name,
    )
    assert dict(row) == settings | {"code_version": "1.4.2"}


def test_a_newer_schema_is_refused(database: str, tmp_path: Path) -> None:
    sql(database, "INSERT INTO cortex.migration VALUES (9999, 'of the future', '')")
    error = run_cli(*UP, dsn=database, folder=tmp_path).refused()
    assert error["code"] == "schema"
    assert "schema is at version 9999" in error["message"]
    assert "upgrade Cortex" in error["hint"]
    assert sql(database, "SELECT FROM cortex.pod") == []


def test_an_edited_migration_is_refused(database: str, tmp_path: Path) -> None:
    sql(database, "UPDATE cortex.migration SET digest = 'x' WHERE version = 1")
    error = run_cli(*UP, dsn=database, folder=tmp_path).refused()
    assert "migration 1 (base) is not the one that was applied" in error["message"]


def test_reading_an_empty_database_suggests_migrate(empty_database: str, tmp_path: Path) -> None:
    error = run_cli("jobs", "ls", "--json", dsn=empty_database, folder=tmp_path).refused()
    assert "schema" in error["message"]
    assert "cortex migrate" in error["hint"]


def test_a_server_that_recovers_is_waited_for(database: str, tmp_path: Path) -> None:
    with recovering() as server:
        at_port = f"postgresql://postgres@127.0.0.1:{server.port}/{database_of(database)}"
        pods = Pods(at_port, tmp_path)
        try:
            pod = pods.launch()
            eventually(lambda: server.turned_away >= 2, what="the pod asks again")
            assert pod.log.count("waiting for the database") == 1
            assert "the database system is starting up" in pod.log
            pod.signal(signal.SIGTERM)
            assert pod.exit_code() == 128 + signal.SIGTERM
        finally:
            pods.close()
        others = run_cli("jobs", "ls", "--json", dsn=at_port, folder=tmp_path).refused()
        assert "starting up" in others["message"]


SECRET = "hunter2"


@pytest.mark.parametrize(
    "dsn, output",
    [
        ("postgresql://ana:hunter2@127.0.0.1:1/cortex", "cannot reach the database at"),
        ("postgresql://ana:hunter2@localhost:99999/cortex", "bad host or port"),
        ("postgresql://ana:hunter2@no.such.host.invalid/cortex", "no.such.host.invalid"),
        ("mysql://ana:hunter2@localhost/cortex", "not a Postgres address"),
        ("host=localhost user=ana password=hunter2", "not a Postgres address"),
        ("ana:hunter2@localhost/cortex", "not a Postgres address"),
        ("postgresql://ana@127.0.0.1:1/cortex?password=hunter2", "cannot reach"),
        ("postgresql:/ana:hunter2@localhost/cortex", ""),
        ("postgresql://ana:hunter2@[::1/cortex", ""),
        ("postgresql://ana:hunter2/x@localhost/cortex", ""),
        ("postgresql://ana:hunter2#@localhost/cortex", ""),
        ("postgresql://ana:hunter2@127.0.0.1:1/cortex?sslmode=wrong", ""),
    ],
)
@pytest.mark.parametrize("command", [UP, ("jobs", "ls", "--json")], ids=["up", "ls"])
def test_wrong_address_is_reported_without_its_password(
    command: tuple[str, ...], dsn: str, output: str, tmp_path: Path
) -> None:
    by_environment = run_cli(*command, dsn=dsn, folder=tmp_path)
    error = by_environment.refused(exit_code=by_environment.exit_code)
    assert by_environment.exit_code in {1, 2}
    assert output in error["message"]
    assert SECRET not in by_environment.stderr


@pytest.mark.parametrize("more", [(), ("--debug",)], ids=["plain", "debug"])
def test_password_on_the_command_line_is_never_shown(more: tuple[str, ...], tmp_path: Path) -> None:
    dsn = f"postgresql://ana:{SECRET}@127.0.0.1:1/cortex"
    ran = run_cli("jobs", "ls", "--dsn", dsn, *more, dsn=None, folder=tmp_path)
    assert ran.exit_code == 1
    assert "cannot reach the database at postgresql://ana:***@127.0.0.1:1/cortex" in ran.stderr
    assert SECRET not in ran.stderr + ran.stdout


def test_missing_database_or_user_is_named(database: str, tmp_path: Path) -> None:
    absent = database.replace(database_of(database), "absent")
    error = run_cli(*UP, dsn=absent, folder=tmp_path).refused(exit_code=3)
    assert 'database "absent" does not exist' in error["message"]
    stranger = database.replace("postgres@", f"stranger:{SECRET}@")
    ran = run_cli(*UP, dsn=stranger, folder=tmp_path)
    error = ran.refused(exit_code=4)
    assert '"stranger"' in error["message"]
    assert SECRET not in ran.stderr


@pytest.mark.parametrize(
    "name, value, output",
    [
        ("CORTEX_SLOTS", "0", "slots is 0, outside 1 to"),
        ("CORTEX_SLOTS", "many", "many"),
        ("CORTEX_ZOMBIE_S", "0.6", "less than two heartbeats"),
        ("CORTEX_KILL_S", "nan", "kill_s"),
        ("CORTEX_CLOSED_S", "-1", "closed_s is -1"),
        ("CORTEX_ABORT_S", "60", "closed_s is 9, less than 0.5 s after abort_s of 60"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    database: str, tmp_path: Path, name: str, value: str, output: str
) -> None:
    ran = run_cli(*UP, dsn=database, folder=tmp_path, extra={name: value})
    assert output in ran.refused(exit_code=2)["message"]


@pytest.mark.parametrize(
    "text, output",
    [
        ("import absent", "ModuleNotFoundError: No module named 'absent'"),
        ("def (:", "invalid syntax"),
        ("raise SystemExit(3)", "ends the process while it is imported"),
        ("1 / 0", "ZeroDivisionError"),
        (
            "from cortex.durable.registry import job\n@job('x')\ndef f(ctx): ...",
            "is not an async function",
        ),
    ],
)
def test_a_broken_app_is_refused_with_its_line(
    database: str, tmp_path: Path, text: str, output: str
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(f"\n{text}\n")
    ran = run_cli("up", "--json", "--app", str(file), dsn=database, folder=tmp_path)
    message = ran.refused(exit_code=2)["message"]
    assert output in message
    assert "shop.py:" in message


@pytest.mark.smoke("A change of the code fails no job")
def test_a_job_that_no_pod_knows_waits(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "from_another_app")
    known = submit(pods.dsn, "noop")
    until_jobs(pods.dsn, f"id = '{known}' AND status = 'COMPLETED'", count=1)
    until_jobs(pods.dsn, f"id = '{job_id}' AND status = 'PENDING' AND attempt = 0", count=1)
