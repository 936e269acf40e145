"""The scripted Messages-API server for tests: as a process, with its log of calls."""

import json
import select
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from attrs import frozen

from chaos.cluster.fork_server import Process
from tests.support.eventually import WITHIN_S
from tests.support.pods import FORKS, ROOT, environment

STDERR: Final = 2
"""This process's: a test that fails shows what the server wrote."""
MODEL = "scripted"
API_KEY = "scripted-key"

# The environment's proxies are not for loopback.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@frozen
class ScriptedModel:
    """A server process. `environment` is what makes a program's SDK talk to it."""

    base_url: str
    process: Process

    @property
    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.base_url, "ANTHROPIC_API_KEY": API_KEY}

    def calls(self, mark: str = "") -> list[dict[str, Any]]:
        """The calls it took, in order, of the conversations whose prompt begins with `mark`."""
        with _direct.open(f"{self.base_url}/calls", timeout=10) as answer:
            calls: list[dict[str, Any]] = json.load(answer)["calls"]
        return [each for each in calls if each["prompt"].startswith(mark)]


@contextmanager
def scripted_model(
    script: str = "tools", *, pace: float = 1.0, rules: Sequence[Mapping[str, Any]] = ()
) -> Iterator[ScriptedModel]:
    """Run a server process with this script until the block is left.

    `rules` are those of a fault file (`cortex.demo.fault_file`), laid over the script.
    """
    words = ["--script", script, "--pace", str(pace)]
    with tempfile.TemporaryDirectory() as folder:
        if rules:
            script_file = Path(folder, "faults.json")
            script_file.write_text(json.dumps({"rules": rules}), "utf-8")
            words += ["--script-file", str(script_file)]
        with _running(words) as model:
            yield model


@contextmanager
def _running(words: Sequence[str]) -> Iterator[ScriptedModel]:
    process = FORKS.start(
        words,
        env=environment(None, ROOT, {}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=STDERR,
        module="cortex.demo.server",
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        try:
            yield ScriptedModel(_base_url(stdout), process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def program(*turns: dict[str, Any], mark: str = "", **fields: Any) -> str:
    """The prompt that makes the `tools` script play these turns; `mark` makes it one of its own."""
    return f"{mark} {json.dumps({'turns': turns, **fields})}"


def _base_url(stdout: IO[bytes]) -> str:
    readable, _, _ = select.select([stdout], [], [], WITHIN_S)
    assert readable, f"the scripted model was not ready within {WITHIN_S:g} s"
    return str(json.loads(stdout.readline())["base_url"])
