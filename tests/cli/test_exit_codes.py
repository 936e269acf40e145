from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cortex.cli.failures import EXIT_CODES
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import CHANCE, Life

NOBODY = "01a1f84b-0000-7000-8000-000000000000"


def test_help_names_every_exit_code(cortex_nowhere: Cortex) -> None:
    shown = cortex_nowhere("--help")
    assert shown.code == 0
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<3}  {meaning}" in shown.out


def test_0_a_command_that_worked(cortex: Cortex) -> None:
    assert cortex("jobs", "ls").code == 0
    assert cortex("migrate", "--check").code == 0


def test_1_a_database_that_does_not_answer(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("jobs", "ls", "--dsn", "postgresql://127.0.0.1:1/none")
    assert ended.code == 1
    assert ended.err.startswith("error: cannot reach the database at postgresql://127.0.0.1:1/none")


def test_1_a_schema_that_is_not_there(tmp_path: Path, empty_database: str) -> None:
    ended = Cortex(tmp_path, empty_database)("jobs", "ls")
    assert ended.code == 1
    assert "hint: migrate it first: cortex migrate" in ended.err
    assert Cortex(tmp_path, empty_database)("migrate", "--check").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "jbs",
        "jobs lss",
        "jobs ls --limt 3",
        "jobs ls --limit none",
        "jobs ls --limit 0",
        "jobs ls --status sleepy",
        "jobs ls --columns nothing",
        "jobs ls -o xml",
        "jobs show",
        "jobs submit",
        "jobs watch x -o yaml",
        "jobs ls --dsn mysql://host/x",
        "migrate surplus",
        "bench",
        "",
    ],
)
def test_2_wrong_usage(cortex_nowhere: Cortex, arguments: str) -> None:
    ended = cortex_nowhere(*arguments.split())
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err


def test_3_an_unknown_job_or_agent(cortex: Cortex) -> None:
    for arguments in (
        ["jobs", "show", NOBODY],
        ["jobs", "watch", "ffff"],
        ["jobs", "wait", NOBODY],
        ["jobs", "cancel", NOBODY, "--yes"],
        ["jobs", "ls", "--agent", "nobody"],
        ["agents", "show", "nobody"],
    ):
        assert cortex(*arguments).code == 3, arguments


def test_3_missing_database_is_not_created(cortex_nowhere: Cortex) -> None:
    folder = cortex_nowhere.folder / "data"
    ended = cortex_nowhere("jobs", "ls", "--data", str(folder))
    assert ended.code == 3
    assert ended.err.startswith(f"error: there is no database yet in {folder}\nhint: create one")
    assert not folder.exists()


def test_4_a_user_without_the_right(cortex: Cortex, life: Life) -> None:
    role = f"stranger_{CHANCE.rng.getrandbits(40)}"
    life.sql(f"CREATE ROLE {role} LOGIN")
    assert cortex.dsn is not None
    parts = urlsplit(cortex.dsn)
    _, _, host = parts.netloc.rpartition("@")
    dsn = parts._replace(netloc=f"{role}@{host}").geturl()
    try:
        assert Cortex(cortex.folder, dsn)("jobs", "ls").code == 4
    finally:
        life.sql(f"DROP ROLE {role}")


def test_5_a_job_that_has_ended(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed())
    ended = cortex("jobs", "cancel", job_id, "--yes")
    assert ended.code == 5
    assert f"error: job {job_id} is FAILED already" in ended.err


def test_6_the_job_did_not_complete(cortex: Cortex, life: Life) -> None:
    failed = str(life.failed())
    cancelled = str(life.job())
    assert cortex("jobs", "cancel", cancelled, "--yes").code == 0
    for job_id in (failed, cancelled):
        assert cortex("jobs", "watch", job_id).code == 6
        assert cortex("jobs", "wait", job_id).code == 6


def test_0_the_job_completed(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = str(life.job())
    life.finish(pod, life.claim(pod))
    assert cortex("jobs", "watch", job_id).code == 0
    assert cortex("jobs", "wait", job_id, job_id[-6:]).code == 0


def test_7_the_wait_was_too_long(cortex: Cortex, life: Life) -> None:
    ended = cortex("jobs", "wait", str(life.job()), "--timeout", "0.1")
    assert ended.code == 7
    assert "is still PENDING" in ended.err


def test_130_ctrl_c(cortex: Cortex, life: Life) -> None:
    watching = cortex.start("jobs", "watch", str(life.job()))
    assert watching.stdout is not None
    assert "pend" in watching.stdout.readline()
    watching.send_signal(2)
    out, err = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, out, err) == (130, "", "")


def test_closed_output_ends_the_command_quietly(cortex: Cortex, life: Life) -> None:
    job_id = life.job()
    life.many_steps(job_id, 3000)
    watching = cortex.start("jobs", "watch", str(job_id))
    assert watching.stdout is not None
    assert watching.stderr is not None
    watching.stdout.readline()
    watching.stdout.close()
    assert watching.wait(WITHIN_S) == 141
    assert watching.stderr.read() == ""
    watching.stderr.close()


def test_version_is_printed_without_a_database(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("--version")
    assert ended.code == 0
    assert ended.out.startswith("cortex ")
