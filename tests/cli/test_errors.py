import subprocess
import sys
from pathlib import Path

import click
import pytest

from cortex.cli.failures import failure_of, wants_json
from cortex.domain.errors import ConflictError, NotFoundError, UnavailableError
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import Life

SECRET = "hunter2"


@pytest.mark.parametrize(
    "arguments, message, hint",
    [
        ("jbos", "no such command 'jbos'", "did you mean 'cortex jobs'?"),
        ("jobs shw", "no such command 'shw'", "did you mean 'cortex jobs show'?"),
        ("jobs ls --limti 3", "no such option '--limti'", "did you mean '--limit'?"),
        ("jobs ls --status runing", "unknown state 'runing'", "did you mean 'running'?"),
        ("jobs ls -o jsn", "invalid value for '-o' / '--output'", "see: cortex jobs ls --help"),
        (
            "jobs show",
            "missing argument 'ID'",
            "see: cortex jobs show --help; to list them: cortex jobs ls",
        ),
        (
            "tokens create --name ana",
            "missing option '--role': metrics, submitter, viewer, approver, operator, admin",
            "see: cortex tokens create --help",
        ),
    ],
)
def test_one_line_and_the_way_out(
    cortex_nowhere: Cortex, arguments: str, message: str, hint: str
) -> None:
    ended = cortex_nowhere(*arguments.split())
    first, second = ended.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert second == f"hint: {hint}"


@pytest.mark.parametrize(
    "arguments", [["jobs", "show"], ["dead", "ls", "--fingerprint"], ["jobs", "cancel", "--rate"]]
)
@pytest.mark.parametrize("typed", ["x" * 60_000, "x " * 30_000])
def test_long_typed_values_are_clipped_in_errors(
    cortex_nowhere: Cortex, arguments: list[str], typed: str
) -> None:
    for shape in ([], ["--json"]):
        ended = cortex_nowhere(*arguments, typed, *shape)
        assert ended.code in {2, 3}
        assert len(ended.err) < 2300
        if typed[:20] in ended.err:
            assert "…" in ended.err or "\\u2026" in ended.err, "that it was cut is seen"


@pytest.mark.parametrize("ask", ["--json", "-o json", "-ojsonl", "--output=json"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_machines_get_json(cortex_nowhere: Cortex, ask: str, where: str) -> None:
    arguments = ["jobs", "ls", "--nonsense"]
    given = [*ask.split(), *arguments] if where == "before" else [*arguments, *ask.split()]
    ended = cortex_nowhere(*given)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.error == {
        "code": "usage",
        "message": "no such option '--nonsense'",
        "hint": "see: cortex jobs ls --help",
    }


def test_json_errors_of_the_store(cortex: Cortex) -> None:
    ended = cortex("agents", "show", "nobody", "--json")
    assert ended.code == 3
    assert ended.error["code"] == "not_found"
    assert ended.error["message"] == "agent 'nobody' does not exist"


def test_words_after_dashes_are_no_options() -> None:
    assert wants_json(["jobs", "--json"])
    assert not wants_json(["jobs", "show", "--", "--json"])


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ana:{SECRET}@127.0.0.1:1/none",
        f"postgresql://ana@127.0.0.1:1/none?password={SECRET}",
        f"mysql://ana:{SECRET}@127.0.0.1/none",
        f"postgresql://ana:{SECRET}@127.0.0.1:port/none",
    ],
)
@pytest.mark.parametrize("place", ["flag", "flag=", "environment", "file"])
def test_passwords_are_never_shown(cortex_nowhere: Cortex, dsn: str, place: str) -> None:
    arguments = ["jobs", "ls", "--debug"]
    env = {}
    match place:
        case "flag":
            arguments += ["--dsn", dsn]
        case "flag=":
            arguments += [f"--dsn={dsn}"]
        case "environment":
            env["CORTEX_DSN"] = dsn
        case _:
            env["XDG_CONFIG_HOME"] = str(cortex_nowhere.folder)
            (cortex_nowhere.folder / "cortex").mkdir()
            (cortex_nowhere.folder / "cortex" / "config.toml").write_text(f'dsn = "{dsn}"')
    ended = cortex_nowhere(*arguments, env=env)
    assert ended.code in {1, 2}
    assert "error: " in ended.err
    assert SECRET not in ended.out + ended.err


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no process list to read")
def test_passwords_are_not_in_the_process_list(cortex: Cortex, life: Life) -> None:
    assert cortex.dsn is not None
    dsn = cortex.dsn.replace("postgres@", f"postgres:{SECRET}@")
    watching = cortex.start("jobs", "watch", str(life.job()), "--dsn", dsn)
    assert watching.stdout is not None
    assert "pend" in watching.stdout.readline()
    shown = Path(f"/proc/{watching.pid}/cmdline").read_text()
    watching.terminate()
    watching.communicate(timeout=WITHIN_S)
    assert "watch" in shown
    assert SECRET not in shown


def test_the_source_of_a_bad_address_is_named(cortex_nowhere: Cortex) -> None:
    flag = cortex_nowhere("jobs", "ls", "--dsn", "mysql://host/x")
    assert flag.err.startswith("error: --dsn is not a Postgres address")
    variable = cortex_nowhere("jobs", "ls", env={"CORTEX_DSN": "mysql://host/x"})
    assert variable.err.startswith("error: CORTEX_DSN is not a Postgres address")


def test_traceback_needs_debug(cortex: Cortex) -> None:
    assert "Traceback" not in cortex("agents", "show", "nobody").err
    assert "Traceback" in cortex("agents", "show", "nobody", "--debug").err


def test_group_of_known_errors_reports_its_first() -> None:
    group = ExceptionGroup("nursery", [ConflictError("first"), NotFoundError("second")])
    failure = failure_of(ExceptionGroup("outer", [group, UnavailableError("third")]))
    assert (failure.code, failure.message, failure.exit_code) == ("conflict", "first", 5)


def test_a_fault_in_a_group_is_not_hidden_by_known_errors() -> None:
    failure = failure_of(ExceptionGroup("nursery", [ConflictError("first"), KeyError("oops")]))
    assert failure.code == "internal"
    assert "KeyError: 'oops'" in failure.message


def test_ctrl_c_in_a_group() -> None:
    group = BaseExceptionGroup("nursery", [ConflictError("first"), KeyboardInterrupt()])
    assert failure_of(group).exit_code == 130
    assert failure_of(click.Abort()).exit_code == 130


def test_streams_that_are_closed_are_no_terminal(cortex: Cortex) -> None:
    """Daemons and scripts close them."""
    remove = 'exec "$0" -m cortex quotas rm x --reason r <&-'
    asked = subprocess.run(
        ["sh", "-c", remove, sys.executable],
        capture_output=True,
        check=False,
        cwd=cortex.folder,
        env=cortex.environ(None),
        timeout=50,
    )
    assert (asked.returncode, b"hint: add --yes" in asked.stderr) == (2, True), asked.stderr
    mute = 'exec "$0" -m cortex quotas ls >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", mute, sys.executable],
        check=False,
        cwd=cortex.folder,
        env=cortex.environ(None),
        timeout=50,
    )
    assert done.returncode == 0
