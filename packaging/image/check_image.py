"""Run the image in namespaces of its own: `uv run pytest -n 0 packaging/image/check_image.py`.

Needs root, bubblewrap, and dist/cortex-image.tar (packaging/image/build); takes some minutes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.support.eventually import eventually
from tests.support.shipping.oci import IMAGE, JOBS, SHORT, read_image

ENGINE_KILLS_AFTER_S: Final = 10.0
GATE: Final = "/var/lib/cortex/gate"
SIZE_MAX: Final = 200_000_000
USER: Final = 10001
WITHIN_S: Final = 60.0
pytestmark = pytest.mark.timeout(600)


@attrs.define
class Image:
    """An unpacked image, its configuration and a volume."""

    root: Path
    config: dict[str, Any]
    volume: Path
    runs: list["Container"] = attrs.field(factory=list)

    def command(self, words: list[str], environ: dict[str, str], info: int | None) -> list[str]:
        variables = dict(each.split("=", 1) for each in self.config["Env"]) | environ
        options = [
            *("--unshare-all", "--as-pid-1", "--die-with-parent", "--clearenv"),
            *("--uid", str(USER), "--gid", str(USER), "--hostname", "pod-1"),
            *("--ro-bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev"),
            *("--tmpfs", "/tmp", "--tmpfs", "/run"),  # noqa: S108
            *("--bind", str(self.volume), "/var/lib/cortex"),
            *("--chdir", self.config["WorkingDir"]),
        ]
        for name, value in variables.items():
            options += ["--setenv", name, value]
        if info is not None:
            options += ["--info-fd", str(info)]
        return ["bwrap", *options, *words]

    def run(self, *arguments: str, environ: dict[str, str] | None = None) -> "Container":
        """Start a container with the image's entry point."""
        reading, writing = os.pipe()
        words = [*self.config["Entrypoint"], *arguments]
        log = self.volume.parent / f"container-{len(self.runs)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.command(words, environ or {}, writing),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[writing],
                user=USER,
                group=USER,
                extra_groups=[],
            )
        os.close(writing)
        with os.fdopen(reading) as information:
            first = json.loads(information.read())["child-pid"]
        started = Container(process, first, log, self)
        self.runs.append(started)
        return started


