"""What pods do while Postgres is away, and when several begin on an empty database at once."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from rehearsal.manifests import Container, Probe
from rehearsal.node import COMMAND_S, Pod, Running, until
from rehearsal.setting import (
    operator_of,
    setting,
    since,
    status_of,
    submit_many,
    until_completed,
    until_ready,
)

AWAY_PERIODS: Final = 7
"""How long Postgres is away, in periods of the liveness probe: one more than it may fail."""
KILLED_AFTER: Final = 2
"""Periods after which a container is killed and a pod begins."""
BACK_WITHIN_S: Final = 60.0
RESTARTED_WITHIN_S: Final = 240.0
FIRST_BACK_OFF_S: Final = 10.0
COMPLETED_WITHIN_S: Final = 600.0
JOBS: Final = 200
PAUSE_S: Final = 3.0
"""In each of ten steps of a job: most of them are at work when Postgres leaves."""
AT_ONCE: Final = 3
POLL_S: Final = 0.2


@attrs.define
class Kubelet:
    """Starts a pod's containers one after the other; one that fails again, each time later."""

    pod: Pod
    left: list[Container]
    """Containers that have not started or not completed yet, the main one last."""
    ends: list[str] = attrs.field(factory=list)
    """How those that failed ended."""
    _running: Running | None = None
    _back_off_s: float = FIRST_BACK_OFF_S
    _start_at: float = 0.0

    def poll(self) -> None:
        now = time.monotonic()
        if self._running is None:
            if now >= self._start_at:
                self._start()
        elif self._running.has_ended:
            code = self._running.process.returncode
            if code or len(self.left) == 1:
                lines = self._running.text.splitlines()
                error = next((each for each in lines if each.startswith("error:")), "no error")
                self.ends.append(f"{self.left[0].name} ends with {code} ({error})")
                self._start_at = now + self._back_off_s
                self._back_off_s *= 2
            else:
                self.left.pop(0)
            self._running = None

    def _start(self) -> None:
        container = self.left[0]
        is_main = container is self.pod.template.main
        self._running = self.pod.start_main() if is_main else self.pod.run(container)

    def is_ready(self) -> bool:
        self.poll()
        probe = self.pod.template.main.probes["readiness"]
        return bool(self.pod.main) and status_of(self.pod, probe.path, within_s=2) == 200


def outage(entry: Sequence[str]) -> None:
    """Stop Postgres under pods at work: no liveness probe fails, no job is lost.

    Meanwhile one pod's container is killed, and another pod begins.
    """
    with setting("several", entry) as here:
        assert here.database is not None
        pod, killed = here.start_ready(), here.start_ready()
        token = operator_of(pod)
        ids = submit_many(pod, token, "rehearsal", {"pause_s": PAUSE_S}, count=JOBS)
        began = time.monotonic()
        here.database.stop()
        template, begun = pod.template, here.pod()
        kubelets = [
            Kubelet(killed, [template.main]),
            Kubelet(begun, [*template.first, template.main]),
        ]
        unready_s = _live_through(pod, template.main.probes, began, killed, kubelets)
        away = since(began)
        here.database.start()
        readiness = template.main.probes["readiness"]
        ready_s = until(
            lambda: status_of(pod, readiness.path, within_s=2) == 200,
            "the pod is ready again",
            within_s=BACK_WITHIN_S,
        )
        others_s = until(
            lambda: sum(each.is_ready() for each in kubelets) == len(kubelets),
            "the other pods are ready",
            within_s=RESTARTED_WITHIN_S,
        )
        until_completed(pod, token, ids, within_s=COMPLETED_WITHIN_S)
        assert pod.main is not None
        if pod.main.has_ended:
            raise SystemExit(f"the pod ended: {pod.main.text}")
        print(
            f"Postgres away for {away}: {AWAY_PERIODS} liveness probes, none failed; not ready "
            f"after {unready_s:.1f} s, ready again {ready_s:.1f} s after its return; "
            f"{len(ids)} jobs at work, none lost\n"
            f"a container killed and a pod begun meanwhile: {_ends(kubelets)}; both are ready "
            f"{ready_s + others_s:.1f} s after its return",
            flush=True,
        )


def _ends(kubelets: Sequence[Kubelet]) -> str:
    counts = Counter(end for each in kubelets for end in each.ends)
    return ", ".join(f"{count} times {end}" for end, count in counts.items())


def _live_through(
    pod: Pod, probes: Mapping[str, Probe], began: float, killed: Pod, kubelets: Sequence[Kubelet]
) -> float:
    """Probe as the kubelet does; return after how many seconds the pod was not ready."""
    unready_s = 0.0
    liveness, readiness = probes["liveness"], probes["readiness"]
    for number in range(1, AWAY_PERIODS + 1):
        while time.monotonic() < began + number * liveness.every_s:
            if status_of(pod, readiness.path, within_s=readiness.within_s) != 200:
                unready_s = unready_s or time.monotonic() - began
            if number > KILLED_AFTER:
                for each in kubelets:
                    each.poll()
            time.sleep(POLL_S)
        if status_of(pod, liveness.path, within_s=liveness.within_s) != 200:
            raise SystemExit("a liveness probe failed because Postgres is away")
        if number == KILLED_AFTER:
            assert killed.main is not None
            killed.main.kill()
    if not unready_s:
        raise SystemExit("the pod stayed ready without Postgres")
    if not all(each.ends for each in kubelets):
        raise SystemExit("a container started without Postgres")
    return unready_s


def migrations(entry: Sequence[str]) -> None:
    """Run the init containers of several pods at once, on an empty database."""
    with setting("several", entry) as here:
        pods = [here.pod() for _ in range(AT_ONCE)]
        applied: list[str] = []
        for container in pods[0].template.first:
            runs = [pod.run(container) for pod in pods]
            codes = [run.process.wait(COMMAND_S) for run in runs]
            if any(codes):
                texts = "\n".join(run.text for run in runs)
                raise SystemExit(f"{container.name}: exit codes {codes}\n{texts}")
            applied += re.findall(
                r"^applied (\d+)", "".join(run.text for run in runs), re.MULTILINE
            )
        if not applied or len(set(applied)) != len(applied):
            raise SystemExit(f"migrations were applied twice: {sorted(applied)}")
        pods[0].command("migrate", "--check")
        for pod in pods:
            pod.start_main()
        for pod in pods:
            until_ready(pod)
        print(
            f"{AT_ONCE} pods at once on an empty database: {len(applied)} migrations, each applied "
            "once; all pods are ready",
            flush=True,
        )
