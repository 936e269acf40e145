"""Load the image, build the Dockerfiles and run containers as docs/guides/install.md says.

    DOCKER_HOST=unix:///… uv run pytest -n 0 packaging/image/check_docker.py

Needs root, mmdebstrap, a Docker engine that DOCKER_HOST names, dist/cortex and
dist/cortex-image.tar. No registry: bases are made of Debian's packages. The engine needs no
network of its own (`dockerd --bridge=none --iptables=false`).
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.support.eventually import eventually
from tests.support.manual.blocks import blocks
from tests.support.pty_screen import PtyScreen
from tests.support.shipping.oci import IMAGE, JOBS, ROOT, SHORT

BASE, BUILT = "cortex-check-base", "cortex-check-built"
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON: Final = "cortex-check-python"
"""In place of the guide's base, which may be on this engine and shall stay."""
GUIDE: Final = blocks("docs/guides/install.md")
(APPLICATION,) = (each.text for each in GUIDE if each.language == "dockerfile")
(COMMANDS,) = (each.text for each in GUIDE if each.text.startswith("docker load"))
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
def loaded() -> str:
    """The image, loaded, by the name that the guide uses."""
    load = shlex.split(COMMANDS.splitlines()[0].replace(IMAGE.name, str(IMAGE)))
    assert "Loaded image: cortex:latest" in docker(*load[1:]).splitlines()
    return "cortex"


def make_base(folder: Path, name: str, release: str, *packages: str) -> None:
    """Give the engine a base image that a registry would have."""
    base = folder / "base.tar"
    include = [f"--include={','.join(packages)}"] if packages else []
    trusted = f"--customize-hook=copy-in {CERTIFICATES} {CERTIFICATES.parent}"
    hooks = [trusted] if packages else []  # pip reaches the web as this machine does
    debian = ["mmdebstrap", "--quiet", "--variant=minbase", *include, *hooks, release, str(base)]
    subprocess.run(debian, check=True)
    docker("import", str(base), name)
    base.unlink()


def build(context: Path, tag: str, *options: str) -> None:
    docker("build", "--network", "host", "--tag", tag, *options, str(context), within_s=600)


@attrs.define
class Container:
    """A container that runs as the guide says, on a volume of its own."""

    name: str
    image: str
    options: list[str]

    def run(self, *command: str) -> None:
        docker("run", "--detach", "--name", self.name, *self.options, self.image, *command)

    def until(self, text: str) -> None:
        def logs_it() -> bool:
            is_running = self.state()["Running"]
            log = self.log()
            assert text in log or is_running, log
            return text in log

        eventually(logs_it, what=f"it logs {text}", within_s=WITHIN_S)

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
def container(loaded: str, tmp_path: Path) -> Iterator[Container]:
    """A container of the guide's image, on a volume of its own; /app has jobs.py."""
    volume = f"{loaded}-check-{os.getpid()}"
    mounted = ["--read-only", "--tmpfs", "/tmp", "--volume", f"{volume}:/var/lib/cortex"]  # noqa: S108
    (tmp_path / "jobs.py").write_text(JOBS)
    tmp_path.chmod(0o755)
    app = ["--volume", f"{tmp_path}:/app:ro"]
    made = Container(volume, loaded, ["--network", "none", *mounted, *app])
    yield made
    made.remove()
    docker("volume", "rm", "--force", volume)


def tree(image: str) -> dict[str, tuple[Any, ...]]:
    """The files of an image, as the engine exports them."""
    name = f"{image}-tree-{os.getpid()}"
    docker("create", "--name", name, image)
    found: dict[str, tuple[Any, ...]] = {}
    with (
        subprocess.Popen(["docker", "export", name], stdout=subprocess.PIPE) as exported,
        tarfile.open(fileobj=exported.stdout, mode="r|") as tar,
    ):
        for each in tar:
            if not OF_THE_ENGINE.match(each.name):
                content = tar.extractfile(each) if each.isfile() else None
                digest = hashlib.sha256(content.read()).hexdigest() if content else each.linkname
                found[each.name] = (each.type, each.mode & 0o7777, each.uid, each.gid, digest)
    docker("rm", name)
    return found


