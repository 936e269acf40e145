"""Log lines of a pod: no secret in any of them, and nothing that a terminal obeys."""

import io
import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from cortex.cli.run.job_output import JobOutput
from cortex.domain import redaction
from cortex.runtime.own_secrets import hide_credentials
from tests.support.command_line import Cortex, OnTerminal
from tests.support.knowing import forget_secrets

ROOT = Path(__file__).parent.parent.parent
PROGRAM = r"""
import logging
import structlog
from cortex.cli.screen.logs import configure_logs
from cortex.domain import redaction

VALUE = 'sk-"0f9e8d7c\n5a'
redaction.register("TOKEN", VALUE)
configure_logs()
log = structlog.get_logger("pod")
log.info(VALUE, text=VALUE, among=["x", {"k": VALUE}], bytes=VALUE.encode(), error=KeyError(VALUE))
log.info("cut", text="x" * 3_995 + VALUE)
log.info("hostile", text="\x1b]52;c;AAAA\x07", among=["\x1b[2J"])
try:
    raise RuntimeError("x" * 10 + VALUE)
except RuntimeError as error:
    log.exception("raised")
    error.add_note(VALUE)
    logging.getLogger("a.library").exception("of a library: %s", VALUE)
logging.getLogger("a.library").warning("\x1b[2J")
"""
PIECES = ("0f9e8d7c", "sk-")


def test_log_lines_are_json_without_secrets() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT
    )
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "[secret TOKEN, 15 characters]",
        "cut",
        "hostile",
        "raised",
        "of a library: [secret TOKEN, 15 characters]",
        "\x1b[2J",
    ]
    for line, piece in ((line, piece) for line in lines for piece in PIECES):
        shown = json.dumps({k: v for k, v in line.items() if k != "exception"})
        assert piece not in shown
        assert piece not in str(line.get("exception", "")).partition("RuntimeError")[2]
    assert lines[1]["text"] == "x" * 3_995 + "[secr…"
    assert lines[4]["logger"] == "a.library"
    assert "\x1b" not in ran.stderr


def test_on_a_terminal(tmp_path: Path) -> None:
    command, environment = [sys.executable, "-c", PROGRAM], Cortex(tmp_path).environ(None)
    terminal = OnTerminal(command, folder=tmp_path, env=environment, columns=100)
    assert terminal.end() == 0
    shown = terminal.text
    for piece in PIECES:
        assert piece not in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown


def test_a_pods_own_credentials_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0f9e8d7c")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "short")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    hide_credentials("postgresql://u:p%40ssword1@h/db")
    token = "cortex_" + "0f" * 32
    assert redaction.redact(f"sk-ant-0f9e8d7c short p@ssword1 p%40ssword1 {token}") == (
        "[secret ANTHROPIC_API_KEY, 15 characters] short [secret database password, 9 characters] "
        "[secret database password, 9 characters] [secret API token, 71 characters]"
    )


def test_a_printed_secret_of_several_lines_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets(monkeypatch)
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----"
    redaction.register("KEY", key)
    lines: list[str] = []
    assert JobOutput(io.StringIO(), lines.append).write(f"it is {key}\n") == len(key) + 7
    assert lines == [f"it is [secret KEY, {len(key)} characters]"]


OUTPUT = r"""
import logging, sys, threading, warnings
from uuid import UUID
from cortex.cli.run.job_output import OPEN_MAX, job_output_as_lines
from cortex.cli.screen.logs import configure_logs
from cortex.domain import redaction
from cortex.domain.tracing import current
from cortex.domain.job import Lease
from tests.support.records.factories import a_claim

redaction.register("TOKEN", "sk-0f9e8d7c5a")
configure_logs()
with job_output_as_lines():
    print("before any job")
    print("for people", file=sys.stdout.raw, flush=True)
    current.enter(a_claim(lease=Lease(UUID(int=7), 1), type="speak"))
    print("one\n\ntwo", end="")
    thread = threading.Thread(target=print, args=("of a thread",))
    thread.start(); thread.join()
    print(" and more", flush=True)
    print("token sk-0f9e8d7c5a \x1b[2J")
    sys.stdout.buffer.write(b"bytes \xff\n")
    print("x" * 1_000_000)
    print("to stderr", file=sys.stderr)
    warnings.warn("careful", stacklevel=1)
    logging.getLogger("a.library").error("broken")
    print("begun", end="")
"""


def test_output_of_jobs_is_json_lines_with_the_job() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OUTPUT], capture_output=True, text=True, check=True, cwd=ROOT
    )
    lines = ran.stdout.splitlines()
    assert lines.pop(1) == "for people"
    printed = [json.loads(line) for line in lines]
    assert [(line["text"], line.get("job_type")) for line in printed] == [
        ("before any job", None),
        ("one", "speak"),
        ("of a thread", None),
        ("two and more", "speak"),
        ("token [secret TOKEN, 13 characters] \x1b[2J", "speak"),
        ("bytes \ufffd", "speak"),
        ("x" * 4_000 + "…", "speak"),
        ("begun", "speak"),
    ]
    assert {(line["event"], line["stream"]) for line in printed} == {("output", "stdout")}
    assert printed[1]["job"] == str(UUID(int=7))
    logged = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [line["job_type"] for line in logged] == ["speak"] * 3
    assert logged[0]["text"] == "to stderr"
    assert (logged[1]["logger"], logged[1]["level"]) == ("py.warnings", "warning")
    assert "UserWarning: careful" in logged[1]["event"]
    assert logged[2]["event"] == "broken"


LIBRARIES = r"""
import logging
from uuid import UUID
from cortex.cli.screen.logs import configure_logs
from cortex.domain.job import Lease
from cortex.domain.tracing import current
from tests.support.records.factories import a_claim

logging.getLogger("openai").setLevel(logging.INFO)
configure_logs()
current.enter(a_claim(lease=Lease(UUID(int=7), 1), type="ask"))
for name in ("httpx2", "openai", "mcp.client", "a.library"):
    logging.getLogger(name).info("HTTP Request: of %s", name)
logging.getLogger("httpx2").warning("slow")
"""


def test_libraries_of_cortex_log_no_request_of_a_job_unless_asked() -> None:
    """They would log each call of a model, in the pod's log and in the job's own."""
    ran = subprocess.run(
        [sys.executable, "-c", LIBRARIES], capture_output=True, text=True, check=True, cwd=ROOT
    )
    events = [json.loads(line)["event"] for line in ran.stderr.splitlines()]
    assert events == ["HTTP Request: of openai", "HTTP Request: of a.library", "slow"]
