"""`cortex licences`: what this installation consists of, and its licences.

Python packages describe themselves. What else the binary bundles (Python, OpenSSL, Postgres, the
Rust code in packages) is listed in a file beside its interpreter, which packaging/binary/pack.py
writes.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs
import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.domain.errors import NotFoundError
from cortex.domain.safe import safe
from cortex.view.resource import Field

OWN: Final = "cortex-durable"
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_USUAL_FILES: Final = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING", "NOTICE")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)""")


@attrs.frozen
class Component:
    """A package or library that belongs to this installation."""

    name: str
    version: str
    licence: str
    text: str


COLUMNS: Final[Sequence[Field[Component]]] = (
    Field(name="name"),
    Field(name="version"),
    Field(name="licence", least=12),
    Field(name="text", is_default=False),
)


@click.command(cls=Command)
@click.argument("name", required=False)
@click.pass_obj
def licences(options: Options, *, name: str | None) -> None:
    """List what this installation consists of and its licences; with NAME, show the text."""
    output = Output(options)
    output.chosen(COLUMNS)
    found = components(Path(sys.prefix))
    if name is None:
        output.listing("components", COLUMNS, found, empty="nothing is installed")
        return
    one = next((each for each in found if _normal(each.name) == _normal(name)), None)
    if one is None:
        raise NotFoundError(f"{name!r} is not part of this installation", hint="cortex licences")
    lines = one.text.splitlines() or [f"{one.name} brings no text; its licence: {one.licence}"]
    output.record(
        attrs.asdict(one),
        name=one.name,
        page=lambda: [safe(line) for line in lines],
        is_whole=True,
    )


def components(prefix: Path) -> list[Component]:
    """Return the packages that Cortex needs here, and what the binary bundles, by name."""
    bundled = prefix / "share" / "cortex" / "components.json"
    listed = json.loads(bundled.read_text("utf-8")) if bundled.exists() else []
    found = [*_packages(), *(Component(**each) for each in listed)]
    return sorted(found, key=lambda each: each.name)


def _packages() -> Iterator[Component]:
    """Yield Cortex and the installed packages that it needs, also those that it can use."""
    own = metadata.distribution(OWN).metadata.get_all("Provides-Extra", [])
    wanted = [(OWN, frozenset(own))]
    listed: dict[str, frozenset[str]] = {}
    while wanted:
        name, extras = wanted.pop()
        before = listed.get(_normal(name))
        if before is not None and extras <= before:
            continue
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system, or an extra
            continue
        if before is None:
            yield _component(found)
        listed[_normal(name)] = extras | (before or frozenset())
        for text in found.requires or ():
            requirement, _, condition = text.partition(";")
            needs = _REQUIREMENT.match(requirement)
            of_extras = {*_EXTRA.findall(condition)}
            if needs and (not of_extras or of_extras & extras):
                chosen = (each.strip() for each in (needs[2] or "").split(","))
                wanted.append((needs[1], frozenset(each for each in chosen if each)))


def _component(found: metadata.Distribution) -> Component:
    fields = found.metadata
    classified = [
        each.rpartition(" :: ")[2]
        for each in fields.get_all("Classifier", [])
        if each.startswith("License :: ")
    ]
    # Some packages have their whole text in this field.
    short = next(iter((fields["License"] or "").splitlines()), "")
    licence = fields["License-Expression"] or ", ".join(classified) or short or "unknown"
    texts = [
        found.read_text(f"licenses/{file}") or found.read_text(file)
        for file in fields.get_all("License-File") or _USUAL_FILES
    ]
    text = "\n".join(each for each in texts if each)
    return Component(_normal(fields["Name"]), found.version, licence, text)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
