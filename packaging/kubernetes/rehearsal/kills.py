"""`kill -9` of the demo's job in each overlay: it continues; finished model calls are not repeated.

The job is killed twice with all processes of its container, Postgres included where it is inside:
among its steps, when its container starts again, and while a person has not decided yet, when new
pods take the place of the old ones. All start as their manifest says: same command, environment and
volume; as a CronJob, by the next tick.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from cortex.demo.job import SCRIPTED, SCRIPTED_MODEL, agent_name
from cortex.domain.job import JobStatus
from rehearsal.node import APP, Pod, Running, until
from rehearsal.setting import APPLICATION, Setting, ask, setting, since, until_ready

PACE: Final = 4.0
"""The model answers so much slower than usual: a kill comes among the steps."""
CALLS_BEFORE: Final = 2
TICKS_MAX: Final = 20
"""Answers of the model before the first kill."""
WITHIN_S: Final = 240.0
POLL_S: Final = 1.0


def kills(entry: Sequence[str], modes: Sequence[str]) -> None:
    for mode in modes:
        with setting(mode, entry, pace=PACE) as here:
            began = time.monotonic()
            text = _by_ticks(here) if here.overlay.schedule else _by_pods(here)
            calls = _no_call_twice(here)
            print(
                f"{mode}: {text}; {calls} model calls, none repeated, one mail; {since(began)}",
                flush=True,
            )


def _by_pods(here: Setting) -> str:
    pods = [here.start_ready() for _ in range(here.overlay.replicas)]
    job_id = _submit(pods[0])
    _until_answered(here, CALLS_BEFORE)
    lost = _kill_runner(here, pods, job_id)
    left = [pod for pod in pods if pod is not lost] or pods
    if lost in left:
        _start_again(left)
    until(
        lambda: _request_of(left[0], job_id) is not None,
        "the job asks for approval",
        within_s=WITHIN_S,
        poll_s=POLL_S,
    )
    for pod in left:
        assert pod.main is not None
        pod.main.kill()
    pods = [here.start_ready() for _ in pods]
    request = _request_of(pods[0], job_id)
    assert request is not None
    pods[0].command("approvals", "approve", request, "--yes")
    until(lambda: _is_over(pods[0], job_id), "the job ends", within_s=WITHIN_S, poll_s=POLL_S)
    _check_completed(here, pods[0], job_id)
    many = f"{len(pods)} pods" if len(pods) > 1 else "one pod with its Postgres"
    return (
        f"{many}; killed -9 among the job's steps, and replaced by new pods during the approval; "
        "completed"
    )


def _kill_runner(here: Setting, pods: list[Pod], job_id: str) -> Pod:
    """Kill the pod that runs a job."""
    job = ask(pods[0], here.token, f"/v1/jobs/{job_id}")["job"]
    if job["pod"] is None:
        raise SystemExit(f"the job was {job['status']} before its pod was killed")
    name = str(job["pod"]).partition(":")[0]
    pod = next(each for each in pods if each.name == name)
    assert pod.main is not None
    pod.main.kill()
    return pod


def _start_again(pods: list[Pod]) -> None:
    """Start the main containers, as the kubelet does when they have ended."""
    for pod in pods:
        pod.start_main()
    for pod in pods:
        until_ready(pod)


def _by_ticks(here: Setting) -> str:
    asking = here.pod()
    asking.command("migrate")
    job_id = _submit(asking)
    _until_killed(here)
    count = 1
    while (request := _request_of(asking, job_id)) is None:
        count += _tick(here, count)
    asking.command("approvals", "approve", request, "--yes")
    while not _is_over(asking, job_id):
        count += _tick(here, count)
    _check_completed(here, asking, job_id)
    return f"{count} ticks, one killed -9 among the job's steps; completed"


def _until_killed(here: Setting) -> None:
    """Run ticks until one was killed while it ran the job."""
    for _ in range(TICKS_MAX):
        tick = here.pod().start()

        def is_due(tick: Running = tick) -> bool:
            return tick.has_ended or len(_answered(here)) >= CALLS_BEFORE

        until(is_due, f"the model answers {CALLS_BEFORE} calls", within_s=WITHIN_S, poll_s=0.05)
        if not tick.has_ended:
            tick.kill()
            return
        if tick.process.returncode:
            raise SystemExit(f"a tick failed: {tick.text}")
    raise SystemExit(f"none of {TICKS_MAX} ticks ran the job for {CALLS_BEFORE} calls of the model")


def _tick(here: Setting, count: int) -> int:
    if count >= TICKS_MAX:
        raise SystemExit(f"{count} ticks did not get the job on")
    done = here.pod().start()
    if done.process.wait(WITHIN_S):
        raise SystemExit(f"a tick failed: {done.text}")
    return 1


def _submit(pod: Pod) -> str:
    pod.command("agents", "apply", f"{APP}/agents.yaml")
    payload = json.dumps({"folder": f"{APP}/shop", "model": SCRIPTED_MODEL})
    agent = agent_name(SCRIPTED, asks=True)
    words = ("jobs", "submit", SCRIPTED, "--agent", agent, "--payload", payload)
    return pod.command(*words, *APPLICATION, "-o", "name").strip()


def _until_answered(here: Setting, count: int) -> None:
    def are_there() -> bool:
        return len(_answered(here)) >= count

    until(are_there, f"the model answered {count} calls", within_s=WITHIN_S, poll_s=0.05)


def _request_of(pod: Pod, job_id: str) -> str | None:
    """Return the id of the job's open approval request."""
    listed = json.loads(pod.command("approvals", "ls", "--json"))["approvals"]
    return next((str(each["id"]) for each in listed if each["job_id"] == job_id), None)


def _is_over(pod: Pod, job_id: str) -> bool:
    return JobStatus(_job(pod, job_id)["status"]).is_terminal


def _check_completed(here: Setting, pod: Pod, job_id: str) -> None:
    """Check that the job has completed, and that its mail, with its report, went out once."""
    job = _job(pod, job_id)
    if job["status"] != JobStatus.COMPLETED:
        raise SystemExit(f"the job ended {job['status']}: {job}")
    mails = [*here.node.folder.rglob("outbox/*.eml")]
    if len(mails) != 1 or "report.md" not in mails[0].read_text():
        raise SystemExit(f"{len(mails)} mails instead of one: {job['result']}")


def _job(pod: Pod, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pod.command("jobs", "show", job_id, "--json"))["job"]
    return found


def _answered(here: Setting) -> list[dict[str, Any]]:
    return [each for each in here.model.calls() if each["outcome"] == "answered"]


def _no_call_twice(here: Setting) -> int:
    """Check that each turn was answered once, except one that the kill may have cut off."""
    counts = Counter(each["turn"] for each in _answered(here))
    repeated = {turn: count for turn, count in counts.items() if count > 1}
    if len(repeated) > 1 or any(count > 2 for count in repeated.values()):
        raise SystemExit(f"model calls were repeated: {repeated}")
    return len(counts)
