"""`cortex mcp` as an assistant starts it: a process that reads and writes lines of JSON."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any, Self

from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class McpCommand:
    """The process, and a client that writes what it wants."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._cortex = Cortex(folder, dsn)
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: Queue[bytes] = Queue()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WITHIN_S)
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None and not stream.closed:
                    stream.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def popen(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cortex", "mcp", *arguments],
            cwd=self._cortex.folder,
            env=self._cortex.environ(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self._process

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        """Start it, and shake hands."""
        self.popen(*arguments, env=env)
        threading.Thread(target=self._read, daemon=True).start()
        assert self.ask("initialize", **HELLO)["result"]["serverInfo"]["name"] == "cortex"
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message: Any) -> None:
        """Write a message, or bytes as they are."""
        raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(raw)
        self.process.stdin.flush()

    def send(self, method: str, **params: Any) -> int:
        """Write a request; return its id."""
        self._count += 1
        self.write({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Write a request and return the answer to it; others are dropped."""
        number = self.send(method, **params)
        while (message := self.line()).get("id") != number:
            pass
        return message

    def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool; return its last text."""
        answer = self.ask("tools/call", name=tool, arguments=arguments)
        text: str = answer["result"]["content"][-1]["text"]
        return text

    def line(self) -> dict[str, Any]:
        """The next line, which must be a message."""
        message: dict[str, Any] = json.loads(self._lines.get(timeout=WITHIN_S))
        assert message["jsonrpc"] == "2.0"
        return message

    def end(self) -> tuple[int, list[bytes], str]:
        """Wait for its end; return the exit code, the lines not read yet, and stderr."""
        assert self.process.stderr is not None
        code = self.process.wait(WITHIN_S)
        self._lines.put(b"")
        lines = list(iter(self._lines.get, b""))
        return code, lines, self.process.stderr.read().decode()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
