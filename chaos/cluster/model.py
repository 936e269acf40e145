"""The scripted model of a run: `cortex.demo.server` as a process, with the plan's faults."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.cluster.fork_server import ForkServer, Process
from chaos.evidence import ModelCall
from chaos.history import History

SCRIPT = "chaos.workloads.model_script:script"
READY_WITHIN_S = 20.0
ANSWERED_WITHIN_S = 20.0

# The environment's proxies do not apply to loopback.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Model:
    """Takes no calls before `start`; `calls` reads its log after the run."""

    def __init__(self, fork_server: ForkServer, *, folder: Path, history: History) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._history = history
        self._process: Process | None = None
        self._began_at_s = 0.0
        # Pods get its address before it runs: its rules count from the start of the load.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self, rules: Sequence[Mapping[str, Any]], *, script: str = SCRIPT) -> None:
        """Serve with rules of a fault file; their times count from now."""
        arguments = ["--port", str(self._port), "--script", script]
        if rules:
            faults = self._folder / "model_faults.json"
            faults.write_text(json.dumps({"rules": rules}))
            arguments += ["--script-file", str(faults)]
        out, log = self._folder / "model.out", self._folder / "model.log"
        with out.open("wb") as stdout, log.open("wb") as stderr:
            self._process = self._fork_server.start(
                arguments,
                env={"PYTHONPATH": str(Path(__file__).parent.parent.parent)},
                cwd=self._folder,
                stdout=stdout,
                stderr=stderr,
                module="cortex.demo.server",
            )
        async with asyncio.timeout(READY_WITHIN_S):
            while not out.read_text().endswith("\n"):
                if self._process.poll() is not None:
                    raise RuntimeError(f"the scripted model ended: {log.read_text()[-2000:]}")
                await asyncio.sleep(0.01)
        self._began_at_s = self._history.now_s

    async def calls(self) -> tuple[ModelCall, ...]:
        """The calls that it has received, from its own log."""
        log = await asyncio.to_thread(_get, f"{self.url}/calls")
        return tuple(
            ModelCall(
                conversation=entry["prompt"].partition(" ")[0],
                turn=entry["turn"],
                number=entry["number"],
                at_s=self._of_run_s(entry["started_s"]),
                outcome=entry["outcome"],
                ended_s=None if entry["ended_s"] is None else self._of_run_s(entry["ended_s"]),
                rule=entry["rule"],
            )
            for entry in log["calls"]
        )

    async def open_conversations(self) -> tuple[str, ...]:
        """The conversations of the calls that it is answering right now."""
        log = await asyncio.to_thread(_get, f"{self.url}/calls/open")
        return tuple(entry["prompt"].partition(" ")[0] for entry in log["calls"])

    def _of_run_s(self, own_s: float) -> float:
        """Convert one of its times to seconds of the run."""
        return round(self._began_at_s + own_s, 6)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


def _get(url: str) -> Any:
    with _direct.open(url, timeout=ANSWERED_WITHIN_S) as answer:
        return json.load(answer)
