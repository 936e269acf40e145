"""Surroundings of the manual's commands: a database, a pod, a `cortex` that starts at once."""

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.pods import FORKS, NOT_OURS, ROOT

OWN_INTERPRETER: Final = ("up", "demo", "dev", "run", "bench", "tui", "tick", "scripted-model")
"""Commands that are signalled by their process id, or start processes of their own."""
NEEDS_YES: Final = b"hint: add --yes"
"""A reader has a terminal and answers yes there."""
_CODE_BYTES: Final = 4
_CLIENT: Final = """#!{python} -SI
import os, socket, sys
if sys.argv[1:2] and sys.argv[1] in {own}:
    os.execv({python!r}, [{python!r}, "-m", "cortex", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    words = [*sys.argv[1:], "", os.getcwd(), *(f"{{k}}={{v}}" for k, v in os.environ.items())]
    body = "\\0".join(words).encode("utf-8", "surrogateescape")
    socket.send_fds(server, [len(body).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(body)
    sys.exit(int.from_bytes(server.recv(4), "big"))
"""

_SQL: Final = """#!{python}
import asyncio, os, sys
import asyncpg

async def run():
    await (await asyncpg.connect(os.environ["CORTEX_DSN"])).execute(sys.argv[1])

asyncio.run(run())
"""


@contextmanager
def quick_cortex(folder: Path) -> Iterator[Path]:
    """Make a folder with a program `sql`, and `cortex` that runs in a fork of a warm process.

    An import of the command line costs more than what most commands do.
    """
    address = str(folder / "cortex.socket")
    program = folder / "cortex"
    program.write_text(
        _CLIENT.format(python=sys.executable, own=OWN_INTERPRETER, address=address), "utf-8"
    )
    program.chmod(0o755)
    query = folder / "sql"
    query.write_text(_SQL.format(python=sys.executable), "utf-8")
    query.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield folder
        server.shutdown(socket.SHUT_RDWR)


def environment(programs: Path, dsn: str) -> dict[str, str]:
    """Return what a reader's shell holds, and nothing of this run's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*NOT_OURS, "PYTEST_", "UV_PROJECT", "VIRTUAL_ENV"))
    }
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | {
        "CORTEX_DSN": dsn,
        "LANG": "C.UTF-8",
        "CORTEX_PRE_STOP_S": "0",
        "PATH": path,
        "PROJECT": str(ROOT),
        "TZ": "UTC",
    }


def _serve(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_run, args=(client,), daemon=True).start()


def _run(client: socket.socket) -> None:
    with client:
        head, files, _, _ = socket.recv_fds(client, _CODE_BYTES, 3)
        body = b""
        while len(body) < int.from_bytes(head, "big"):
            body += client.recv(1 << 16)
        words = body.decode("utf-8", "surrogateescape").split("\0")
        end = words.index("")
        pairs = (each.split("=", 1) for each in words[end + 2 :])
        run = partial(FORKS.start, env=dict(pairs), cwd=words[end + 1], stdin=files[0])
        with tempfile.TemporaryFile() as errors:
            code = run(words[:end], stdout=files[1], stderr=errors).wait()
            errors.seek(0)
            text = errors.read()
            if NEEDS_YES in text:
                code = run([*words[:end], "--yes"], stdout=files[1], stderr=files[2]).wait()
            else:
                os.write(files[2], text)
        for file in files:
            os.close(file)
        client.sendall((code & 0xFF).to_bytes(_CODE_BYTES, "big"))
