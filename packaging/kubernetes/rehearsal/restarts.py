"""Rolling restarts under load, as a Deployment performs them: no request fails, no job is lost.

For each restart a new pod starts; once it is ready, an old one leaves: the proxy learns that within
two seconds, `preStop` passes, then comes SIGTERM, and SIGKILL at the end of the grace period.
"""

import itertools
import json
import random
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import trio

from cortex.config import Settings
from cortex.domain.job import JobStatus
from rehearsal.node import Pod
from rehearsal.setting import Setting, setting

LEARNS_WITHIN_S: Final = 2.0
SETTLED_WITHIN_S: Final = 900.0
REQUEST_S: Final = 30.0
CLIENTS: Final = 8
PAUSE_S: Final = 0.05
"""Between an answer and the next request of a client."""
TYPE: Final = "rehearsal"


@attrs.define(eq=False)
class Member:
    """A pod behind the proxy."""

    pod: Pod
    is_ready: bool = False
    """As the readiness probe has it."""
    is_listed: bool = True

    async def probe(self) -> None:
        """Be the kubelet: probe as the manifest says."""
        probe = self.pod.template.main.probes["readiness"]
        failures = 0
        while self.pod.main is not None and not self.pod.main.has_ended:
            try:
                status, _ = await request(self.pod.port, "GET", probe.path, within_s=probe.within_s)
            except (OSError, ValueError, trio.TooSlowError):
                status = 0
            failures = 0 if status == 200 else failures + 1
            if failures in {0, probe.failures}:
                self.is_ready = not failures
            await trio.sleep(probe.every_s)


