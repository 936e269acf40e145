"""Opens a copy in the operator's editor; changes are discarded.

Meanwhile this process only waits, because the editor owns the terminal. A termination signal takes
effect after the editor has closed.
"""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DEFAULT: Final = "vi"
NAME: Final = "cortex.json"
"""A fixed name: a name that others chose could redirect the file."""


def show(text: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Show JSON as a file; return why that failed, or ""."""
    wanted = environ.get("VISUAL") or environ.get("EDITOR") or DEFAULT
    try:
        command = shlex.split(wanted) or [DEFAULT]
    except ValueError as error:
        return f"$EDITOR is {wanted!r}: {error}"
    try:
        with tempfile.TemporaryDirectory(prefix="cortex-") as folder:  # private to this user
            path = Path(folder) / NAME
            path.write_text(text, "utf-8")
            path.chmod(0o400)
            return _run(command, path)
    except OSError as error:
        return f"a copy for the editor cannot be kept: {error.strerror}; see $TMPDIR"


def _run(command: Sequence[str], path: Path) -> str:
    try:
        with _interrupts_for_the_editor():
            ended = subprocess.run([*command, path], check=False)  # noqa: S603 -- the user's own
    except OSError as error:
        return f"{command[0]!r} cannot be started: {error.strerror}; set $EDITOR"
    code = ended.returncode
    return "" if code == 0 else f"{command[0]!r} ended with {code}"


@contextmanager
def _interrupts_for_the_editor() -> Iterator[None]:
    """Leave ctrl+c to the editor: it gets the default handler, this process ignores the signal."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
