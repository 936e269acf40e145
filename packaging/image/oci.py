"""Write an OCI image of one layer, configured by the last stage of a Dockerfile.

oci.py DOCKERFILE LAYER.tar TARGET.tar

podman, skopeo and containerd read `index.json`; `docker load` reads `manifest.json`, unless Docker
keeps its images in containerd.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shlex
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.oci.image"
NAME = "cortex:latest"


def configuration(dockerfile: str) -> dict[str, Any]:
    """The last stage's instructions as an image's configuration; unknown ones are refused."""
    stage = re.split(r"^FROM .*$", dockerfile, flags=re.MULTILINE)[-1].replace("\\\n", " ")
    lines = [each.strip().partition(" ") for each in stage.splitlines() if each.strip()]
    made: dict[str, Any] = {}
    for word, _, rest in lines:
        if word != "COPY":  # that is the layer
            field, read = FIELDS[word]
            made[field] = read(rest)
    return made


def _healthcheck(text: str) -> dict[str, Any]:
    options, _, command = text.partition("CMD ")
    nanoseconds = {
        name: int(seconds) * 1_000_000_000
        for name, seconds in re.findall(r"--([a-z-]+)=(\d+)s", options)
    }
    return {
        "Test": ["CMD", *json.loads(command)],
        "Interval": nanoseconds["interval"],
        "Timeout": nanoseconds["timeout"],
        "StartPeriod": nanoseconds["start-period"],
    }


FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "USER": ("User", str),
    "WORKDIR": ("WorkingDir", str),
    "STOPSIGNAL": ("StopSignal", str),
    "ENV": ("Env", shlex.split),
    "LABEL": ("Labels", lambda text: dict(each.split("=", 1) for each in shlex.split(text))),
    "VOLUME": ("Volumes", lambda text: {text: {}}),
    "EXPOSE": ("ExposedPorts", lambda text: {f"{text}/tcp": {}}),
    "ENTRYPOINT": ("Entrypoint", json.loads),
    "CMD": ("Cmd", json.loads),
    "HEALTHCHECK": ("Healthcheck", _healthcheck),
}


def write(dockerfile: Path, layer: Path, target: Path) -> None:
    content = layer.read_bytes()
    packed = gzip.compress(content, 6, mtime=0)
    created = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC).isoformat()
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": configuration(dockerfile.read_text("utf-8")),
        "rootfs": {"type": "layers", "diff_ids": [_digest(content)]},
    }
    with tarfile.open(target, "w") as tar:

        def add(name: str, data: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))

        def blob(data: bytes, media: str) -> dict[str, Any]:
            digest = _digest(data)
            add(_file(digest), data)
            return {"mediaType": media, "digest": digest, "size": len(data)}

        layers = [blob(packed, f"{MEDIA}.layer.v1.tar+gzip")]
        described = blob(json.dumps(config).encode(), f"{MEDIA}.config.v1+json")
        kind = f"{MEDIA}.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": described,
            "layers": layers,
        }
        listed = blob(json.dumps(manifest).encode(), kind)
        listed["annotations"] = {
            "io.containerd.image.name": f"docker.io/library/{NAME}",
            "org.opencontainers.image.ref.name": "latest",
        }
        add("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())
        for_docker = {
            "Config": _file(described["digest"]),
            "RepoTags": [NAME],
            "Layers": [_file(each["digest"]) for each in layers],
        }
        add("manifest.json", json.dumps([for_docker]).encode())


def _file(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
