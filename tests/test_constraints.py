"""`.ci/constraints.txt` pins what `.ci/run` installs: each package once, with its hashes."""

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
TEXT: Final = (ROOT / ".ci" / "constraints.txt").read_text("utf-8")
PIN: Final = re.compile(
    r"([\w.-]+)==([^\s;]+)(?: ; [^\\]+)? \\(?:\n    --hash=sha256:[0-9a-f]{64} ?\\?)+\n"
)
RENEW: Final = "run .ci/lock"


def pins() -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in PIN.findall(TEXT)}


def test_constraints_contain_only_names_versions_and_hashes() -> None:
    head, _, rest = TEXT.partition("\n")
    assert head == "# Written by .ci/lock."
    assert PIN.sub("", rest) == "", RENEW
    assert len(pins()) == len(PIN.findall(TEXT))


HASHED: Final = (
    ".ci/audit.txt",
    "packaging/wheel/requirements.txt",
    "packaging/binary/requirements.txt",
    "packaging/binary/tools.txt",
)


@pytest.mark.parametrize("path", HASHED)
def test_every_list_of_packages_has_hashes(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    assert PIN.sub("", lines) == "", RENEW
    assert path in (ROOT / ".ci" / "audit").read_text("utf-8"), "it is audited"


def test_a_package_from_a_checkout_has_the_versions_of_the_gate() -> None:
    text = (ROOT / "packaging" / "wheel" / "requirements.txt").read_text("utf-8")
    shipped = {canonicalize_name(name): version for name, version in PIN.findall(text)}
    assert shipped.items() <= pins().items(), RENEW
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = document["project"]["optional-dependencies"]
    wanted = [
        *(*document["project"]["dependencies"], *chain.from_iterable(extras.values())),
        *document["build-system"]["requires"],
    ]
    assert {canonicalize_name(Requirement(each).name) for each in wanted} <= shipped.keys()


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, groups = document["project"], document["dependency-groups"]
    extras = [line for each in project["optional-dependencies"].values() for line in each]
    wanted = [
        *(*project["dependencies"], *extras, *document["build-system"]["requires"]),
        *(*groups["dev"], *groups["gate"]),
    ]
    found = pins()
    for requirement in map(Requirement, wanted):
        if requirement.name != project["name"]:
            version = found.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement}: {RENEW}"
            assert requirement.specifier.contains(version), f"{requirement}: {RENEW}"
