"""Try dist/cortex in a bare Debian 11 without Python.

    uv run pytest -n 0 packaging/binary/check_*.py

Needs root, mmdebstrap and uv; takes some minutes. CORTEX_TEST_BINARY names another file to try.
"""

import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.pty_screen import PtyScreen
from tests.support.shipping.machine import (
    BINARY,
    USER,
    Machine,
    server_program,
    submitted,
    with_app,
)

SIZE_MAX: Final = 90_000_000
VERSION_MAX_S: Final = 0.5
READY_MAX_S: Final = 3.0

TWO_OPENSSLS: Final = """\
import ssl

from cryptography.fernet import Fernet
from cryptography.hazmat.backends.openssl import backend


def text() -> str:
    ssl.create_default_context()
    key = Fernet(Fernet.generate_key())
    hello = key.decrypt(key.encrypt(b"hello")).decode()
    return f"{hello} from {ssl.OPENSSL_VERSION} and {backend.openssl_version_text()}"
"""

pytestmark = pytest.mark.timeout(600)


def test_binary_is_small_and_starts_fast(machine: Machine) -> None:
    assert BINARY.stat().st_size <= SIZE_MAX
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert re.match(r"cortex \d", machine.run("--version"))
        times.append(time.monotonic() - began)
    print(f"first {times[0]:.2f} s, then {min(times[1:]):.2f} s")
    assert min(times[1:]) <= VERSION_MAX_S


def test_up_is_ready_in_time(machine: Machine) -> None:
    machine.run("--version")
    first = machine.start("up")
    first.until("is ready after")
    assert first.stop() == 0, first.text
    again = machine.start("up")
    after = again.until(r"is ready after ([\d.]+) ?(m?s)")
    print(after[0])
    ready_s = float(after[1]) / (1000 if after[2] == "ms" else 1)
    assert ready_s <= READY_MAX_S


def test_job_and_database_files_survive_kill_9(machine: Machine) -> None:
    app = with_app(machine)
    first = machine.start("up", *app)
    first.until("is ready after")
    job_id, gate = submitted(machine, app)
    first.kill()
    # What Postgres runs is not what the pod had unpacked for itself.
    assert "/.cache/cortex/postgres-" in server_program(machine)[1]
    gate.touch()
    second = machine.start("up", *app)
    machine.run("jobs", "wait", job_id)
    result = machine.job(job_id)
    assert result["status"] == "COMPLETED"
    assert result["result"]["text"] == "hello"
    assert "/.cache/cortex/runtime-" in result["result"]["python"]
    assert second.stop() == 0, second.text


def test_binary_starts_workers_and_isolated_processes(machine: Machine) -> None:
    app = with_app(machine)
    up = machine.start("up", *app, "--workers", "2")
    up.until("ready after")
    machine.path(f"{machine.home}/gate").touch()
    arguments = ("--arg", f"gate={machine.home}/gate")
    job_id = machine.run("jobs", "submit", "greet", *app, *arguments).split()[0]
    machine.run("jobs", "wait", job_id)
    assert machine.job(job_id)["status"] == "COMPLETED"
    assert up.stop() == 0, up.text


def test_app_packages_use_their_own_openssl(machine: Machine) -> None:
    app = with_app(machine)
    packages = machine.path(machine.home) / "venv/lib/python3.13/site-packages"
    for_python = ("--python-version", "3.13", "--python-platform", "x86_64-manylinux_2_31")
    subprocess.run(
        ["uv", "pip", "install", "--quiet", *for_python, "--target", packages, "cryptography"],
        check=True,
    )
    (packages / "greeting.py").write_text(TWO_OPENSSLS)
    up = machine.start("up", *app)
    up.until("is ready after")
    job_id, gate = submitted(machine, app)
    gate.touch()
    machine.run("jobs", "wait", job_id)
    assert re.fullmatch(
        r"hello from OpenSSL 3.* and OpenSSL .*", machine.job(job_id)["result"]["text"]
    )
    assert up.stop() == 0, up.text


def test_environment_of_another_python_is_refused_by_name(machine: Machine) -> None:
    with_app(machine)
    (machine.path(machine.home) / "venv/lib/python3.13").rename(
        machine.path(machine.home) / "venv/lib/python3.11"
    )
    printed = machine.run("up", "--path", "venv", code=2)
    assert "is for python3.11, and this is python3.13" in printed


def demo_folder(machine: Machine) -> str:
    folder = machine.path(machine.home) / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("# Lighthouse\n\nKeeps ships off the rocks.\n")
    (folder / "lamp.py").write_text("x = 1\n" * 40)
    for each in (folder, *folder.iterdir()):
        os.chown(each, USER, USER)
    return f"{machine.home}/folder"


def test_killed_demo_resumes_and_is_approved_in_the_terminal_ui(machine: Machine) -> None:
    words = ["demo", demo_folder(machine), "--approve"]
    first = machine.start(*words)
    first.until("step")
    first.kill()
    second = machine.start(*words)
    second.until("waits    for you: send_mail")
    typed = shlex.split(second.until(r"^type +(cortex tui.*)$")[1])
    command = machine.command(*typed, "--as", "li")
    with PtyScreen(command, folder=Path("/"), env={}) as screen:
        screen.until(lambda text: "1 approval" in text, what="that something waits")
        screen.type("A")
        screen.until(lambda text: "customers@" in text, what="all of it")
        screen.press_until("a", lambda text: "y yes" in text, what="the question")
        screen.press_until("y", lambda text: "✓ approved" in text, what="what was done")
        assert second.end() == 0, second.text
        screen.type("q")
        assert screen.end() == 0
    assert "send_mail approved by li" in second.text
