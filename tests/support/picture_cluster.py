"""A cluster that stands still, for pictures: its clock is stopped, its ids are drawn from a seed.

Everything comes into being as it does in production, through the store, at instants set by hand.
"""

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.demo.job import ASKS, PROMPT, SCRIPTED, demo_agent
from cortex.demo.mail import SEND_MAIL, send_mail
from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
    Submission,
)
from cortex.domain.policy import JobPolicy
from cortex.domain.usage import Usage
from cortex.durable.gates import Decision
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import approvals, breakers, jobs, pods, specs, steps, tasks
from cortex.store.specs import SpecKind
from tests.support.records.approvals import a_request, a_verdict, suspension
from tests.support.records.rows import stop_clock
from tests.support.servers.postgres import sql

NOW: Final = datetime(2026, 11, 20, 9, 42, 44, tzinfo=UTC)
SEED: Final = 4
DIGEST: Final = "digest"
BUCKETS: Final = 60
BUCKET_S: Final = 15.0
POD_DIED_AGO_S: Final = 71.0
"""Before now; its job continues elsewhere a second later."""
_COST: Final = """
    INSERT INTO cortex.fact (at, type, subtype, source, amount, currency)
    VALUES (cortex.now(), 'cost', 'model_call', 'llm:claude-sonnet-5', $1, 'USD')
"""
_USD_PER_TOKEN: Final = Decimal("0.000004")
_MAIL: Final = {
    "subject": "Inspection of lighthouse",
    "text": "Hello,\n\nthe report is attached:\n214 files, 18,402 lines.\n\nWritten by an agent.\n",
    "to": ["team@example.org", "customers@example.org"],
    "with_file": "report.md",
}
SAYING: Final = (
    "report.md is written: 214 files, 18,402 lines of source, mostly Python; the last commit is "
    "4f1c09a “Louder horn in fog”. I have mailed it to team@exam"
)
"""What the model says just now."""


