"""Replays the records of jobs that are not over against new code, in processes of their own.

The parent reads the database and forks; each child replays some jobs and writes a line for each. A
child can open no connection, no program and no file for writing, what it prints is dropped, and
when a job takes it too long it is killed, and the next child goes on with the next job.
"""

import contextlib
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import orjson
import trio
from trio.testing import MockClock

from cortex.domain.callbacks import Signer
from cortex.domain.clock import system_chance
from cortex.domain.errors import NotFoundError
from cortex.domain.job import EXECUTE_TOOL, RUN_FLOW, Claim, Lease, Past
from cortex.domain.known_tool import KnownTool
from cortex.domain.policy import policy_for
from cortex.domain.prices import LIST_PRICES
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.attempt import JobLimits, Services, Tools
from cortex.durable.dry_run import (
    Absent,
    DryCallbacks,
    DryJournal,
    Finding,
    Problem,
    PublishesNothing,
    dry_run,
)
from cortex.durable.journal import Recorded
from cortex.durable.registry import Registry
from cortex.postgres.session import Session
from cortex.store import specs, steps
from cortex.store.specs import SpecKind
from cortex.store.steps import BATCH_BYTES_MAX, LiveJob, LiveRecord

JOB_S: Final = 5.0
"""Real time for one job: a replay takes milliseconds."""
BATCH: Final = 200
STUCK_MAX: Final = 3
"""Jobs of a type that are tried although others of it were stuck."""
MESSAGE_CHARS_MAX: Final = 1_000
FAR: Final = datetime(9000, 1, 1, tzinfo=UTC)
ENDED: Final = "its code ended the process"
_DIGITS: Final = re.compile(r"[0-9]+")
_IDS: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")


@attrs.frozen(kw_only=True)
class Group:
    """Jobs of one type with the same problem at the same place."""

    type: str
    problem: Problem
    where: str | None
    """The step, its digits as N; None: not at a step."""
    count: int
    example: UUID
    """The oldest of them."""
    message: str
    """What is wrong with the example."""


@attrs.frozen(kw_only=True)
class Report:
    """How the jobs that are not over would go on under the new code."""

    jobs: int
    fit: int
    """Jobs without a problem."""
    unsure: int
    """Jobs among these that cannot be checked to the end of their record."""
    seconds: float
    is_capped: bool
    """There are more jobs: newer ones were not checked."""
    groups: list[Group]

    @property
    def misfits(self) -> int:
        return self.jobs - self.fit


@attrs.frozen(kw_only=True)
class NewCode:
    registry: Registry
    builtin: frozenset[str]
    """Job types of Cortex itself, which are also the names of calls that are no tools."""
    tools: Tools
    signer: Signer
    """Returns the callback URLs that are on record, if the settings have its secret."""


def preflight(call: Session, code: NewCode) -> Report:
    """Replay each job that is not over; `call` is a session that only reads."""
    began = time.monotonic()
    ids = call(steps.live)
    findings: list[tuple[LiveJob, Finding | None]] = []
    with tempfile.TemporaryDirectory(prefix="cortex-preflight-") as folder:
        children = _Children(call, code, Path(folder).resolve())
        for begin in range(0, len(ids), BATCH):
            for jobs in _portions(call(steps.live_jobs, ids[begin : begin + BATCH])):
                findings += children.replay(call(steps.records_of, jobs))
    unsure = sum(1 for _, each in findings if each and each.problem is Problem.UNSURE)
    return Report(
        jobs=len(findings),
        fit=sum(1 for _, each in findings if each is None) + unsure,
        unsure=unsure,
        seconds=time.monotonic() - began,
        is_capped=len(ids) == steps.LIVE_JOBS_MAX,
        groups=_grouped(findings),
    )


def _portions(jobs: Sequence[LiveJob]) -> Iterator[list[LiveJob]]:
    portion: list[LiveJob] = []
    for job in jobs:
        if portion and sum(each.bytes for each in portion) + job.bytes > BATCH_BYTES_MAX:
            yield portion
            portion = []
        portion.append(job)
    if portion:
        yield portion


def _grouped(findings: Sequence[tuple[LiveJob, Finding | None]]) -> list[Group]:
    groups: dict[tuple[str, Problem, str], Group] = {}
    for job, finding in findings:
        if finding is None:
            continue
        where = None if finding.where is None else _normal(finding.where)
        key = (job.type, finding.problem, where or _normal(finding.message))
        known = groups.get(key)
        groups[key] = (
            Group(
                type=job.type,
                problem=finding.problem,
                where=where,
                count=1,
                example=job.id,
                message=finding.message,
            )
            if known is None
            else attrs.evolve(known, count=known.count + 1)
        )
    return sorted(
        groups.values(), key=lambda each: (each.problem is Problem.UNSURE, each.type, -each.count)
    )


def _normal(text: str) -> str:
    return _DIGITS.sub("N", _IDS.sub("N", text))


# --- The parent: forks children, answers what they ask, kills those that take too long.


