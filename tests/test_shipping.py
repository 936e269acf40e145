"""Cheap checks of the binary and the image; packaging/*/check_*.py try the real ones."""

import os
import plistlib
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import cortex
from cortex.config import load
from tests.support.shipping.programs import program

ROOT = Path(__file__).parent.parent / "packaging"


def test_a_layer_depends_on_its_content_only(tmp_path: Path) -> None:
    pack = program(ROOT / "binary" / "pack.py")
    hashes = []
    for number, order in enumerate([("a", "b"), ("b", "a")]):
        layer = tmp_path / str(number)
        layer.mkdir()
        for name in order:
            (layer / f"{name * 120}.py").write_text(name)
            os.utime(layer / f"{name * 120}.py", (number, number))
        (layer / "link").symlink_to("a")
        hashes.append(pack.archive(layer, tmp_path / f"{number}.tar"))
    assert hashes[0] == hashes[1]
    (tmp_path / "0" / "more").touch()
    assert pack.archive(tmp_path / "0", tmp_path / "more.tar") != hashes[0]


def test_the_image_is_configured_by_the_last_stage_of_the_dockerfile() -> None:
    oci = program(ROOT / "image" / "oci.py")
    config = oci.configuration((ROOT / "image" / "Dockerfile").read_text("utf-8"))
    assert config["Entrypoint"] == ["/usr/bin/tini", "--", "/usr/bin/cortex"]
    assert (config["User"], config["StopSignal"]) == ("10001:10001", "SIGTERM")
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/cortex", "doctor", "--quick"]
    assert config["Healthcheck"]["Timeout"] == 10_000_000_000
    assert config["Labels"]["org.opencontainers.image.version"] == cortex.__version__


def test_the_image_is_built_on_a_base_by_digest_with_bubblewrap() -> None:
    dockerfile = (ROOT / "image" / "Dockerfile").read_text("utf-8")
    (base,) = re.findall(r"^ARG BASE=(.+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"debian:bookworm-slim@sha256:[0-9a-f]{64}", base)
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["$BASE", "scratch"]
    (packages,) = re.findall(
        r"--include=(\S+) bookworm", (ROOT / "image" / "root").read_text("utf-8")
    )
    assert "bubblewrap" in packages.split(",")


def locked(name: str) -> dict[str, str]:
    lines = (ROOT / "binary" / name).read_text("utf-8").splitlines()
    pins = [line.removesuffix(" \\").split("==") for line in lines if "==" in line]
    return dict(pins)


def test_the_example_for_launchd_has_known_keys_and_consistent_deadlines() -> None:
    job = plistlib.loads((ROOT / "launchd" / "cortex.plist").read_bytes())
    required = {"Label", "ProgramArguments"}
    # As launchd.plist(5) has them.
    optional = {"EnvironmentVariables", "ExitTimeOut", "KeepAlive", "RunAtLoad"}
    assert required <= job.keys() <= required | optional | {"StandardErrorPath"}
    assert job["Label"] == "cortex", "launchd expects the file to be named after it"
    settings = load({}, environ=job["EnvironmentVariables"], cwd=Path("/"))
    assert settings.kill_s == job["ExitTimeOut"]
    assert settings.pre_stop_s == 0


def test_binary_locks_every_requirement_of_the_package() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["embedded"], *extras["otel"]]
    pairs = [
        *((each, locked("requirements.txt")) for each in wanted),
        *((each, locked("tools.txt")) for each in project["build-system"]["requires"]),
    ]
    for text, pins in pairs:
        requirement = Requirement(text)
        version = pins.get(requirement.name.lower())
        assert version, f"{text}: run packaging/binary/lock"
        assert requirement.specifier.contains(version), f"{text}: run packaging/binary/lock"
