"""What pods do while Postgres is away, and when several begin on an empty database at once."""

import re
import time
from collections.abc import Sequence
from typing import Final

from rehearsal.manifests import Probe
from rehearsal.node import COMMAND_S, Pod, until
from rehearsal.setting import Setting, setting, since, status_of, until_ready

AWAY_PERIODS: Final = 4
"""How long Postgres is away, in periods of the liveness probe."""
BACK_WITHIN_S: Final = 60.0
AT_ONCE: Final = 3
POLL_S: Final = 0.2


def outage(entry: Sequence[str]) -> None:
    """Stop Postgres under a pod: its liveness probe never fails, its readiness probe does."""
    with setting("several", entry) as here:
        assert here.database is not None
        pod = here.start_ready()
        probes = pod.template.main.probes
        began = time.monotonic()
        here.database.stop()
        unready_s = _live_through(pod, probes["liveness"], probes["readiness"], began)
        away = since(began)
        starts = _starts_meanwhile(here)
        here.database.start()
        ready_s = until(
            lambda: status_of(pod, probes["readiness"].path, within_s=2) == 200,
            "the pod is ready again",
            within_s=BACK_WITHIN_S,
        )
        assert pod.main is not None
        if pod.main.has_ended:
            raise SystemExit(f"the pod ended: {pod.main.text}")
        print(
            f"Postgres away for {away}: {AWAY_PERIODS} liveness probes, none failed; not ready "
            f"after {unready_s:.1f} s, ready again {ready_s:.1f} s after its return\n{starts}",
            flush=True,
        )


def _live_through(pod: Pod, liveness: Probe, readiness: Probe, began: float) -> float:
    """Probe as the kubelet does; return after how many seconds the pod was not ready."""
    unready_s = 0.0
    for number in range(1, AWAY_PERIODS + 1):
        while time.monotonic() < began + number * liveness.every_s:
            if status_of(pod, readiness.path, within_s=readiness.within_s) != 200:
                unready_s = unready_s or time.monotonic() - began
            time.sleep(POLL_S)
        if status_of(pod, liveness.path, within_s=liveness.within_s) != 200:
            raise SystemExit("a liveness probe failed because Postgres is away")
    if not unready_s:
        raise SystemExit("the pod stayed ready without Postgres")
    return unready_s


def _starts_meanwhile(here: Setting) -> str:
    """Start a pod without Postgres; return what its containers do."""
    pod = here.pod()
    first = pod.run(pod.template.first[0])
    code = first.process.wait(COMMAND_S)
    if not code:
        raise SystemExit("the migration did not fail without Postgres")
    last = first.text.strip().splitlines()[0]
    return f"a pod that starts meanwhile waits: its init container ends with {code} ({last})"


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