class _Children:
    def __init__(self, call: Session, code: NewCode, folder: Path) -> None:
        self._call = call
        self._code = code
        self._folder = folder
        self._stuck: dict[str, int] = {}
        self._answers: dict[str, Any] = {}

    def replay(self, records: Sequence[LiveRecord]) -> list[tuple[LiveJob, Finding | None]]:
        """Replay jobs in as many processes, one after the other, as it takes."""
        found: list[tuple[LiveJob, Finding | None]] = []
        while len(found) < len(records):
            job = records[len(found)].job
            if self._stuck.get(job.type, 0) >= STUCK_MAX:
                message = f"not tried: {STUCK_MAX} other jobs of this type were stuck"
                found.append((job, Finding(problem=Problem.STUCK, where=None, message=message)))
                continue
            more = self._of_one_child(records[len(found) :])
            job, last = more[-1]
            if last is not None and last.problem is Problem.STUCK:
                self._stuck[job.type] = self._stuck.get(job.type, 0) + 1
            found += more
        return found

    def _of_one_child(self, records: Sequence[LiveRecord]) -> list[tuple[LiveJob, Finding | None]]:
        """Return the findings of one process, at least for the first job."""
        answers_in, answers_out = os.pipe()
        lines_in, lines_out = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(answers_out)
            os.close(lines_in)
            _be_child(records, self._code, self._folder, answers_in, lines_out)
        os.close(answers_in)
        os.close(lines_out)
        found: list[tuple[LiveJob, Finding | None]] = []
        why = ENDED
        try:
            for line in _lines(lines_in, deadline_s=JOB_S):
                if line is None:
                    why = (
                        f"no step within {JOB_S:g} s: it blocks or computes between its steps,"
                        " or does not stop when it is cancelled"
                    )
                    break
                if "ask" in line:
                    os.write(answers_out, orjson.dumps(self._answer(line["ask"])) + b"\n")
                    continue
                found.append((records[len(found)].job, _finding_of(line)))
                if len(found) == len(records):
                    return found
        finally:
            _end(child)
            os.close(answers_out)
            os.close(lines_in)
        job, last = records[len(found)].job, found[-1][1] if found else None
        if why == ENDED and last is not None and last.problem is Problem.STUCK:
            return found  # the process ended because of that one
        return [*found, (job, Finding(problem=Problem.STUCK, where=None, message=why))]

    def _answer(self, ask: list[Any]) -> Any:
        """Answer a replay from the database: versions, which never change, and inputs."""
        key = repr(ask)
        if key not in self._answers:
            try:
                self._answers[key] = {"answer": self._read(ask)}
            except NotFoundError as error:
                self._answers[key] = {"missing": error.message}
        return self._answers[key]

    def _read(self, ask: list[Any]) -> Any:
        match ask:
            case ["agent", agent_id, version]:
                return self._call(specs.spec, SpecKind.AGENT, UUID(agent_id), version)
            case ["newest", name]:
                agent_id, version = self._call(specs.newest_agent, name)
                return [str(agent_id), version]
            case ["flow", name, version]:
                return self._call(specs.spec, SpecKind.FLOW, name, version)
            case ["input", job_id, key]:
                return self._call(steps.input_of, UUID(job_id), key)
            case _:
                raise AssertionError(f"a replay asks for {ask!r:.60}")


def _lines(source: int, *, deadline_s: float) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of a child; None once none comes in time."""
    buffer = b""
    while True:
        ready, _, _ = select.select([source], [], [], deadline_s)
        if not ready:
            yield None
            return
        data = os.read(source, 65_536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield orjson.loads(line)


def _end(child: int) -> None:
    """Kill a child and what it has started, and take its status."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _finding_of(line: dict[str, Any]) -> Finding | None:
    if line["problem"] is None:
        return None
    return Finding(problem=Problem(line["problem"]), where=line["where"], message=line["message"])


# --- The child: replays, and may do nothing else.

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OUTSIDE: Final = frozenset(
    {
        "socket.connect",
        "socket.sendto",
        "socket.sendmsg",
        "socket.bind",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "sqlite3.connect",
        "shutil.rmtree",
    }
)


