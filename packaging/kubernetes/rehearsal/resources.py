"""Memory and CPU of what the manifests start, measured: the source of their requests and limits.

Memory is that of all processes of a container, what they share counted once. The page cache is left
out: the kernel takes it back before a limit bites.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import asyncpg
import attrs

from cortex.demo.job import SCRIPTED_MODEL
from rehearsal.node import APP, COMMAND_S, Running
from rehearsal.setting import (
    APPLICATION,
    Setting,
    operator_of,
    setting,
    submit_many,
    until_completed,
    until_ready,
)

PRELOADED_S: Final = 20.0
"""Once it is ready a pod imports the model client."""
IDLE_S: Final = 60.0
SAMPLE_S: Final = 0.1
ENDED_WITHIN_S: Final = 900.0
JOBS: Final = 1_000
PAUSE_S: Final = 6.0
"""In each step of a job: long enough that all jobs run at once."""
AGENTS: Final = 200
TICK_JOBS: Final = 200
"""As many as a tick takes by default."""


@attrs.define
class Use:
    """What a container used in a span of time."""

    peak: int = 0
    cpu_s: float = 0.0
    span_s: float = 0.0

    def row(self, what: str) -> str:
        cores = 1000 * self.cpu_s / self.span_s if self.span_s else 0.0
        return (
            f"| {what} | {self.peak / 2**20:.0f} MiB | {self.cpu_s:.1f} s | {cores:.0f}m | "
            f"{self.span_s:.0f} s |"
        )


@contextmanager
def used(run: Running) -> Iterator[Use]:
    """Sample a container until the block ends."""
    use, is_over = Use(), threading.Event()
    began, before_s = time.monotonic(), run.cpu_s()

    def sample() -> None:
        while True:
            use.peak = max(use.peak, run.memory())
            use.cpu_s = max(use.cpu_s, run.cpu_s() - before_s)
            if is_over.wait(SAMPLE_S):
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield use
    finally:
        is_over.set()
        thread.join()
        use.span_s = time.monotonic() - began


def resources(entry: Sequence[str], modes: Sequence[str]) -> None:
    print("| what | memory, peak | CPU | on average | time |\n|---|---:|---:|---:|---:|")
    for mode in modes:
        with setting(mode, entry) as here:
            if here.overlay.schedule:
                _of_ticks(here)
            else:
                _of_pod(here)


def _of_pod(here: Setting) -> None:
    mode = here.overlay.mode
    pod = here.pod()
    for container in pod.template.first:
        print(_to_its_end(pod.run(container)).row(f"{mode}: init container {container.name}"))
    main = pod.start_main()
    with used(main) as use:
        until_ready(pod)
        time.sleep(PRELOADED_S)
    print(use.row(f"{mode}: start of a pod, with its model client"))
    with used(main) as use:
        time.sleep(IDLE_S)
    print(use.row(f"{mode}: pod, idle"), flush=True)
    token = operator_of(pod)
    with used(main) as use:
        ids = submit_many(pod, token, "rehearsal", {"pause_s": PAUSE_S}, count=JOBS)
        until_completed(pod, token, ids, within_s=ENDED_WITHIN_S)
    print(use.row(f"{mode}: pod, {JOBS:,} jobs at once, of 10 steps"), flush=True)
    pod.command("agents", "apply", f"{APP}/agents.yaml")
    payload = {"folder": f"{APP}/shop", "model": SCRIPTED_MODEL}
    with used(main) as use:
        ids = submit_many(pod, token, "demo", payload, count=AGENTS, agent="demo")
        until_completed(pod, token, ids, within_s=ENDED_WITHIN_S)
    print(use.row(f"{mode}: pod, {AGENTS} agents at once"), flush=True)


def _of_ticks(here: Setting) -> None:
    asking = here.pod()
    asking.command("migrate")
    print(_to_its_end(here.pod().start()).row("tick without work"), flush=True)
    asking.command("jobs", "submit", "rehearsal", *APPLICATION)  # makes its type known
    assert here.database is not None
    asyncio.run(_submit_many(here.database.dsn))
    print(_to_its_end(here.pod().start()).row(f"tick with {TICK_JOBS} jobs"), flush=True)


async def _submit_many(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    query = "SELECT cortex.submit_job('rehearsal', '{}') FROM generate_series(1, $1)"
    await connection.fetch(query, TICK_JOBS - 1)
    await connection.close()


def _to_its_end(run: Running) -> Use:
    with used(run) as use:
        code = run.process.wait(COMMAND_S)
    if code:
        raise SystemExit(f"exit code {code}: {run.text}")
    return use
