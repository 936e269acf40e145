"""The command line in this process: quick, with a terminal or without, its streams kept."""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from cortex.cli import target
from cortex.cli.main import cli, run
from cortex.cli.options import Group
from cortex.postgres.session import open_session
from tests.support.servers.kept_sessions import kept_session


@attrs.frozen(kw_only=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """Stdout as a JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """Stderr as a JSON error."""
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


class _Stream(io.TextIOWrapper):
    def __init__(self, *, is_tty: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_tty = is_tty

    def isatty(self) -> bool:
        return self._is_tty

    @property
    def text(self) -> str:
        kept = self.buffer
        assert isinstance(kept, io.BytesIO)
        return kept.getvalue().decode("utf-8", "surrogateescape")


def run_here(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    stdin: bytes = b"",
    is_tty: bool = False,
    root: Group = cli,
) -> Ended:
    """Run a command to its end in a folder, with this environment and no other variables.

    Commands on one database share its session.
    """
    out, err = _Stream(is_tty=is_tty), _Stream(is_tty=is_tty)
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, _environment(env):
        patch.chdir(folder)
        for name, stream in (("stdout", out), ("stderr", err), ("stdin", given)):
            patch.setattr(sys, name, stream)
        patch.setattr(structlog, "configure", _uncached(structlog.configure))
        if vars(target)["open_session"] is open_session:  # the test itself has not replaced it
            patch.setattr(target, "open_session", kept_session)
        before = structlog.get_config()
        try:
            code = run(arguments, root=root)
        finally:
            structlog.configure(**before)
    return Ended(code=code, out=out.text, err=err.text)


def _uncached(configure: Callable[..., None]) -> Callable[..., None]:
    """A logger that keeps the configuration of one command hides its lines from later tests."""
    return lambda **given: configure(**given | {"cache_logger_on_first_use": False})


@contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment in place: other modules hold this very object."""
    former = dict(os.environ)
    try:
        _become(env)
        yield
    finally:
        _become(former)


def _become(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


@attrs.frozen
class InProcess:
    """Runs `cortex` on a database, isolated from the user's settings."""

    dsn: str
    folder: Path

    def __call__(self, *arguments: str, is_tty: bool = False, stdin: bytes = b"") -> Ended:
        """Run a command to its end. On a terminal nothing moves the cursor, which is tested."""
        env = {
            "CORTEX_DATA": str(self.folder),
            "CORTEX_DSN": self.dsn,
            "COLUMNS": "100",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
        }
        return run_here(arguments, env=env, folder=self.folder, stdin=stdin, is_tty=is_tty)