class _Fence:
    """An audit hook that refuses calls outside, and writes outside of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.broken: str | None = None
        """What the present job tried first."""

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if not (flags or 0) & _WRITES or self._is_own(path) or path == os.devnull:
                return
            what = f"opens {path!r:.200} for writing"
        elif event in _OUTSIDE:
            if args and self._is_own(args[0]):
                return
            what = f"{event} {args[1:] if event.startswith('socket') else args!r:.200}"
        else:
            return
        self.broken = self.broken or what
        raise PermissionError(f"a preflight does nothing outside: {what}")

    def _is_own(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)


def _be_child(
    records: Sequence[LiveRecord], code: NewCode, folder: Path, answers: int, lines: int
) -> NoReturn:
    status = 1
    try:
        os.setpgid(0, 0)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        sys.dont_write_bytecode = True
        fence = _Fence(folder)
        sys.addaudithook(fence)
        clock = MockClock()
        pod = _PodOfReplays(code, folder, answers, lines)
        trio.run(partial(_replay_all, records, pod, fence, clock), clock=clock)
        status = 0
    finally:
        os._exit(status)


async def _replay_all(
    records: Sequence[LiveRecord], pod: "_PodOfReplays", fence: _Fence, clock: MockClock
) -> None:
    for record in records:
        fence.broken = None
        finding = await pod.replay(record, clock)
        if fence.broken is not None:
            finding = Finding(problem=Problem.OUTSIDE, where=None, message=fence.broken)
        pod.write(finding)


class _PodOfReplays:
    """The services that a pod gives to its jobs, as far as a replay needs them."""

    def __init__(self, code: NewCode, folder: Path, answers: int, lines: int) -> None:
        self._code = code
        self._folder = folder
        self._answers = answers
        self._lines = lines

    async def replay(self, record: LiveRecord, clock: MockClock) -> Finding | None:
        job = record.job
        if record.misfit is not None:
            return Finding(problem=Problem.STEP, where=None, message=record.misfit)
        claim = Claim(
            lease=Lease(job.id, job.attempt + 1),
            type=job.type,
            payload=job.payload,
            agent_id=job.agent_id,
            agent_version=job.agent_version,
            attempts_spent=1,
            max_attempts=1,
            is_queued=False,
            has_steps=bool(record.steps),
            cancel_requested=False,
            left_s=float(job.timeout_s),
            timeout_s=job.timeout_s,
            tenant=job.tenant,
            lineage_id=job.lineage_id,
        )

        async def recall(key: str) -> str | None:
            kept: str | None = self._ask("input", str(job.id), key)
            return kept

        def journal() -> DryJournal:
            return DryJournal(
                claim,
                Recorded(
                    steps=record.steps,
                    effects=record.effects,
                    past=Past(questions=tuple(record.questions)),
                    recall=recall,
                ),
                arguments=record.arguments,
                misfit=self._misfit,
                has_stored_calls=job.type in (RUN_FLOW, EXECUTE_TOOL),
            )

        return await dry_run(
            self._code.registry,
            claim,
            journal,
            self._services,
            clock=clock,
            is_builtin=job.type in self._code.builtin,
            give_up=self._give_up,
        )

    def _misfit(self, tool: str, arguments: Mapping[str, Any] | None) -> str | None:
        return None if tool in self._code.builtin else self._code.tools.misfit(tool, arguments)

    def _give_up(self) -> NoReturn:
        message = "its handler does not stop when it is cancelled"
        self.write(Finding(problem=Problem.STUCK, where=None, message=message))
        os._exit(0)

    def write(self, finding: Finding | None) -> None:
        line = {
            "problem": None if finding is None else finding.problem.value,
            "where": None if finding is None else finding.where,
            "message": None if finding is None else finding.message[:MESSAGE_CHARS_MAX],
        }
        self._send(line)

    def _send(self, line: dict[str, Any]) -> None:
        data = orjson.dumps(line) + b"\n"
        while data:
            data = data[os.write(self._lines, data) :]

    def _ask(self, *ask: Any) -> Any:
        self._send({"ask": ask})
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(self._answers, 65_536)
        reply = orjson.loads(data)
        if "missing" in reply:
            raise NotFoundError(reply["missing"])
        return reply["answer"]

    # The services, as `Services` names them.

    async def now(self) -> datetime:
        """Every recorded timer has passed: what comes after it is replayed, too."""
        return FAR

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("agent", str(agent_id), version)
        return found

    async def newest_agent(self, name: str) -> tuple[UUID, int]:
        agent_id, version = self._ask("newest", name)
        return UUID(agent_id), version

    async def flow(self, name: str, version: int) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("flow", name, version)
        return found

    async def known_tools(self, agent: str, server: str, identity: str) -> list[KnownTool]:  # noqa: ARG002 -- replays call no server
        return []

    async def note_tools(
        self,
        agent: str,  # noqa: ARG002
        server: str,  # noqa: ARG002
        identity: str,  # noqa: ARG002
        *,
        tools: dict[str, str],  # noqa: ARG002
        named: list[str],  # noqa: ARG002
    ) -> list[KnownTool]:
        return []

    def known_limits(self, claim: Claim) -> JobLimits:
        policy = policy_for(claim.type)
        return JobLimits(
            prices=LIST_PRICES,
            call_s=policy.call_s,
            idle_s=TIMEOUTS["llm_idle"].default_s,
            connect_s=policy.connect_s,
            step_s=TIMEOUTS["step"].default_s,
        )

    async def limits(self, claim: Claim) -> JobLimits:
        return self.known_limits(claim)

    def _services(self, journal: DryJournal) -> Services:
        def absent(name: str) -> Any:
            return Absent(name, journal)

        return Services(
            models=absent("models"),
            tools=self._code.tools,
            files=absent("files"),
            specs=self,
            policies=self,
            breakers=absent("breakers"),
            facts=absent("facts"),
            gateway=absent("gateway"),
            clock=self,
            bulk=absent("bulk"),
            upkeep=absent("upkeep"),
            channels=absent("channels"),
            signals=absent("signals"),
            callbacks=DryCallbacks(self._code.signer, journal),
            publisher=PublishesNothing(),
            children=absent("children"),
            workspaces=self._folder / "workspaces",
            rng=system_chance().rng,
        )
