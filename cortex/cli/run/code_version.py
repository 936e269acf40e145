"""The version of the code that a pod runs: a digest of the application's sources.

The same sources have the same version on every host, in every folder, whatever the times of their
files and the state of compiled ones. It covers the application's package or file, those that it
imports from folders of its own, and the version of Cortex; no packages installed beside it.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Final

import click

import cortex
from cortex.cli.apps import added_packages
from cortex.config import Settings
from cortex.domain.errors import UsageError
from cortex.runtime.pod_parts import CORTEX_VERSION

DIGITS: Final = 12
SUFFIXES: Final = (".py", ".pyc")
"""Compiled files count for packages without sources; those beside sources are in other folders."""
_CORTEX: Final = Path(cortex.__file__).resolve().parent
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_IMPORT: Final = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)


code_option = click.option(
    "--code-version", metavar="V", help="Version of the code of --app [a digest of its sources]."
)


def version_of(apps: Sequence[ModuleType], settings: Settings) -> str:
    """Return the version that the operator named, or the code's own."""
    return settings.code_version or code_version(apps, installed=added_packages())


def code_version(apps: Sequence[ModuleType], *, installed: Sequence[Path] = ()) -> str:
    """Return the version of an application's code; without one, the version of Cortex.

    `installed`: folders of packages that are not the application's own. Raises `UsageError` for a
    source that cannot be read.
    """
    entries = ((app, Path(app.__file__).resolve()) for app in apps if app.__file__ is not None)
    own = [(app, entry) for app, entry in entries if not entry.is_relative_to(_CORTEX)]
    if not own:
        return CORTEX_VERSION
    digest = sha256(cortex.__version__.encode())
    sources = {source for app, entry in own for source in _sources(app, entry, installed)}
    for name, path in sorted(sources):
        source = _read(path)
        digest.update(b"\0%s\0%d\0" % (name.encode(), len(source)))
        digest.update(source)
    return digest.hexdigest()[:DIGITS]


def _sources(app: ModuleType, entry: Path, installed: Sequence[Path]) -> set[tuple[str, Path]]:
    """Return the application's files, each with its name below the folder where it is found."""
    if archive := next((each for each in entry.parents if each.is_file()), None):
        return {("", archive)}
    folder = _folder(app, entry)
    found = {(entry.relative_to(folder).as_posix(), entry)}
    top = Path(entry.relative_to(folder).parts[0]).stem
    if folder.name in _INSTALLED or folder == _CORTEX.parent or folder in installed:
        return found | set(_members(folder, top))
    folders = [folder, *_own_folders({folder, *installed})]
    waiting = [top, *_loaded_from(folders), *_imported(entry)]
    seen = set(sys.stdlib_module_names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        members = next(filter(None, (list(_members(each, name)) for each in folders)), [])
        found.update(members)
        # A package is taken whole; what a file imports only while a job runs is not loaded yet.
        if len(members) == 1:
            waiting += _imported(members[0][1])
    return found


def _folder(app: ModuleType, entry: Path) -> Path:
    """Return the folder in which the import system found the application's top module."""
    spec = app.__spec__
    module = entry.parent if spec and spec.submodule_search_locations is not None else entry
    depth = 1 if spec is None else len(spec.name.split("."))
    return module.parents[depth - 1]


def _own_folders(known: set[Path]) -> Iterator[Path]:
    """Yield the other folders that modules are found in, without installed and standard ones."""
    standard = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    for text in sys.path:
        each = Path(text).resolve()
        is_others = each.name in _INSTALLED or each == _CORTEX.parent
        if not is_others and each not in known and each.is_dir():
            known.add(each)
            if not any(each.is_relative_to(one) for one in standard):
                yield each


def _loaded_from(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the names of loaded modules that lie in these folders, without those inside of others.

    Modules inside a package count as the package.
    """
    own = {str(each) for each in folders}
    for name, module in list(sys.modules.items()):
        if "." not in name:
            places = [*(getattr(module, "__path__", None) or ()), getattr(module, "__file__", None)]
            if any(place and str(Path(place).parent) in own for place in places):
                yield name


def _members(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Yield the sources of a top-level package or module; none if it is not in the folder."""
    file = folder / f"{name}{SUFFIXES[0]}"
    if file.is_file() and not (folder / name / "__init__.py").is_file():
        yield file.name, file
        return
    for at, folders, files in os.walk(folder / name):
        folders[:] = [each for each in folders if each.isidentifier() and each != "__pycache__"]
        for each in files:
            if each.endswith(SUFFIXES) and not each.startswith("."):
                path = Path(at, each)
                yield path.relative_to(folder).as_posix(), path


def _read(path: Path) -> bytes:
    """Return a source, without what differs between hosts. Raises `UsageError`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # a link to nowhere, which cannot be imported either
        return b""
    except OSError as error:
        raise UsageError(
            f"source {path}: {error.strerror}", hint="name the version: --code-version V"
        ) from error
    return content[16:] if path.suffix == SUFFIXES[1] else content.replace(b"\r\n", b"\n")


def _imported(file: Path) -> Iterator[str]:
    """Yield the top-level names that a file imports, wherever in it."""
    for from_name, names in _IMPORT.findall(_read(file)):
        for word in (from_name or names).decode().split(","):
            if name := word.strip().partition(" ")[0].partition(".")[0]:
                yield name
