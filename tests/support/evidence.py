"""Evidence made by hand: what a run without faults leaves behind, to be spoilt by a test.

`healthy_run()` has everything that checkers judge: a kill, a pause, a drain, a poison job,
retries, a raced decision, an effect that a person judged. Times are seconds of the run.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from attrs import define, field

from chaos.evidence import Application, Delivery, Evidence, LedgerRequest, ModelCall, Row, Settings
from chaos.history import Event, Type
from chaos.workloads.rules import Rule

BEGAN = datetime(2031, 5, 1, 12, tzinfo=UTC)
SPACE = UUID(int=7)
HOOK = "chaos-hook"
"""The subscription to everything."""
PEOPLE = "chaos-people"
"""The subscription to requests for approval."""
CANARY = "sk-ant-canary-0001"
SETTINGS = Settings(
    heartbeat_s=0.3,
    zombie_s=2.5,
    sweep_s=0.5,
    peer_check_s=0.5,
    drain_s=4.0,
    close_s=3.0,
    poll_s=0.3,
    deaths_max=3,
    code_wait_s=5.0,
    settle_s=0.5,
)


def at(second: float) -> datetime:
    """An instant of the record."""
    return BEGAN + timedelta(seconds=second)


def uuid(name: str) -> UUID:
    """The id of something with a name."""
    return uuid5(SPACE, name)


@define(eq=False)
class Run:
    """Rows and events, to be added to and to be changed."""

    events: list[Event] = field(factory=list)
    jobs: dict[str, Row] = field(factory=dict)
    """By their keys."""
    transitions: list[Row] = field(factory=list)
    attempts: list[Row] = field(factory=list)
    steps: list[Row] = field(factory=list)
    effects: dict[str, Row] = field(factory=dict)
    """By `<job's key>/<step's key>`."""
    approvals: dict[str, Row] = field(factory=dict)
    votes: list[Row] = field(factory=list)
    facts: list[Row] = field(factory=list)
    pods: dict[str, Row] = field(factory=dict)
    tasks: list[Row] = field(factory=list)
    dead_letters: list[Row] = field(factory=list)
    applications: list[Application] = field(factory=list)
    requests: list[LedgerRequest] = field(factory=list)
    model_calls: list[ModelCall] = field(factory=list)
    claims: list[Row] = field(factory=list)
    moves: list[Row] = field(factory=list)
    beats: list[Row] = field(factory=list)
    renewals: list[Row] = field(factory=list)
    strangers: list[Row] = field(factory=list)
    setbacks: list[Row] = field(factory=list)
    wrong_deaths: list[Row] = field(factory=list)
    schedules: list[Row] = field(factory=list)
    instants: list[Row] = field(factory=list)
    subscriptions: list[Row] = field(factory=list)
    messages: list[Row] = field(factory=list)
    signals: list[Row] = field(factory=list)
    deliveries: list[Delivery] = field(factory=list)
    archived: set[str] = field(factory=set)
    reopened: list[Row] = field(factory=list)
    logs: dict[str, str] = field(factory=dict)
    log_lines: list[Row] = field(factory=list)
    pauses: list[Row] = field(factory=list)
    births: list[Row] = field(factory=list)

    def evidence(self) -> Evidence:
        """All of it, in the order of its times."""
        return Evidence(
            settings=SETTINGS,
            events=tuple(sorted(self.events, key=lambda event: event.at_s)),
            jobs=tuple(self.jobs.values()),
            transitions=tuple(sorted(self.transitions, key=lambda row: row["at"])),
            attempts=tuple(sorted(self.attempts, key=lambda row: (row["job_id"], row["attempt"]))),
            steps=tuple(sorted(self.steps, key=lambda row: (row["job_id"], row["seq"]))),
            effects=tuple(self.effects.values()),
            approvals=tuple(self.approvals.values()),
            votes=tuple(self.votes),
            facts=tuple(self.facts),
            pods=tuple(self.pods.values()),
            tasks=tuple(self.tasks),
            dead_letters=tuple(self.dead_letters),
            applications=tuple(self.applications),
            model_calls=tuple(self.model_calls),
            requests=tuple(self.requests),
            claims=tuple(sorted(self.claims, key=lambda row: row["at"])),
            moves=tuple(sorted(self.moves, key=lambda row: row["at"])),
            beats=tuple(sorted(self.beats, key=lambda row: row["at"])),
            renewals=tuple(self.renewals),
            strangers=tuple(self.strangers),
            setbacks=tuple(self.setbacks),
            wrong_deaths=tuple(self.wrong_deaths),
            schedules=tuple(self.schedules),
            instants=tuple(self.instants),
            subscriptions=tuple(self.subscriptions),
            messages=tuple(self.messages),
            signals=tuple(self.signals),
            deliveries=tuple(self.deliveries),
            archived=frozenset(self.archived),
            reopened=tuple(self.reopened),
            canaries=(CANARY,),
            logs=self.logs,
            log_lines=tuple(self.log_lines),
            pauses=tuple(self.pauses),
            births=tuple(self.births),
        )

    def message(self, number: int, *arrivals_s: float, **fields: Any) -> None:
        """Add a message that a publisher published, and its deliveries."""
        row: Row = {
            "seq": number,
            "id": UUID(int=number),
            "topic": "chaos.order",
            "key": "publisher-1",
            "payload": {"number": number},
            "subscription": HOOK,
            "status": "SENT",
            "attempts": 1,
            "last_error": None,
        } | fields
        self.messages.append(row)
        self.deliveries += [
            Delivery(
                subscription=row["subscription"],
                message=str(row["id"]),
                topic=row["topic"],
                payload=row["payload"],
                at_s=at_s,
                is_accepted=True,
            )
            for at_s in arrivals_s
        ]

    def asked(self, number: int, approval: UUID, word: str, second: float, **more: str) -> None:
        """Add a message about a request, such as `requested`, and its delivery."""
        about = {"approval": str(approval), **more}
        named = {"topic": f"approval.{word}", "key": str(approval), "subscription": PEOPLE}
        self.message(number, second, payload=about, **named)

    def signal(self, key: str, name: str, number: int, second: float) -> None:
        """Send a signal to the key of a job."""
        labels = {"key": key, "name": name, "number": number}
        signal = uuid(f"{key}/{name}/{number}")
        self.tell(second, "sender-1", "signal", "invoke", **labels)
        self.tell(second + 0.01, "sender-1", "signal", "ok", **labels, signal=str(signal))
        self.signals.append({"id": signal})

    def receive(self, key: str, name: str, number: int, second: float) -> None:
        """Commit the step that receives it."""
        self.step(key, name if number == 0 else f"{name}#{number + 1}", second)
        signal = str(uuid(f"{key}/{name}/{number}"))
        output = {"signal": signal, "sent_at": at(second).isoformat(), "value": number}
        self.steps[-1] |= {"kind": "step", "output": output}

    def emit(self, key: str, name: str, number: int, second: float) -> None:
        """Commit the step that emits a chunk."""
        self.step(key, name if number == 0 else f"{name}#{number + 1}", second)
        self.steps[-1] |= {"kind": "emit", "output": number}

    # --- the history

    def tell(
        self, second: float, process: str, kind: str, type_: Type = "info", **value: Any
    ) -> None:
        """Add one event."""
        self.events.append(Event(at_s=second, process=process, kind=kind, type=type_, value=value))

    def phase(self, second: float, name: str) -> None:
        self.tell(second, "run", "phase", name=name)

    def sample(self, second: float, **seen: Any) -> None:
        """Add one look of the probe; by default at a healthy database."""
        calm = {"up": True, "now": at(second).timestamp(), "started_s": second + 100}
        idle = {"sessions": 14, "idle_in_transaction": 0, "slow": [], "silent": []}
        queue = {"ready": 0, "locked": 2, "slots": 36, "snapshot_s": 0.01, "deadlocks": 0}
        machine = {"dead_rows": {}, "size_bytes": 2_000_000, "oldest_due_s": 0.0, "runnable": 1.5}
        self.tell(second, "probe", "activity", **{**calm, **idle, **queue, **machine, **seen})

    def fault(self, number: int, begins: float, ends: float, **message: Any) -> None:
        """Add one fault; `message`: nemesis, and pod or pods."""
        nemesis = message.pop("nemesis")
        named = {"number": number, "nemesis": nemesis}
        self.tell(begins, "nemesis", "fault", "invoke", **named, detail={})
        self.tell(ends, "nemesis", "fault", **named, windows=[], **message)

    def pod(
        self, title: str, begins: float, ends: float, *, code: int | None, **signals: float
    ) -> None:
        """Add one pod, such as `p1.2`, with its heartbeats; `signals` by their names."""
        place, _, life = title.partition(".")
        named: Row = {"life": int(life), "pid": len(self.pods) + 100, "record": f"vm:{title}"}
        self.tell(begins, place, "start", life=int(life), pid=named["pid"])
        self.tell(begins + 0.2, place, "ready", took_s=0.2, **named)
        for name, second in signals.items():
            self.tell(second, place, "signal", life=int(life), signal=name)
        if code is not None:
            self.tell(ends, place, "exit", **named, code=code, signals=list(signals))
        self.pods[title] = {
            "id": uuid(title),
            "name": f"vm:{title}",
            "slots": 12,
            "code_id": 1,
            "started_at": at(begins),
        }
        silent = (signals.get("SIGSTOP", ends), signals.get("SIGCONT", ends))
        self.beat(title, begins + 0.2, min(ends, signals.get("SIGKILL", ends)), silent=silent)

    def beat(self, title: str, begins: float, ends: float, *, silent: tuple[float, float]) -> None:
        """Add the heartbeats of a pod."""
        for n in range(int((ends - begins) / SETTINGS.heartbeat_s) + 1):
            second = begins + n * SETTINGS.heartbeat_s
            if not silent[0] < second < silent[1]:
                row = {"at": at(second), "pod_id": uuid(title), "state": "READY", "lag_s": 0.01}
                self.beats.append({**row, "statement": len(self.beats)})

    # --- jobs

    def submit(self, key: str, ops: str, second: float) -> None:
        """Submit a program: its operations by their names, with blanks between them."""
        payload = {"key": key, "operations": [{"op": op, "takes_ms": 50} for op in ops.split()]}
        nothing = dict.fromkeys(
            (
                "finished_at",
                "error_code",
                "error_message",
                "error_class",
                "waiting_on",
                "queue_name",
                "origin_id",
                "lineage_id",
                "cancelled_by",
            )
        )
        self.jobs[key] = {
            **nothing,
            "id": uuid(key),
            "type": "chaos_program",
            "tenant": "default",
            "payload": payload,
            "status": "PENDING",
            "attempt": 0,
            "retry_count": 0,
            "max_retries": 20,
            "worker_attempts": 6,
            "checkpoint": {},
            "created_at": at(second),
        }
        self.tell(second - 0.01, "client-1", "submit", "invoke", key=key)
        self.tell(second + 0.01, "client-1", "submit", "ok", key=key, job=str(uuid(key)))
        self._moved(key, "PENDING", second, previous=None)

    def ruled(
        self, key: str, rule: Rule, *, born: float, begun: float, ended: float, customer: int = 1
    ) -> None:
        """Run a job of a type with a rule about submits."""
        self.submit(key, "", born)
        self.jobs[key] |= {"type": rule.job_type, "payload": {"customer": customer, "number": 1}}
        self.births.append({"job_id": uuid(key), "at": at(born)})
        asked = {"number": len(self.births), "type": rule.job_type, "customer": customer}
        self.tell(born - 0.01, "customer-1", "ruled", "invoke", **asked, way="store")
        self.tell(born + 0.01, "customer-1", "ruled", "ok", **asked, jobs=[str(uuid(key))])
        self.claim(key, "p3.1", begun)
        self.move(key, "COMPLETED", ended)

    def pause(self, kind: str, name: str, begins: float, ends: float | None) -> None:
        """Pause jobs, and resume them."""
        target = {"target": "all" if kind == "all" else f"{kind}:{name or 'default'}"}
        self.pauses.append({"kind": kind, "name": name, "at": at(begins), "is_over": False})
        self.tell(begins - 0.1, "person", "pause", "invoke", **target)
        self.tell(begins + 0.1, "person", "pause", "ok", **target)
        if ends is not None:
            self.pauses.append({"kind": kind, "name": name, "at": at(ends), "is_over": True})
            self.tell(ends + 0.1, "person", "resume", "ok", **target)

    def claim(self, key: str, title: str, second: float) -> None:
        """Begin the next attempt."""
        job = self.jobs[key]
        freed = [row["ended_at"] for row in self.attempts if row["job_id"] == job["id"]]
        row = {
            "at": at(second),
            "job_id": job["id"],
            "previous": job["attempt"],
            "pod_id": uuid(title),
        }
        due = {
            "run_at": max([job["created_at"], *freed]),
            "statement": 10_000 + len(self.claims),
            "began": at(second),
            "spent": None,
        }
        job["attempt"] += 1
        self.claims.append({**row, **due, "attempt": job["attempt"]})
        if job["status"] != "RUNNING":
            self.move(key, "RUNNING", second)

    def step(self, key: str, name: str, second: float) -> None:
        """Commit one step by the attempt that runs."""
        job = self.jobs[key]
        seq = job["checkpoint"].get("seq", 0) + 1
        kind = "model" if name.endswith((":model", ":retry")) else "tool"
        answer = {"stop_reason": "end_turn", "content": [{"type": "text", "text": "all is well"}]}
        self.steps.append(
            {
                "job_id": job["id"],
                "seq": seq,
                "attempt": job["attempt"],
                "kind": kind,
                "key": name,
                "finished_at": at(second),
                "usage": {"input_tokens": 3},
                "output": answer,
            }
        )
        job["checkpoint"] = {"seq": seq}

    def model(self, key: str, name: str, second: float, *, outcome: str = "answered") -> None:
        """Call the model, for a tenth of a second."""
        conversation = f"{key}/{name}"
        number = 1 + sum(call.conversation == conversation for call in self.model_calls)
        call = ModelCall(
            conversation=conversation,
            number=number,
            at_s=second,
            outcome=outcome,
            ended_s=second + 0.1,
        )
        self.model_calls.append(call)

    def intend(self, key: str, name: str, second: float, **columns: Any) -> None:
        """Write an intent."""
        self.effects[f"{key}/{name}"] = {
            "id": uuid(f"{key}/{name}"),
            "job_id": uuid(key),
            "lineage_id": uuid(key),
            "key": name,
            "attempt": self.jobs[key]["attempt"],
            "tool": "pay",
            "status": "PENDING",
            "why": None,
            "arguments": {"account": account_of(key, name)},
            "digest": b"d",
            "approval_id": None,
            "created_at": at(second),
            "called_at": at(second),
            "resolution": None,
            "calls_count": 1,
            **columns,
        }

    def apply(self, key: str, name: str, second: float) -> None:
        """Apply it, outside, by the attempt that runs."""
        call = Application(
            account=account_of(key, name),
            key=str(uuid(f"{key}/{name}")),
            attempt=self.jobs[key]["attempt"],
            at_s=second,
            result=len(self.applications) + 1,
        )
        self.applications.append(call)
        self.ask(key, name)

    def ask(self, key: str, name: str) -> None:
        """Call the other side by the attempt that runs, or ask it what became of the call."""
        attempt = self.jobs[key]["attempt"]
        self.requests.append(LedgerRequest(key=str(uuid(f"{key}/{name}")), attempt=attempt))

    def effect(self, key: str, name: str, second: float) -> None:
        """An effect from its intent to its step, in a tenth of a second."""
        self.intend(key, name, second)
        self.apply(key, name, second + 0.05)
        self.settle(key, name, second + 0.1)

    def settle(self, key: str, name: str, second: float) -> None:
        """Record that it was applied."""
        effect = self.effects[f"{key}/{name}"]
        effect["status"] = "COMPLETED"
        self.step(key, name, second)
        results = [a.result for a in self.applications if a.key == str(effect["id"])]
        self.steps[-1]["output"] = results[-1]

    def end_attempt(self, key: str, outcome: str, second: float) -> None:
        """End the attempt that runs, but not the job."""
        job = self.jobs[key]
        pod_id = next(c["pod_id"] for c in reversed(self.claims) if c["job_id"] == job["id"])
        row = {"job_id": job["id"], "attempt": job["attempt"], "outcome": outcome}
        self.attempts.append({**row, "pod_id": pod_id, "ended_at": at(second)})

    def retry(self, key: str, second: float, *, pause_s: float, outcome: str = "retry") -> None:
        """End the attempt, to be tried again after a pause."""
        self.end_attempt(key, outcome, second)
        self.jobs[key]["retry_count"] += 1
        due = at(second + pause_s).isoformat()
        count = self.jobs[key]["retry_count"]
        message = {"retry_count": count, "next_retry_at": due, "waiting_on": None}
        self.move(key, "RETRY", second, metadata=message)

    def move(self, key: str, status: str, second: float, *, metadata: Row | None = None) -> None:
        """Change a job's state."""
        job = self.jobs[key]
        previous, job["status"] = job["status"], status
        if status in ("COMPLETED", "FAILED", "CANCELLED"):
            job["finished_at"] = at(second)
        if status == "FAILED":
            self.dead_letters.append({"job_id": job["id"]})
        self._moved(key, status, second, previous=previous, metadata=metadata)

    def fact(self, subtype: str, source: str, second: float, **data: Any) -> None:
        """Add one fact."""
        row = {"type": "lifecycle", "job_id": None, "attempt": None, "at": at(second)}
        self.facts.append({**row, "subtype": subtype, "source": source, "data": data})

    def _moved(
        self,
        key: str,
        status: str,
        second: float,
        *,
        previous: str | None,
        metadata: Row | None = None,
    ) -> None:
        job = self.jobs[key]
        row = {"job_id": job["id"], "previous": previous, "new": status, "attempt": job["attempt"]}
        self.transitions.append({**row, "at": at(second), "metadata": metadata or {}})
        self.moves.append({**row, "at": at(second)})


def account_of(key: str, name: str) -> str:
    """The account of an operation's step."""
    place, _, op = name.partition(":")
    return f"{op}:{key}:{place}"