@attrs.define
class Cluster:
    """Makes it, one method for each thing that is going on."""

    call: Session
    dsn: str
    rng: Random = attrs.Factory(lambda: Random(SEED))
    pods: list[UUID] = attrs.field(factory=list)

    def make(self) -> UUID:
        """Make all of it, the oldest first; return the job that is to be looked at."""
        self.at(3_600)
        self.call(jobs.ensure_types, {DIGEST: JobPolicy(), SCRIPTED: JobPolicy()})
        for name in ("eu-1", "eu-2", "eu-3"):
            self.pod(name)
        self.traffic()
        seen = self.inspection()
        self.waiting_mail()
        self.at(40)
        self.call(breakers.force_open, "tool:search", by="li", reason="it answers with nonsense")
        self.at(2)
        for rows in ("pod WHERE state = 'READY'", "job WHERE status = 'RUNNING'"):
            table, which = rows.split(" ", 1)
            beat = f"UPDATE cortex.{table} SET heartbeat_at = cortex.now() {which}"  # noqa: S608 -- the two above
            sql(self.dsn, beat)
        self.at(0)
        return seen

    # --- what is going on

    def pod(self, name: str) -> None:
        pod = pods.Pod(
            id=self.new_id(),
            lock_key=self.rng.getrandbits(62),
            name=name,
            version="1.4.2",
            job_types=(DIGEST, SCRIPTED),
            slots=50,
        )
        self.call(pods.register, pod)
        self.pods.append(pod.id)

    def traffic(self) -> None:
        """A quarter of an hour of small jobs, a few of which fail; the last ones still run."""
        for number in range(BUCKETS):
            ago_s = (BUCKETS - number) * BUCKET_S - 10
            height = 1.2 + math.sin(number / 7) + 0.4 * self.rng.random()
            count = round(4 + 14 * height)
            self.at(ago_s)
            self.submit(DIGEST, count)
            sql(self.dsn, _COST, Decimal(count) * Decimal("0.0031"))
            self.at(ago_s - 0.08 * height - 0.05 * self.rng.random())
            claims = self.claim(number % 3, DIGEST, count)
            self.at(ago_s - 1.5)
            failing = 1 if self.rng.random() < 0.06 else 0
            running = 7 if number == BUCKETS - 1 else 0
            self.finish(number % 3, claims[running:], failing=failing)
        self.at(0.4)
        self.submit(DIGEST, 3)

    def inspection(self) -> UUID:
        """An agent whose first pod was killed, and who was let write to others."""
        agent = demo_agent(SCRIPTED, "claude-sonnet-5", asks=True)
        spec = {**agent.to_json(), "name": "inspector"}
        self.at(3_000)
        self.call(
            specs.apply, SpecKind.AGENT, new_id=self.new_id(), name="inspector", spec=spec, by="ana"
        )
        self.at(132)
        (job,) = self.submit(
            SCRIPTED, 1, agent="inspector", payload=json.dumps({"folder": "/srv/lighthouse"})
        )
        said = Saying(self, 1, self.claim(1, SCRIPTED, 1)[0])
        said.model("1 model", ago_s=125, took_s=6.4, read=783, written=38)
        said.tool("1 list_files", ago_s=124.6, took_s=0.3)
        said.tool("1 run_command", ago_s=123.1, took_s=1.8)
        said.model("2 model", ago_s=104, took_s=18.7, read=3_512, written=1_402)
        said.tool("2 read_file", ago_s=103.2, took_s=0.6)
        said.tool("2 run_command", ago_s=97, took_s=6.8)
        self.at(POD_DIED_AGO_S)
        died = Release(lease=said.claim.lease, outcome="pod_died", is_counted=False)
        assert self.call(tasks.release, pod_id=self.pods[1], operations=[died])
        self.at(POD_DIED_AGO_S - 1.1)
        said = said.goes_on(2)
        said.model("3 model", ago_s=57, took_s=12.6, read=9_214, written=1_130)
        said.tool("3 write_file", ago_s=56.6, took_s=0.2)
        said.model("4 model", ago_s=51, took_s=5.3, read=10_388, written=96)
        request = self.request("4", expires_s=3_600)
        self.suspend(2, said.claim, request)
        self.at(19)
        self.call(approvals.decide, [a_verdict(request, channel="tui")])
        self.at(18.6)
        said = said.goes_on(0)
        decision = Decision(
            approval_id=request.id,
            is_approved=True,
            by="ana",
            reason=None,
            at=(NOW - timedelta(seconds=19)).isoformat(),
            arguments=None,
            was_edited=False,
        )
        said.step(
            StepKind.APPROVAL,
            request.key,
            ago_s=18.5,
            took_s=0.01,
            output=json.dumps(decision.to_json()),
        )
        said.tool("4 send_mail", ago_s=17.2, took_s=1.1)
        return job

    def waiting_mail(self) -> None:
        """The demo's request: an agent's question that a person should read."""
        agent = demo_agent(SCRIPTED, "scripted", asks=True)
        self.at(2_900)
        spec = agent.to_json()
        self.call(
            specs.apply, SpecKind.AGENT, new_id=self.new_id(), name=agent.name, spec=spec, by="ana"
        )
        self.at(26)
        self.submit(SCRIPTED, 1, agent=agent.name, payload=json.dumps({"prompt": PROMPT}))
        said = Saying(self, 0, self.claim(0, SCRIPTED, 1)[0])
        for number in range(1, 6):
            said.model(f"{number} model", ago_s=25 - 2 * number, took_s=1.2, read=1_900, written=90)
            if number < 5:
                said.tool(f"{number} read_file", ago_s=24.9 - 2 * number, took_s=0.02)
        self.suspend(0, said.claim, self.request("5", expires_s=ASKS.expires_seconds))

    # --- how

    def at(self, ago_s: float) -> None:
        """Let it be so long before now."""
        stop_clock(self.dsn, NOW - timedelta(seconds=ago_s))

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

    def submit(self, job_type: str, count: int, **fields: Any) -> list[UUID]:
        batch = [Submission(id=self.new_id(), type=job_type, **fields) for _ in range(count)]
        self.call(jobs.submit, batch)
        self.call(tasks.promote)
        return [each.id for each in batch]

    def claim(self, pod: int, job_type: str, count: int) -> list[Claim]:
        claims = self.call(tasks.claim, pod_id=self.pods[pod], types=[job_type], limit=count)
        assert len(claims) == count
        return sorted(claims, key=lambda each: each.lease.job_id)

    def finish(self, pod: int, claims: list[Claim], *, failing: int) -> None:
        endings = [
            Finish(
                lease=claim.lease,
                status=JobStatus.FAILED if number < failing else JobStatus.COMPLETED,
                result=None if number < failing else "null",
                error="no such page" if number < failing else None,
                code="not_found" if number < failing else None,
                error_class="PERMANENT" if number < failing else None,
            )
            for number, claim in enumerate(claims)
        ]
        self.call(jobs.finish, pod_id=self.pods[pod], operations=endings)

    def request(self, number: str, *, expires_s: float) -> ApprovalRequest:
        """The mail that the demo's agent wants to send."""
        mark = send_mail.declared.mark
        return a_request(
            _MAIL,
            id=self.new_id(),
            key=f"{number} {SEND_MAIL} approval",
            tool=SEND_MAIL,
            schema=send_mail.input_schema,
            effect=mark.effect,
            reversible=mark.reversible,
            policy=ASKS.reason,
            said="The report is written. I mail it to the team, and to all customers: they may "
            "like it.",
            on_deny=ASKS.on_deny,
            on_expiry=ASKS.on_expiry,
            expires_s=expires_s,
        )

    def suspend(self, pod: int, claim: Claim, request: ApprovalRequest) -> None:
        operation = suspension(claim, request)
        assert self.call(tasks.suspend, pod_id=self.pods[pod], operations=[operation])


