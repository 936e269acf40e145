"""`cortex mcp` on stdin and stdout, as a process."""

import os
import re
import signal
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from cortex.http.mcp.stdio import LINE_BYTES_MAX
from tests.support.assistant import token_of
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import Life
from tests.support.mcp_command import McpCommand

END_S = 5.0
"""A second on a machine that does nothing else."""


def ended_in(command: McpCommand) -> float:
    """Seconds until its end; nothing but messages may be on stdout."""
    began = time.monotonic()
    code, lines, stderr = command.end()
    assert (code, stderr) == (0, ""), stderr
    assert all(line.startswith(b'{"jsonrpc"') for line in lines)
    return time.monotonic() - began


def test_it_survives_what_is_no_message_and_ends_with_its_stdin(
    mcp_command: McpCommand, life: Life
) -> None:
    life.type()
    mcp_command.start()
    for hostile in (b"\n", b"hello\n", b"\xff\xfe\n", b"[]\n", b'{"jsonrpc": "2.0"}\n', b"{" * 99):
        mcp_command.write(hostile)
    mcp_command.write(b"\n")
    mcp_command.write(b"x" * (LINE_BYTES_MAX + 70_000) + b"\n")
    large, deep = b"x" * (LINE_BYTES_MAX + 70_000), b"[" * 999 + b"]" * 999
    for line, expected in (
        (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":"%b"}}' % large, "more than"),
        (b'{"method":"ping","params":{"x":"%b"},"jsonrpc":"2.0","id":-7}' % large, "more than"),
        (b'{"method": "ping", "id": 8, "params": {"x": %b}}' % deep, "nested too deep"),
    ):
        mcp_command.write(line + b"\n")
        answer = mcp_command.line()
        assert answer["id"] in {"a", -7, 8}
        assert expected in answer["error"]["message"]
    mcp_command.write(b'{"method":"ping","params":{"id":9,"x":%b}}\n' % deep)  # not its own id
    assert '"jobs"' in mcp_command.call("list_jobs")
    assert '"notifications"' in mcp_command.call("run_doctor")
    wait = {"job_id": str(life.job()), "timeout_s": 600}
    mcp_command.send("tools/call", name="wait_for_job", arguments=wait)
    assert mcp_command.process.stdin is not None
    mcp_command.process.stdin.close()
    assert ended_in(mcp_command) < END_S


def test_an_agent_works_in_the_folders_of_the_setting_alone(
    mcp_command: McpCommand, life: Life, tmp_path: Path
) -> None:
    life.type("run_agent")
    mcp_command.start("--allow", "submit", env={"CORTEX_HTTP_FOLDERS": str(tmp_path)})
    roots = ((tmp_path / "a", "does not exist"), (tmp_path.parent, "with http_folders"))
    for folder, expected in roots:
        payload = {"prompt": "x", "folder": str(folder)}
        wish = {"type": "run_agent", "agent": "none", "payload": payload}
        assert expected in mcp_command.call("submit_job", **wish)


def test_a_signal_ends_it_while_a_call_waits(
    mcp_command: McpCommand, shared_database: str, life: Life
) -> None:
    life.type()
    mcp_command.start(env={"CORTEX_TOKEN": token_of(shared_database, "viewer")})
    wait = {"job_id": str(life.job()), "timeout_s": 600}
    mcp_command.send("tools/call", name="wait_for_job", arguments=wait)
    assert '"jobs"' in mcp_command.call("list_jobs"), "one call does not hold up another"
    os.kill(mcp_command.process.pid, signal.SIGTERM)
    assert ended_in(mcp_command) < END_S


def test_a_signal_ends_the_server_of_many(mcp_command: McpCommand, shared_database: str) -> None:
    process = mcp_command.popen("--http", "127.0.0.1:0")
    assert process.stderr is not None
    lines = (line.decode() for line in process.stderr)
    url = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+/mcp", line)))
    token = token_of(shared_database, "viewer")
    sent = Request(  # noqa: S310 -- http
        url,
        data=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        },
    )
    with urlopen(sent, timeout=WITHIN_S) as answer:  # noqa: S310 -- http
        assert b'"result":{}' in answer.read()
    process.terminate()
    began = time.monotonic()
    assert process.wait(WITHIN_S) == 0
    assert time.monotonic() - began < END_S


@pytest.mark.parametrize(
    "arguments, env, expected",
    [
        (["--allow", "all"], {}, "--allow 'all': assistants may be allowed submit, approve"),
        (["--allow", "approve"], {}, "--allow approve needs a person's token"),
        ([], {"CORTEX_TOKEN": "secret"}, "CORTEX_TOKEN holds no token of Cortex"),
        (["--http", "8080"], {}, "'8080', not HOST:PORT"),
    ],
)
def test_a_wrong_start_is_one_line(
    shared_database: str,
    tmp_path: Path,
    arguments: list[str],
    env: dict[str, str],
    expected: str,
) -> None:
    done = Cortex(tmp_path, shared_database)("mcp", *arguments, env=env)
    assert done.code != 0
    assert done.out == ""
    assert expected in done.err.splitlines()[0]
    assert "secret" not in done.err


def test_a_missing_package_is_one_line(
    shared_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = Cortex(tmp_path, shared_database)("mcp")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: this needs the package mcp, which is not installed\n"
        "hint: install it: pip install 'cortex-durable[mcp]'\n"
    )
