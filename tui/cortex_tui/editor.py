"""The operator's editor, on a copy that cannot be written back.

While it runs this process waits for it and does nothing else: the terminal is the editor's. A
signal to end takes effect when the editor has closed.
"""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DEFAULT: Final = "vi"


def show(text: str, *, name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Show a text as a file of this name; return why that was not possible, "" when it was."""
    wanted = environ.get("VISUAL") or environ.get("EDITOR") or DEFAULT
    try:
        command = shlex.split(wanted)
    except ValueError as error:
        return f"$EDITOR is {wanted!r}: {error}"
    with tempfile.TemporaryDirectory(prefix="cortex-") as folder:  # for this user alone
        path = Path(folder) / name
        path.write_text(text, "utf-8")
        path.chmod(0o400)
        try:
            with _interrupts_for_the_editor():
                ended = subprocess.run([*command, path], check=False)  # noqa: S603 -- the user's own
        except OSError as error:
            return f"{command[0]!r} cannot be started: {error.strerror}; set $EDITOR"
    code = ended.returncode
    return "" if code == 0 else f"{command[0]!r} ended with {code}"


@contextmanager
def _interrupts_for_the_editor() -> Iterator[None]:
    """Let ctrl+c mean what it means in the editor; it has the default handler, not this one."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