@attrs.define
class Rollout:
    here: Setting
    nursery: trio.Nursery
    token: str
    members: list[Member] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)
    jobs: list[str] = attrs.field(factory=list)
    request_count: int = 0
    _turns: "itertools.count[int]" = attrs.field(factory=itertools.count)

    async def join(self) -> None:
        """Start a pod and wait until it is ready."""
        pod = self.here.pod()
        for container in pod.template.first:
            done = pod.run(container)
            if await _ended(done.process):
                raise SystemExit(f"init container {container.name} failed: {done.text}")
        main = pod.start_main()
        member = Member(pod)
        self.nursery.start_soon(member.probe)
        with trio.fail_after(pod.template.main.start_s):
            while not member.is_ready:
                if main.has_ended:
                    raise SystemExit(f"a pod ended at its start: {main.text}")
                await trio.sleep(0.1)
        self.members.append(member)

    async def leave(self, member: Member) -> float:
        """Delete a pod as Kubernetes does; return how long it took from SIGTERM, in seconds."""
        template, main = member.pod.template, member.pod.main
        assert main is not None
        learned_s = random.uniform(0, LEARNS_WITHIN_S)
        await trio.sleep(learned_s)
        member.is_listed = False
        await trio.sleep(template.main.pre_stop_s - learned_s)
        main.signal(signal.SIGTERM)
        began = time.monotonic()
        code: int | None = None
        with trio.move_on_after(template.grace_s - template.main.pre_stop_s):
            code = await _ended(main.process)
        if code is None:
            main.kill()
            raise SystemExit(f"a pod was killed {template.grace_s:g} s after its deletion")
        if code:
            raise SystemExit(f"a pod ended with exit code {code}: {main.text[-2000:]}")
        self.members.remove(member)
        return time.monotonic() - began

    async def forward(self, stream: trio.SocketStream) -> None:
        """Be the proxy: send one request to a pod that is ready and listed."""
        async with stream:
            with suppress(trio.BrokenResourceError):
                message = await _read_message(stream)
                pods = [each.pod for each in self.members if each.is_ready and each.is_listed]
                if not pods:
                    answer = b"HTTP/1.1 503 no pod\r\nContent-Length: 0\r\n\r\n"
                else:
                    answer = await self._through(pods[next(self._turns) % len(pods)], message)
                await stream.send_all(answer)

    async def _through(self, pod: Pod, message: bytes) -> bytes:
        try:
            return await _exchange(pod.port, message)
        except (OSError, ValueError, trio.BrokenResourceError) as error:
            text = f"{pod.name}: {type(error).__name__}: {error}".encode()
            return b"HTTP/1.1 502 bad gateway\r\n\r\n" + text

    async def client(self, port: int, stop: trio.Event) -> None:
        """Send one request after the other, so that a slow machine gets fewer of them."""
        while not stop.is_set():
            await self._request(port)
            await trio.sleep(PAUSE_S)

    async def _request(self, port: int) -> None:
        """Submit a job, or read one."""
        self.request_count += 1
        try:
            if self.jobs and random.random() < 0.5:
                await self.ask(port, "GET", f"/v1/jobs/{random.choice(self.jobs)}")
            else:
                body = json.dumps({"type": TYPE, "payload": {}}).encode()
                made = await self.ask(port, "POST", "/v1/jobs", body)
                self.jobs.append(made["id"])
        except (OSError, ValueError, trio.TooSlowError, trio.BrokenResourceError) as error:
            self.failures.append(f"{type(error).__name__}: {error}"[:300])

    async def ask(self, port: int, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": secrets.token_hex(8)}
        status, answer = await request(port, method, path, headers=headers, body=body)
        if status not in {200, 201, 202}:
            raise ValueError(f"{status} {answer[:200]!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def settled(self, port: int) -> Counter[JobStatus]:
        """Wait until all jobs have ended; return how many ended how."""
        ends: Counter[JobStatus] = Counter()
        left = iter(self.jobs)

        async def look() -> None:
            for job_id in left:
                ends[await self._end_of(port, job_id)] += 1

        with trio.fail_after(SETTLED_WITHIN_S):
            async with trio.open_nursery() as nursery:
                for _ in range(CLIENTS):
                    nursery.start_soon(look)
        return ends

    async def _end_of(self, port: int, job_id: str) -> JobStatus:
        while True:
            job = (await self.ask(port, "GET", f"/v1/jobs/{job_id}"))["job"]
            if (status := JobStatus(job["status"])).is_terminal:
                return status
            await trio.sleep(PAUSE_S)


async def _ended(process: "subprocess.Popen[bytes]") -> int:
    return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


async def _exchange(port: int, message: bytes) -> bytes:
    """Return a pod's answer. Raises `OSError`, and `ValueError` for a connection without one."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(message)
        answer = b"".join([piece async for piece in stream])
    if not answer:
        raise ValueError("the pod closed the connection")
    return answer


async def _read_message(stream: trio.SocketStream) -> bytes:
    message = b""
    size: int | None = None
    while size is None or len(message) < size:
        piece = await stream.receive_some()
        if not piece:
            break
        message += piece
        head, separator, _ = message.partition(b"\r\n\r\n")
        if separator and size is None:
            lengths = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ]
            size = len(head) + len(separator) + sum(lengths)
    return message


async def request(
    port: int,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    within_s: float = REQUEST_S,
) -> tuple[int, bytes]:
    """Return status and body. Raises `ValueError` for an answer that is cut off."""
    fields = {
        "Host": "localhost",
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with trio.fail_after(within_s):
        answer = await _exchange(port, f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    top, separator, rest = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("the answer is cut off")
    return int(top.split(b" ", 2)[1]), rest


def restarts(entry: Sequence[str], count: int) -> None:
    with setting("several", entry) as here:
        trio.run(_rehearse, here, count)


async def _rehearse(here: Setting, count: int) -> None:
    token = f"cortex_{secrets.token_hex(32)}"
    asking = here.pod()
    asking.command("migrate")
    words = ["tokens", "create", "--name", "rehearsal", "--role", "operator"]
    asking.command(*words, "--value", "env:LOAD", environment={"LOAD": token})
    slowest_s = 0.0
    async with trio.open_nursery() as nursery:
        rollout = Rollout(here, nursery, token)
        serving = partial(trio.serve_tcp, host="127.0.0.1")
        (listener,) = await nursery.start(serving, rollout.forward, 0)
        port = listener.socket.getsockname()[1]
        for _ in range(here.overlay.replicas):
            await rollout.join()
        async with trio.open_nursery() as loading:
            stop = trio.Event()
            for _ in range(CLIENTS):
                loading.start_soon(rollout.client, port, stop)
            for number in range(1, count + 1):
                await rollout.join()
                took_s = await rollout.leave(rollout.members[0])
                slowest_s = max(slowest_s, took_s)
                print(
                    f"restart {number}: ended {took_s:.1f} s after SIGTERM; "
                    f"{rollout.request_count:,} requests, {len(rollout.failures)} failed",
                    flush=True,
                )
            stop.set()
        ends = await rollout.settled(port)
        nursery.cancel_scope.cancel()
    for failure, times in Counter(rollout.failures).most_common(5):
        print(f"{times} times: {failure}", flush=True)
    settings = Settings()
    lost = len(rollout.jobs) - ends[JobStatus.COMPLETED]
    print(
        f"{count} restarts of {here.overlay.replicas} pods: {rollout.request_count:,} requests, "
        f"{len(rollout.failures)} failed; {len(rollout.jobs):,} jobs, "
        f"{lost} lost; slowest end {slowest_s:.1f} s after SIGTERM, "
        f"of {settings.closed_s - settings.pre_stop_s:g} s"
    )
    if rollout.failures or lost:
        raise SystemExit(1)
