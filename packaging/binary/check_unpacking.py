"""Where the binary unpacks itself, and one version after another: see check_binary.py.

The launcher's own rules are tested by tests/test_launcher.py. The next version is made from what
`build` left in its folder, which CORTEX_TEST_BUILD_DIR names.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import cortex
from tests.support.eventually import eventually
from tests.support.shipping.machine import (
    BINARY,
    USER,
    Machine,
    server_program,
    submitted,
    with_app,
)
from tests.support.shipping.programs import program

HERE: Final = Path(__file__).parent
BUILT: Final = Path(
    os.environ.get("CORTEX_TEST_BUILD_DIR", Path(tempfile.gettempdir()) / "cortex-build")
)
NEXT: Final = f"{cortex.__version__}.post1"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def next_version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A binary of another version, with another Postgres layer."""
    pack = program(HERE / "pack.py")
    folder = tmp_path_factory.mktemp("next")
    runtime, postgres = folder / "runtime", folder / "postgres"
    for layer in (runtime, postgres):
        subprocess.run(["cp", "-a", BUILT / layer.name, layer], check=True)
    (postgres / "next").touch()
    site = runtime / "lib/python3.13/site-packages"
    own = site / "cortex/__init__.py"
    text = own.read_text()
    own.write_text(text.replace(f'__version__ = "{cortex.__version__}"', f'__version__ = "{NEXT}"'))
    assert own.read_text() != text
    names = {}
    for layer in (postgres, runtime):
        tar = folder / f"{layer.name}.tar"
        names[layer.name] = f"{layer.name}-{pack.archive(layer, tar)}"
        subprocess.run(["zstd", "-q", "-1", "--check", tar, "-o", f"{tar}.zst"], check=True)
        (site / "postgres.pth").write_text(f"../../../../{names['postgres']}\n")
    (folder / "layers.h").write_text(pack.header(names["postgres"], names["runtime"]))
    inside = BUILT / "root/build/next"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    for each in (HERE / "launcher.c", HERE / "layers.S", HERE / "link", *folder.glob("*.*")):
        if each.suffix != ".tar":
            shutil.copy(each, inside)
    subprocess.run(["chroot", BUILT / "root", "/build/next/link", "/build/next"], check=True)
    yield inside / "cortex"
    shutil.rmtree(inside)
    shutil.rmtree(folder)


def anything(cache: Path, pattern: str) -> bool:
    return any(cache.glob(pattern))


def test_no_file_contains_the_build_folder(machine: Machine) -> None:
    machine.run("--version")
    files = [each for each in machine.cache.glob("**/*") if each.is_file()]
    assert len(files) > 1_000
    assert not [each for each in files if bytes(BUILT / "runtime") in each.read_bytes()]


def kinds(cache: Path) -> list[str]:
    return sorted(each.name.rpartition("-")[0] for each in cache.iterdir() if each.is_dir())


def test_upgrade_keeps_the_database_and_its_running_job(
    machine: Machine, next_version: Path
) -> None:
    app = with_app(machine)
    first = machine.start("up", *app)
    first.until("is ready after")
    job_id, gate = submitted(machine, app)
    first.kill()
    server = server_program(machine)

    machine.install(next_version)
    (old,) = machine.cache.glob("runtime-*")
    shutil.rmtree(old)
    second = machine.start("up", *app)
    second.until("is ready after")
    assert server_program(machine) == server, "the upgrade restarted the database"
    gate.touch()
    machine.run("jobs", "wait", job_id)
    done = machine.job(job_id)
    assert done["status"] == "COMPLETED"
    assert old.name not in done["result"]["python"]
    assert second.stop() == 0, second.text

    third = machine.start("up", *app)
    third.until("is ready after")
    assert server_program(machine)[1] != server[1], "the database runs the old programs"
    assert machine.job(job_id) == done
    assert third.stop() == 0, third.text
    assert kinds(machine.cache) == ["postgres", "postgres", "runtime"]


def test_two_versions_run_side_by_side(machine: Machine, next_version: Path) -> None:
    machine.install(next_version, "cortex-next")
    app = with_app(machine)
    old = machine.start("up", *app)
    old.until("is ready after")
    machine.program = "cortex-next"
    assert machine.run("--version") == f"cortex {NEXT}\n"
    new = machine.start("up", *app)
    new.until("is ready after")
    job_id, gate = submitted(machine, app)
    assert kinds(machine.cache) == ["postgres", "postgres", "runtime", "runtime"]
    assert old.stop() == 0, old.text
    gate.touch()
    machine.run("jobs", "wait", job_id)
    assert machine.job(job_id)["status"] == "COMPLETED"
    assert new.stop() == 0, new.text


