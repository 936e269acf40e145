"""Build the Dockerfile and run its image as docs/guides/install.md says.

    DOCKER_HOST=unix:///… uv run pytest -n 0 packaging/image/check_docker.py

Needs root, mmdebstrap, a Docker engine that DOCKER_HOST names, dist/cortex and
dist/cortex-image.tar. No registry: the base is made of Debian's packages. The engine needs no
network of its own (`dockerd --bridge=none --iptables=false`).
"""

import hashlib
import json
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import attrs
import pytest

from tests.support.eventually import eventually
from tests.support.shipping.oci import IMAGE, JOBS, ROOT, SHORT, read_image

BASE, TAG = "cortex-check-base", "cortex"
WITHIN_S: Final = 60.0
STOPPED_WITHIN_S: Final = 10.0
"""When `docker stop` sends SIGKILL."""
OF_THE_ENGINE: Final = re.compile(r"(\.dockerenv|dev/.*|etc/(hostname|hosts|mtab|resolv\.conf))$")
GATE: Final = "/var/lib/cortex/gate"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("DOCKER_HOST" not in os.environ, reason="DOCKER_HOST names no engine"),
]


def docker(*words: str, code: int = 0, within_s: float = 300) -> str:
    done = subprocess.run(
        ["docker", *words],
        cwd=ROOT,
        env=os.environ | {"DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    base = tmp_path_factory.mktemp("base") / "base.tar"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", base], check=True)
    docker("import", str(base), BASE)
    options = ("--network", "host", "--build-arg", f"BASE={BASE}", "--tag", TAG)
    docker("build", "--file", "packaging/image/Dockerfile", *options, ".", within_s=600)
    return TAG


@attrs.define
class Container:
    """A container that runs as the guide says, on a volume of its own."""

    name: str
    options: list[str]

    def run(self, *command: str) -> None:
        docker("run", "--detach", "--name", self.name, *self.options, TAG, *command)

    def until(self, text: str) -> None:
        eventually(lambda: text in self.log(), what=f"it logs {text}", within_s=WITHIN_S)

    def log(self) -> str:
        done = subprocess.run(
            ["docker", "logs", self.name], capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    def inside(self, *words: str) -> str:
        return docker("exec", self.name, "/usr/bin/cortex", *words)

    def state(self) -> Any:
        return json.loads(docker("inspect", self.name))[0]["State"]

    def remove(self) -> None:
        subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, check=False)


@pytest.fixture
def container(built: str, tmp_path: Path) -> Iterator[Container]:
    volume = f"{built}-check-{os.getpid()}"
    mounted = ["--read-only", "--tmpfs", "/tmp", "--volume", f"{volume}:/var/lib/cortex"]  # noqa: S108
    (tmp_path / "jobs.py").write_text(JOBS)
    tmp_path.chmod(0o755)
    for each in tmp_path.parents[:2]:
        each.chmod(0o755)
    app = ["--volume", f"{tmp_path}:/app:ro"]
    made = Container(volume, ["--network", "none", *mounted, *app])
    yield made
    made.remove()
    docker("volume", "rm", "--force", volume)


def tree(archive: IO[bytes]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for each in tar:
            name = each.name.removeprefix("./").rstrip("/")
            if not name or name == "." or OF_THE_ENGINE.match(name):
                continue
            content = tar.extractfile(each) if each.isfile() else None
            digest = hashlib.sha256(content.read()).hexdigest() if content else each.linkname
            found[name] = (each.type, each.mode & 0o7777, each.uid, each.gid, digest)
    return found


def test_it_is_the_image_that_is_built_without_an_engine(container: Container) -> None:
    docker("create", "--name", container.name, TAG)
    exported = subprocess.Popen(["docker", "export", container.name], stdout=subprocess.PIPE)
    assert exported.stdout
    with exported.stdout:
        of_docker = tree(exported.stdout)
    assert exported.wait() == 0
    layer, config = read_image(IMAGE)
    with layer:
        ours = tree(layer)
    differing = [name for name in {*of_docker, *ours} if of_docker.get(name) != ours.get(name)]
    assert not differing, [(each, of_docker.get(each), ours.get(each)) for each in differing[:20]]

    described = json.loads(docker("inspect", TAG))[0]["Config"]
    assert {key: described[key] for key in config} == config


def test_it_becomes_healthy_and_docker_stop_drains_it_in_time(container: Container) -> None:
    container.options += ["--health-interval", "1s"]
    for name, value in SHORT.items():
        container.options += ["--env", f"{name}={value}"]
    container.run("up", "--app", "/app/jobs.py")
    eventually(
        lambda: container.state()["Health"]["Status"] == "healthy",
        what="the health check passes",
        within_s=WITHIN_S,
    )
    container.inside("jobs", "submit", "wait", "--arg", "gate=/never")
    began = time.monotonic()
    docker("stop", container.name)
    took_s = time.monotonic() - began
    print(f"stopped in {took_s:.1f} s")
    assert took_s < STOPPED_WITHIN_S
    assert container.state()["ExitCode"] in {0, 1}, container.log()  # 137: killed
    assert "draining" in container.log()


def test_its_job_survives_kill_9(container: Container) -> None:
    container.run("up", "--app", "/app/jobs.py")
    container.until("is ready after")
    submitted = container.inside("jobs", "submit", "wait", "--arg", f"gate={GATE}")
    job_id = submitted.split()[0]
    docker("kill", "--signal", "KILL", container.name)
    assert docker("wait", container.name).strip() == "137"
    docker("start", container.name)
    eventually(
        lambda: container.log().count("is ready after") == 2,
        what="it is ready again",
        within_s=WITHIN_S,
    )
    docker("exec", container.name, "/bin/sh", "-c", f": >{GATE}")
    container.inside("jobs", "wait", job_id)
    shown = json.loads(container.inside("jobs", "show", job_id, "--json"))
    assert shown["job"]["status"] == "COMPLETED"


def test_the_exit_code_of_a_command_is_passed_on(container: Container) -> None:
    docker("run", "--rm", *container.options, TAG, "--version")
    docker("run", "--rm", *container.options, TAG, "jobs", "show", code=2)