def test_dockerfile_builds_the_same_image(loaded: str, tmp_path: Path) -> None:
    make_base(tmp_path, BASE, "bookworm")
    dockerfile = ("--file", "packaging/image/Dockerfile", "--build-arg", f"BASE={BASE}")
    build(ROOT, BUILT, *dockerfile)
    one, other = tree(loaded), tree(BUILT)
    differing = [name for name in {*one, *other} if one.get(name) != other.get(name)]
    assert not differing, [(each, one.get(each), other.get(each)) for each in differing[:20]]
    first, second = (json.loads(docker("inspect", name))[0]["Config"] for name in (loaded, BUILT))
    assert {key: second[key] for key in first if first[key]} == {
        key: value for key, value in first.items() if value
    }


def test_guide_commands_start_and_show_a_pod(container: Container) -> None:
    name = container.name
    replaced = {
        "--name cortex": f"--name {name}",
        "--volume cortex:": f"--volume {name}:",
        "--tty cortex": f"--tty {name}",
    }
    text = COMMANDS
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    run, show = (shlex.split(line) for line in text.splitlines()[1:])
    docker(*run[1:-1], "--network", "none", run[-1])
    container.until("is ready after")
    environment = {**os.environ, "TERM": "xterm-256color"}
    with PtyScreen(show, folder=ROOT, env=environment, is_forked=False) as screen:
        screen.until(lambda text: "pods 1/1" in text, what="the pod is shown")
        screen.type("q")
        assert screen.end() == 0
    docker("stop", name)
    assert container.state()["ExitCode"] == 0, container.log()


def test_containers_read_the_dsn_from_a_mounted_file(container: Container, tmp_path: Path) -> None:
    """The other one's embedded server here, since that needs no network."""
    container.run()
    container.until("is ready after")
    host = "/var/lib/cortex/data/socket"
    (tmp_path / "config.toml").write_text(f'dsn = "postgresql://postgres@/cortex?host={host}"\n')
    (tmp_path / "config.toml").chmod(0o644)
    file = ["--volume", f"{tmp_path}/config.toml:/var/lib/cortex/.config/cortex/config.toml:ro"]
    other = attrs.evolve(container, name=f"{container.name}-2", options=container.options + file)
    try:
        other.run()
        other.until("is ready after")
        assert len(other.inside("pods", "ls", "-o", "name").split()) == 2
        assert "dsn from /var/lib/cortex/.config/cortex/config.toml" in other.inside("doctor")
    finally:
        other.remove()


def test_app_image_runs_its_own_jobs_and_packages(container: Container, tmp_path: Path) -> None:
    """The guide's Dockerfile, with a compiled package. Debian 13 has a Python 3.13 and pip."""
    make_base(tmp_path, PYTHON, "trixie", "python3-pip", "ca-certificates")
    dockerfile, changes = re.subn(
        r"^FROM python:\S+", f"FROM {PYTHON}", APPLICATION, flags=re.MULTILINE
    )
    assert changes == 1
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / "requirements.txt").write_text("msgpack==1.1.2\n")
    (tmp_path / "shop.py").write_text(
        "from cortex import Context, job\n"
        "from msgpack._cmsgpack import Packer\n\n"
        '@job("pack")\n'
        "async def pack(ctx: Context) -> int:\n"
        "    return len(Packer().pack([1, 2]))\n"
    )
    container.image = "cortex-check-shop"
    build(tmp_path, container.image)
    container.run()
    container.until("is ready after")
    container.inside("jobs", "submit", "pack", "--wait")
    assert container.inside("jobs", "ls", "--status", "COMPLETED", "-o", "name")


def test_container_becomes_healthy_and_docker_stop_drains_it(container: Container) -> None:
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
    # 1: a slow machine; 137: killed
    assert container.state()["ExitCode"] in {0, 1}, container.log()
    assert "draining" in container.log()


def test_job_survives_kill_9_of_its_container(container: Container) -> None:
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


def test_container_returns_the_exit_code_of_its_command(container: Container) -> None:
    docker("run", "--rm", *container.options, container.image, "--version")
    docker("run", "--rm", *container.options, container.image, "jobs", "show", code=2)
