"""A whole stage of chaos for tests: a server, a proxy, two pods, a model, a ledger."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from attrs import frozen

from chaos.cluster import disk
from chaos.cluster.pods import Pod
from chaos.cluster.scale import SCALED
from chaos.cluster.stage import Stage, StagePlan
from chaos.history import History
from chaos.nemeses.model import Model
from chaos.nemeses.nemesis import Fault, Nemesis
from chaos.nemeses.server import sessions_in
from chaos.windows import Window
from chaos.workloads.program import Op, Operation, Program
from tests.support.eventually import WITHIN_S, eventually

T = TypeVar("T")

PODS = 2
DISK_MIB = 96
POLL_S = 0.005
BROKEN = Fault(
    number=77,
    at_s=0.0,
    nemesis=Model.name,
    for_s=3600.0,
    detail={"share": 1.0, "kind": "early_end"},
)
"""What the model does to the calls of the job of this key."""
BROKEN_KEY = "broken"


class Playing:
    """A stage in an event loop of its own, which runs between the calls of a test."""

    def __init__(self, folder: Path, *, workers: int = 1) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage")
        self._thread.start()
        rules = [{**rule, "prompt": f"{BROKEN_KEY}/"} for rule in Model().rules(BROKEN)]
        disk_mib = DISK_MIB if disk.missing() is None else None
        plan = StagePlan(
            seed=1,
            pod_count=PODS,
            scale=SCALED,
            workers=workers,
            model_rules=rules,
            disk_mib=disk_mib,
        )
        self.history = History(folder / "history.jsonl")
        self.stage = Stage(plan, folder, self.history)
        self._number = 0
        self._begun: list[Injected] = []
        self(self.stage.__aenter__())

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the stage's loop to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def close(self) -> None:
        self(self.stage.__aexit__(None, None, None))
        self.history.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- what tests do

    def submit(self, *operations: tuple[Op, int], key: str | None = None) -> str:
        """Submit a program, each operation with how many ms it takes; its key."""
        self._number += 1
        program = Program(
            key=key or f"test-{self._number}",
            operations=tuple(Operation(op=op, takes_ms=takes_ms) for op, takes_ms in operations),
        )
        self.sql(
            "SELECT cortex.submit_job('chaos_program', $1::jsonb)", json.dumps(program.payload())
        )
        return program.key

    def sql(self, query: str, *args: object) -> list[dict[str, Any]]:
        return self(self.stage.postgres.sql(query, *args))

    def begin(self, nemesis: Nemesis, *, for_s: float = 60.0, **detail: Any) -> "Injected":
        """Inject a fault, and return while it is under way."""
        self._number += 1
        fault = Fault(
            number=self._number, at_s=0.0, nemesis=nemesis.name, for_s=for_s, detail=detail
        )

        async def start() -> "asyncio.Task[dict[str, Any]]":
            return asyncio.create_task(nemesis.inject(self.stage, fault))

        injected = Injected(task=self(start()), playing=self)
        self._begun.append(injected)
        return injected

    def inject(self, nemesis: Nemesis, *, for_s: float = 0.0, **detail: Any) -> dict[str, Any]:
        """Inject a fault and wait until it is healed; what it met."""
        return self.begin(nemesis, for_s=for_s, **detail).met()

    def inject_into(self, window: Window, nemesis: Nemesis, **detail: Any) -> dict[str, Any]:
        """Inject a fault until one hits this window, which does not open in time everywhere."""

        def met() -> dict[str, Any] | None:
            answer = self.inject(nemesis, **detail)
            return answer if "missed" not in answer and window in answer["windows"] else None

        found = eventually(met, what=f"{nemesis.name} hits a window {window}")
        assert found is not None
        return found

    def until(self, probe: Callable[[], T], *, what: str) -> T:
        """Wait for something, looked at in the stage's own loop."""

        async def ask() -> T:
            return probe()

        give_up_at = time.monotonic() + WITHIN_S
        while not (answer := self(ask())):
            if time.monotonic() > give_up_at:
                raise AssertionError(f"not within {WITHIN_S:g} s: {what}")
            time.sleep(POLL_S)
        return answer

    def pod(self, place: int = 0) -> Pod:
        """The pod at a place, as soon as it is ready."""

        def ready() -> Pod | None:
            pod = self.stage.pods_kept.places[place].pod
            return pod if pod is not None and pod.ready is not None else None

        found = self.until(ready, what=f"a ready pod at place {place}")
        assert found is not None
        return found

    def end_all(self) -> None:
        """Cancel what a test that failed has left under way."""
        while self._begun:
            self._begun.pop().cancel()

    def until_whole(self) -> None:
        """Wait until nothing of any fault is left, and all pods work."""
        for place in range(PODS):
            line = self.pod(place).line
            self.until(lambda line=line: sessions_in(line.relays), what="it has sessions")  # type: ignore[misc]
        lines = [*self.stage.pod_lines, self.stage.client_line]
        assert not [line.name for line in lines if line.is_taken or line.delay_s]
        assert not [line.name for line in lines for up in (True, False) if line.holds(is_up=up)]
        assert not [pod.title for pod in self.stage.pods if pod.is_stopped]
        assert not [place.name for place in self.stage.pods_kept.places if place.is_taken]
        assert not self.stage.postgres.is_full
        self.sql("SELECT 1")


@frozen(kw_only=True)
class Injected:
    """A fault that is under way."""

    task: "asyncio.Task[dict[str, Any]]"
    playing: Playing

    def met(self) -> dict[str, Any]:
        """Wait until it is healed; what it met."""

        async def wait() -> dict[str, Any]:
            return await self.task

        return self.playing(wait())

    def end(self) -> None:
        """Cancel it while it is under way, and wait until that has healed it."""
        self.cancel()
        assert self.task.cancelled(), "it had ended by itself"

    def cancel(self) -> None:
        """Cancel it if it is under way, and wait for its end."""

        async def cancel() -> None:
            self.task.cancel()
            await asyncio.wait({self.task})

        self.playing(cancel())


def state_of(pod: Pod) -> str:
    """State in the process table: R runs, S sleeps, T is stopped."""
    stat = Path(f"/proc/{pod.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]
