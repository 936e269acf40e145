"""`cortex init`: a new folder with a project that runs, whole or not at all."""

import errno
import re
import secrets
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from cortex.cli.options import PATH_CHARS_MAX, Command, Options, Text
from cortex.cli.screen.output import Output
from cortex.domain.errors import UsageError

FILES: Final = {
    "app.py": "app.py",
    "clerk.yaml": "clerk.yaml",
    "docker-compose.yml": "docker-compose.yml",
    "pyproject.toml": "pyproject.toml",
    "test_app.py": "test_app.py",
    ".github/workflows/ci.yml": "ci.yml",
    ".gitignore": "gitignore",
}
"""The files of a project, each with its template."""
PLACE: Final = "PROJECT"
"""Stands in templates for the project's name."""
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Allowed names of packages."""


@click.command(cls=Command)
@click.argument("name", type=Text(PATH_CHARS_MAX), metavar="NAME")
@click.pass_obj
def init(options: Options, *, name: str) -> None:
    """Write a project that runs into the new folder NAME.

    It has a job, an agent, tools and an approval, a test of the job, a Compose file, and a workflow
    for CI that checks new code against the jobs in flight.
    """
    output = Output(options)
    options.refuse_columns("init writes one project, it has no columns")
    target = Path(name)
    if _NAME.fullmatch(target.resolve().name) is None or target.resolve() == Path.cwd():
        hint = "choose a new folder, of letters, digits, '-', '_' and '.'"
        raise UsageError(f"{name!r} cannot be the name of a project", hint=hint)
    _refuse_taken(target)
    try:
        _write(target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:  # made meanwhile
            _refuse_taken(target)
        raise UsageError(f"cannot write {name}: {error.strerror}") from error
    document = {"project": {"folder": str(target), "files": sorted(FILES)}}
    output.record(document, name=str(target), page=lambda: _page(target))


def _refuse_taken(target: Path) -> None:
    try:
        is_taken = target.is_symlink() or (target.exists() and any(target.iterdir()))
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    if is_taken:
        raise UsageError(f"folder {target} has files already", hint="choose a new folder")


def _write(target: Path) -> None:
    """Write all files beside the target, then give them its name; on failure remove them."""
    target = target.resolve()
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    hidden.mkdir(parents=True)
    try:
        for file, template in FILES.items():
            path = hidden / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(template, target.name), "utf-8")
        hidden.rename(target)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


def text_of(template: str, name: str) -> str:
    """Return the text of a template for a project of this name."""
    text = (files("cortex.cli.project") / "template" / template).read_text("utf-8")
    return text.replace(PLACE, name)


def _page(target: Path) -> Iterator[str]:
    yield f"{target}: {', '.join(FILES)}"
    yield ""
    yield f"  cd {target}"
    yield "  cortex run app.py refund_order number=1042    asks you, and pays"
    yield "  pytest                                        tests the job, without a database"
    yield "  cortex dev app.py                             a pod that restarts when you save"
