"""The command line in this process: quick, with a terminal or without, its streams kept."""

import io
import sys
from pathlib import Path

import attrs
import pytest

from cortex.cli.main import run


@attrs.frozen
class Kept:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


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


@attrs.frozen
class InProcess:
    """Runs `cortex` on a database, isolated from the user's settings."""

    dsn: str
    folder: Path

    def __call__(self, *arguments: str, is_tty: bool = False, stdin: bytes = b"") -> Kept:
        """Run a command to its end. On a terminal nothing moves the cursor, which is tested."""
        out, err = _Stream(is_tty=is_tty), _Stream(is_tty=is_tty)
        given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        environment = {"CORTEX_DSN": self.dsn, "TERM": "dumb", "COLUMNS": "100", "LANG": "C.UTF-8"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**environment, "XDG_CONFIG_HOME": str(self.folder)}.items():
                patch.setenv(name, value)
            patch.setenv("CORTEX_DATA", str(self.folder))
            patch.chdir(self.folder)
            for name, stream in (("stdout", out), ("stderr", err), ("stdin", given)):
                patch.setattr(sys, name, stream)
            code = run(arguments)
        return Kept(code, out.text, err.text)