@attrs.define
class Saying:
    """One attempt of an agent's job, which commits its steps."""

    cluster: Cluster
    pod: int
    claim: Claim
    seq: int = 0
    read: int = 0
    written: int = 0

    def goes_on(self, pod: int) -> "Saying":
        """The next attempt, on another pod."""
        (claim,) = self.cluster.claim(pod, SCRIPTED, 1)
        return attrs.evolve(self, pod=pod, claim=claim)

    def model(self, key: str, *, ago_s: float, took_s: float, read: int, written: int) -> None:
        usage = Usage(input_tokens=read, output_tokens=written)
        self.read, self.written = self.read + read, self.written + written
        cost = _USD_PER_TOKEN * (read + 4 * written)
        message = json.dumps(usage.to_json())
        self.step(StepKind.MODEL, key, ago_s=ago_s, took_s=took_s, usage=message, cost_usd=cost)

    def tool(self, key: str, *, ago_s: float, took_s: float) -> None:
        self.step(StepKind.TOOL, key, ago_s=ago_s, took_s=took_s)

    def step(
        self,
        kind: StepKind,
        key: str,
        *,
        ago_s: float,
        took_s: float,
        output: str = "null",
        **more: Any,
    ) -> None:
        """Commit one that ended so long before now."""
        self.cluster.at(ago_s)
        self.seq += 1
        done = StepDone(
            lease=self.claim.lease,
            kind=kind,
            key=key,
            digest=b"digest",
            duration_s=took_s,
            output=output,
            ended_at=0.0,
            tally=Tally(()),
            **more,
        )
        cost = str(_USD_PER_TOKEN * (self.read + 4 * self.written))
        head = {"seq": self.seq, "key": key, "kind": kind.value}
        head |= {"input_tokens": self.read, "output_tokens": self.written, "cost_usd": cost}
        numbered = NumberedStep(done, self.seq, json.dumps(head))
        pod_id = self.cluster.pods[self.pod]
        assert self.cluster.call(steps.commit, pod_id=pod_id, operations=[numbered])