def test_versions_unused_for_a_month_are_removed(machine: Machine, next_version: Path) -> None:
    up = machine.start("up")
    up.until("is ready after")
    of_pod = {each.name for each in machine.cache.iterdir() if each.is_dir()}
    up.kill()  # its server stays, and with it the server's files
    for name in of_pod:
        os.utime(machine.cache / name, (0, 0))
    machine.install(next_version)
    machine.run("--version")
    (kept,) = of_pod & {each.name for each in machine.cache.iterdir()}
    assert kept.startswith("postgres-")
    assert kinds(machine.cache) == ["postgres", "postgres", "runtime"]
    again = machine.start("up")
    again.until("is ready after")
    assert again.stop() == 0, again.text


def test_simultaneous_first_starts_unpack_once(machine: Machine) -> None:
    runs = [machine.start("--version") for _ in range(4)]
    for run in runs:
        assert run.end() == 0, run.text
    assert kinds(machine.cache) == ["postgres", "runtime"]


def test_launcher_killed_while_unpacking_starts_over(machine: Machine) -> None:
    for kind in ("postgres", "runtime"):
        run = machine.start("--version")
        pattern = f"{kind}-*.unfinished/*"
        eventually(partial(anything, machine.cache, pattern), what=f"{kind} is being unpacked")
        run.kill()
        assert run.process.returncode == -signal.SIGKILL
    machine.run("--version")
    assert kinds(machine.cache) == ["postgres", "runtime"]


def test_full_disk_is_skipped_or_reported_and_not_kept_full(machine: Machine) -> None:
    small = machine.mount_small(f"{machine.home}/.cache", mib=60)
    machine.run("--version")
    assert sorted(machine.path(f"/var/tmp/cortex-{USER}").glob("runtime-*"))  # noqa: S108
    assert kinds(small / "cortex") == ["postgres"], "what is not complete stays"

    machine.environ["CORTEX_CACHE_DIR"] = f"{machine.home}/.cache/mine"
    first, second = machine.run("--version", code=1).splitlines()
    assert first.startswith("error: cannot unpack: ")
    assert first.endswith("No space left on device")
    assert second.startswith("hint: set CORTEX_CACHE_DIR")
    assert kinds(small / "mine") in ([], ["postgres"]), "what is not complete stays"


def test_noexec_disk_is_skipped(machine: Machine) -> None:
    machine.mount_small(f"{machine.home}/.cache", mib=400, options="noexec")
    machine.run("--version")
    assert sorted(machine.path(f"/var/tmp/cortex-{USER}").glob("runtime-*"))  # noqa: S108


def test_root_starts_its_server_as_another_user(machine: Machine) -> None:
    machine.uid, machine.home = 0, "/root"
    up = machine.start("up")
    up.until("is ready after")
    assert sorted(machine.path("/var/cache/cortex").glob("postgres-*"))
    assert up.stop() == 0, up.text


def test_binary_starts_without_a_writable_home(machine: Machine) -> None:
    os.chown(machine.path(machine.home), 0, 0)
    data = f"/tmp/data-{USER}"  # noqa: S108
    up = machine.start("up", "--data", data)
    up.until("is ready after")
    assert sorted(machine.path(f"/var/tmp/cortex-{USER}").glob("runtime-*"))  # noqa: S108
    assert up.stop() == 0, up.text


def test_damaged_binary_is_refused_and_leaves_no_files(machine: Machine) -> None:
    content = bytearray(BINARY.read_bytes())
    content[len(content) // 2] ^= 0xFF
    machine.path("/usr/local/bin/cortex").write_bytes(content)
    assert "this file is damaged" in machine.run("--version", code=1)
    cache = machine.path(machine.home) / ".cache/cortex"
    assert not [*cache.glob("runtime-*")]


def test_binary_reports_in_two_lines_that_it_cannot_unpack(machine: Machine) -> None:
    machine.environ["CORTEX_CACHE_DIR"] = "/proc/cortex"
    printed = machine.run("--version", code=1)
    assert printed.startswith("error: cannot unpack: /proc/cortex")
    assert "hint: set CORTEX_CACHE_DIR" in printed