@attrs.define
class Container:
    """A running container; `first` is its process 1 as seen from here."""

    process: "subprocess.Popen[bytes]"
    first: int
    log: Path
    image: Image

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    def until(self, wanted: str) -> None:
        def found() -> bool:
            assert wanted in self.text or self.process.poll() is None, self.text
            return wanted in self.text

        eventually(found, what=f"it says {wanted}", within_s=WITHIN_S)

    def inside(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the container, as `docker exec` does."""
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--net")
        as_user = (f"--setuid={USER}", f"--setgid={USER}")
        enter = ["nsenter", f"--target={self.first}", *spaces, *as_user]
        return subprocess.run(
            [*enter, *words],
            env=dict(each.split("=", 1) for each in self.image.config["Env"]),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def states(self) -> dict[int, tuple[str, str]]:
        """The processes in its namespace: name and state by their number here."""
        space = Path(f"/proc/{self.first}/ns/pid").readlink()
        found = {}
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (each / "ns/pid").readlink() == space or _parent(each) == self.first:
                    name, _, rest = (each / "stat").read_text().partition("(")[2].rpartition(")")
                    found[int(each.name)] = (name, rest.split()[0])
        return found

    def stop(self) -> int:
        """Send what the image's STOPSIGNAL says to process 1, and return its exit code."""
        os.kill(self.first, signal.Signals[self.image.config["StopSignal"]])
        return self.process.wait(WITHIN_S)


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Not pytest's own: each run closes that to others, at its start."""
    with tempfile.TemporaryDirectory(prefix="cortex-image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def unpacked(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The image as an engine unpacks it: by its manifest."""
    layer, config = read_image(IMAGE)
    root = folder / "root"
    root.mkdir()
    with layer:
        content = layer.read()
    subprocess.run(["tar", "-x", "-C", root, "-f", "-"], input=content, check=True)
    assert len(content) <= SIZE_MAX
    return root, config


@pytest.fixture
def image(unpacked: tuple[Path, dict[str, Any]], folder: Path) -> Iterator[Image]:
    volume = folder / "container" / "volume"
    volume.mkdir(parents=True)
    os.chown(volume, USER, USER)
    made = Image(*unpacked, volume)
    yield made
    for run in made.runs:
        if run.process.poll() is None:
            os.kill(run.first, signal.SIGKILL)  # and the kernel ends all others with it
        run.process.wait()
    shutil.rmtree(volume.parent)


def test_image_declares_how_to_run_it(image: Image) -> None:
    config = image.config
    assert config["Entrypoint"] == ["/usr/bin/tini", "--", "/usr/bin/cortex"]
    assert (config["User"], config["StopSignal"]) == ("10001:10001", "SIGTERM")
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/cortex", "doctor", "--quick"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not [*image.root.glob("usr/bin/python*")]


def test_image_returns_the_exit_code_of_its_command(image: Image) -> None:
    assert image.run("--version").process.wait(WITHIN_S) == 0
    assert image.run("jobs", "show").process.wait(WITHIN_S) == 2


def test_tini_reaps_zombies_and_sigterm_drains(image: Image) -> None:
    (image.volume / "jobs.py").write_text(JOBS)
    up = image.run("up", "--app", "jobs.py", environ=SHORT)
    up.until("is ready after")
    assert up.states()[up.first][0] == "tini"
    assert Path(f"/proc/{up.first}/status").read_text().count(f"NSpid:\t{up.first}\t1\n") == 1

    health = up.inside("/usr/bin/cortex", "doctor", "--quick")
    assert (health.returncode, "alive: pod-1:" in health.stdout) == (0, True), health

    submitted = up.inside("/usr/bin/cortex", "jobs", "submit", "orphans", "--wait")
    assert submitted.returncode == 0, submitted
    eventually(
        lambda: "Z" not in {state for _, state in up.states().values()},
        what="no zombie is left",
    )
    waiting = up.inside("/usr/bin/cortex", "jobs", "submit", "wait", "--arg", "gate=/never")
    assert waiting.returncode == 0, waiting
    began = time.monotonic()
    code = up.stop()
    took_s = time.monotonic() - began
    print(f"stopped in {took_s:.1f} s")
    assert code in {0, 1}, up.text  # 1: a slow machine
    assert took_s < ENGINE_KILLS_AFTER_S
    assert "draining" in up.text


def test_up_without_the_setting_is_killed_and_loses_no_job(image: Image) -> None:
    (image.volume / "jobs.py").write_text(JOBS)
    up = image.run("up", "--app", "jobs.py")
    up.until("is ready after")
    submitted = up.inside("/usr/bin/cortex", "jobs", "submit", "wait", "--arg", f"gate={GATE}")
    job_id = submitted.stdout.split()[0]
    os.kill(up.first, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        up.process.wait(ENGINE_KILLS_AFTER_S)
    os.kill(up.first, signal.SIGKILL)
    assert up.process.wait(WITHIN_S) == 128 + signal.SIGKILL

    (image.volume / "gate").touch()
    again = image.run("up", "--app", "jobs.py")
    again.until("is ready after")
    waited = again.inside("/usr/bin/cortex", "jobs", "wait", job_id)
    assert waited.returncode == 0, waited
    assert again.stop() == 0, again.text


def test_demo_resumes_after_kill_9(image: Image) -> None:
    folder = image.volume / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("# Lighthouse\n\nKeeps ships off the rocks.\n")
    for each in (folder, folder / "README.md"):
        os.chown(each, USER, USER)
    words = ("demo", "/var/lib/cortex/folder")
    first = image.run(*words)
    first.until("step")
    os.kill(first.first, signal.SIGKILL)
    first.process.wait(WITHIN_S)
    second = image.run(*words)
    assert second.process.wait(WITHIN_S) == 0, second.text
    (job_id,) = {*re.findall(r"^job +(\S+)$", first.text, re.MULTILINE)}
    assert job_id in second.text
