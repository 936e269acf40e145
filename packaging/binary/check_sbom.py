"""The SBOM of dist/cortex against its schema, `cortex licences`, and what is in the file.

See check_binary.py; needs `readelf`, too.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.shipping.machine import BINARY, Machine

VALIDATOR: Final = "cyclonedx-python-lib[json-validation]==11.12.0"
VALIDATE: Final = """\
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text()))
"""
# Of every machine that the binary runs on: glibc, and the C++ library that greenlet needs.
OF_THE_MACHINE: Final = re.compile(
    r"(libc|libm|libdl|libpthread|librt|libutil|libresolv|libcrypt|libgcc_s|libstdc\+\+"
    r"|ld-linux-x86-64)\.so\.\d+"
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def sbom() -> Any:
    return json.loads(BINARY.with_suffix(".cdx.json").read_text("utf-8"))


def test_checksum_matches_the_file(sbom: Any) -> None:
    command = ["sha256sum", "--check", "--strict", BINARY.with_suffix(".sha256").name]
    subprocess.run(command, cwd=BINARY.parent, check=True)
    (listed,) = sbom["metadata"]["component"]["hashes"]
    assert listed["content"] == hashlib.sha256(BINARY.read_bytes()).hexdigest()


def test_sbom_fits_the_cyclonedx_schema() -> None:
    words = ["uv", "run", "--quiet", "--no-project", "--with", VALIDATOR, "python", "-c", VALIDATE]
    subprocess.run([*words, BINARY.with_suffix(".cdx.json")], check=True)


def test_sbom_and_licences_list_the_same_packages(machine: Machine, sbom: Any) -> None:
    listed = json.loads(machine.run("licences", "--json"))["components"]
    of_sbom = [sbom["metadata"]["component"] | {"name": "cortex-durable"}, *sbom["components"]]
    assert sorted((each["name"].rpartition("/")[2], each["version"]) for each in listed) == sorted(
        (each["name"], each["version"]) for each in of_sbom
    )
    without = [each["name"] for each in listed if not each["text"] or each["licence"] == "unknown"]
    assert not without, "no licence or no text"


def test_each_file_belongs_to_a_listed_package(machine: Machine, sbom: Any) -> None:
    machine.run("--version")
    names = {each["name"] for each in sbom["components"]}
    linked = {"bzip2", "cpython", "expat", "libffi", "liblzma", "libmpdec", "libuuid", "openssl"}
    assert {*linked, "postgresql", "sqlite", "zlib", "zstd"} <= names
    assert "serde" in names  # of the Rust code in packages
    packages = {
        re.sub(r"[-_.]+", "-", each.name.split("-")[0]).lower()
        for each in machine.cache.glob("**/*.dist-info")
    }
    assert packages - {"cortex-durable"} <= names
    files = list(machine.cache.glob("**/*"))
    ours = {each.name for each in files}
    needed = {name for file in files if is_program(file) for name in needs(file)}
    assert needed
    assert not {each for each in needed - ours if not OF_THE_MACHINE.fullmatch(each)}


def is_program(file: Path) -> bool:
    if not file.is_file() or file.is_symlink():
        return False
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def needs(file: Path) -> Iterator[str]:
    printed = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True)
    yield from re.findall(r"\(NEEDED\).*\[(.*)\]", printed.stdout)
