"""A run in which all went well, although much was done to it: see `tests.support.evidence`."""

from chaos.evidence import Row
from chaos.workloads.program import MODEL, SIGNALS
from chaos.workloads.rules import Rule
from tests.support.evidence import HOOK, PEOPLE, Run, at, uuid

LLM = f"llm:{MODEL}"
PAUSES = (0.04, 0.09, 0.02, 0.075, 0.06)
ENDED_S = 55


def healthy_run() -> Run:
    """Everything that checkers judge happens in it once at least."""
    run = Run(logs={"p1.1": "all is well\n", "p3.1": "nothing to tell\n"})
    for second, name in ((0.5, "load"), (32, "heal"), (52, "quiet"), (ENDED_S, "end")):
        run.phase(second, name)
    for second in range(1, ENDED_S):
        run.sample(second + 0.5)
    run.pod("p1.1", 0, 10.02, code=-9, SIGKILL=10)
    run.pod("p1.2", 11, ENDED_S, code=None)
    run.pod("p2.1", 0, 31, code=0, SIGTERM=30)
    run.pod("p5.1", 26, 27.02, code=-9, SIGKILL=27)
    run.pod("p3.1", 0, ENDED_S, code=None, SIGSTOP=20, SIGCONT=24)
    run.fault(0, 9.9, 10.1, nemesis="kill", pod="p1")
    run.fault(1, 20, 24, nemesis="stop", pod="p3")
    run.fault(2, 29.9, 31, nemesis="drain", pods=["p2"])
    run.fault(3, 26.9, 27, nemesis="quiet-kill", pod="p5")
    run.fact("breaker_opened", LLM, 7)
    run.fact("breaker_half_opened", LLM, 8)
    run.fact("breaker_closed", LLM, 9)
    _plain(run)
    _killed(run)
    _judged(run)
    _decided(run)
    _retried(run)
    _swept(run)
    _drained(run)
    _quietly_killed(run)
    _poison(run)
    _cancelled(run)
    _published(run)
    _asked(run)
    _forgotten(run)
    _deployed(run)
    _agent(run)
    _logged(run)
    _signalled(run)
    _paused(run)
    _ruled(run)
    return run


def _published(run: Run) -> None:
    """A message that was sent twice, and an instant of a schedule that was skipped."""
    run.subscriptions.append({"name": HOOK, "topic": "chaos.*"})
    for type_ in ("invoke", "ok"):
        run.tell(5, "publisher-1", "publish", type_, number=1, key="publisher-1")
    run.message(1, 5.2, 6.2)
    instant = {"schedule": "s", "instant": at(0), "outcome": "SKIPPED", "job_id": None}
    run.instants.append(instant)


def _asked(run: Run) -> None:
    """People who were reminded of a request, and notified of the decision."""
    run.subscriptions.append({"name": PEOPLE, "topic": "approval.*"})
    approval = uuid("approval of decided")
    run.asked(11, approval, "requested", 3.3)
    run.asked(12, approval, "reminder", 3.6, stage="50 %")
    run.asked(13, approval, "decided", 4.1)


def _forgotten(run: Run) -> None:
    """A job from long before the run was archived and deleted."""
    run.tell(0.6, "run", "old", job=str(uuid("old")), is_needed=False)
    run.archived.add(str(uuid("old")))


def _deployed(run: Run) -> None:
    """A job that a pod of either release may run."""
    run.submit("deployed", "idempotent", 44.0)
    run.jobs["deployed"]["type"] = "deploy_step"
    run.claim("deployed", "p3.1", 44.1)
    run.step("deployed", "load", 44.2)
    run.effect("deployed", "0:idempotent", 44.3)
    run.move("deployed", "COMPLETED", 44.5)


def _agent(run: Run) -> None:
    """An agent whose second call was cut."""
    run.submit("agent", "agent", 46.0)
    run.claim("agent", "p3.1", 46.1)
    calls = [
        {"type": "tool_use", "name": "chaos_note", "input": given} for given in ({"words": "a"}, {})
    ]
    run.model("agent", "0:agent", 46.2)
    run.step("agent", "0:agent: 1 model", 46.4)
    run.steps[-1] |= {"kind": "model", "output": {"stop_reason": "max_tokens", "content": calls}}
    cut = {"tool_error": "your answer was cut", "code": "tool_input"}
    for key, output in (("1 chaos_note", "a"), ("1 chaos_note#2", cut)):
        run.step("agent", f"0:agent: {key}", 46.5)
        run.steps[-1]["output"] = output
    run.step("agent", "0:agent", 46.55)
    run.move("agent", "COMPLETED", 46.6)


def _logged(run: Run) -> None:
    """A job that logged in two attempts; the pod of the first one was killed meanwhile."""
    run.submit("logged", "log", 9.0)
    run.claim("logged", "p1.1", 9.1)
    run.log_lines += [a_line("logged", n) for n in range(7)]
    run.end_attempt("logged", "pod_died", 10.9)
    run.claim("logged", "p2.1", 11.0)
    run.log_lines += [a_line("logged", n, attempt=2) for n in range(40)]
    run.step("logged", "0:log", 11.4)
    run.step("logged", "publish chaos.step", 11.45)
    run.move("logged", "COMPLETED", 11.5)
    run.submit("flooded", "flood", 46.0)
    run.claim("flooded", "p3.1", 46.1)
    run.log_lines += [a_line("flooded", n) for n in (0, 1, 59_999)]
    run.log_lines.append({**a_line("flooded", 0), "fields": None, "dropped": 59_997})
    run.step("flooded", "0:flood", 46.4)
    run.move("flooded", "COMPLETED", 46.5)


def _signalled(run: Run) -> None:
    """A job that received all its signals, one of which was sent again."""
    run.submit("signalled", "signals", 46.0)
    run.claim("signalled", "p3.1", 46.1)
    for number in range(SIGNALS):
        run.signal("signalled", "0:signals", number, 46.1 + number / 100)
        run.receive("signalled", "0:signals", number, 46.2 + number / 100)
        run.emit("signalled", "0:signals chunk", number, 46.205 + number / 100)
    run.tell(46.3, "sender-1", "signal", "invoke", key="signalled", name="0:signals", number=0)
    run.move("signalled", "COMPLETED", 46.5)


def _paused(run: Run) -> None:
    """A type was paused: a claim that had come before took a job, and the others waited."""
    run.pause("type", "ruled_queue", 25.0, 27.0)


def _ruled(run: Run) -> None:
    """Two jobs of one key, of which the second one waited for the end of the first."""
    run.ruled("earlier", Rule.QUEUE, born=24.5, begun=25.3, ended=26.0)
    run.claims[-1]["began"] = at(24.9)
    run.ruled("later", Rule.QUEUE, born=24.6, begun=27.1, ended=27.5)


def a_line(key: str, n: int, *, attempt: int = 1) -> Row:
    """A line of a program's first operation."""
    fields = {"place": 0, "n": n}
    return {"job_id": uuid(key), "attempt": attempt, "number": n, "fields": fields, "dropped": None}


def _plain(run: Run) -> None:
    """One that is hit by nothing, twice asked for; one in the calm after the faults."""
    for key, begins in (("plain", 1.0), ("calm", 45.0)):
        run.submit(key, "model idempotent pure", begins)
        run.claim(key, "p3.1", begins + 0.1)
        run.model(key, "0:model", begins + 0.2)
        run.step(key, "0:model", begins + 0.4)
        run.effect(key, "1:idempotent", begins + 0.5)
        run.step(key, "2:pure", begins + 0.7)
        run.move(key, "COMPLETED", begins + 0.8)
    run.tell(2.0, "client-2", "submit", "invoke", key="plain")
    run.tell(2.1, "client-2", "submit", "ok", key="plain", job=str(uuid("plain")))
    run.tell(2.2, "client-2", "submit", "invoke", key="plain", body="something else")
    run.tell(2.3, "client-2", "submit", "fail", key="plain", code="key_reused")
    run.renewals.append({"job_id": uuid("plain"), "attempt": 1, "at": at(1.5)})


def _killed(run: Run) -> None:
    """Its pod is killed between effect and record; another one asks what became of it."""
    run.submit("killed", "model reconcilable", 8.0)
    run.claim("killed", "p1.1", 8.1)
    run.model("killed", "0:model", 8.3)
    run.step("killed", "0:model", 8.5)
    run.intend("killed", "1:reconcilable", 9.8)
    run.apply("killed", "1:reconcilable", 9.9)
    run.end_attempt("killed", "pod_died", 10.9)
    run.claim("killed", "p2.1", 11.0)
    run.ask("killed", "1:reconcilable")
    run.settle("killed", "1:reconcilable", 11.2)
    run.move("killed", "COMPLETED", 11.3)


def _judged(run: Run) -> None:
    """Nobody knows what became of its effect; a person says not applied: so it is done twice."""
    run.submit("judged", "unsafe", 8.0)
    run.claim("judged", "p1.1", 8.2)
    run.intend("judged", "0:unsafe", 9.9)
    run.apply("judged", "0:unsafe", 9.95)
    run.end_attempt("judged", "pod_died", 10.9)
    run.claim("judged", "p3.1", 11.0)
    run.end_attempt("judged", "suspended", 11.1)
    run.move("judged", "WAITING_FOR_APPROVAL", 11.1)
    effect = uuid("judged/0:unsafe")
    run.tell(12.0, "approver-ann", "resolve", "invoke", effect=str(effect), said="not-applied")
    run.tell(12.1, "approver-ann", "resolve", "ok", effect=str(effect), said="not-applied")
    run.fact("effect_resolved", f"effect:{effect}", 12.05, resolution="not-applied", by="ann")
    run.effects["judged/0:unsafe"]["resolution"] = "not-applied"
    run.claim("judged", "p3.1", 12.2)
    run.apply("judged", "0:unsafe", 12.3)
    run.settle("judged", "0:unsafe", 12.4)
    run.move("judged", "COMPLETED", 12.5)


def _decided(run: Run) -> None:
    """Two people decide at once: the second one gets the conflict. The approved call runs."""
    run.submit("decided", "approval idempotent", 3.0)
    run.claim("decided", "p2.1", 3.1)
    run.end_attempt("decided", "suspended", 3.2)
    run.move("decided", "WAITING_FOR_APPROVAL", 3.2)
    approval = uuid("approval of decided")
    run.approvals["decided"] = {
        "id": approval,
        "job_id": uuid("decided"),
        "key": "0:approval",
        "status": "APPROVED",
        "digest": b"d",
        "risk": "HIGH",
        "people": 1,
        "requested_with": "os:1@here",
        "decided_at": at(4.0),
        "decided_by": "ann",
        "expires_at": at(3600),
    }
    for by, is_approved in (("ann", True), ("bob", False)):
        output = {"approval": str(approval), "by": by, "is_approved": is_approved}
        run.tell(3.9, f"approver-{by}", "decide", "invoke", **output)
        how = {"outcome": "approved"} if is_approved else {"error": "already decided by ann"}
        run.tell(4.1, f"approver-{by}", "decide", "ok" if is_approved else "fail", **output, **how)
    run.fact("approval_approved", f"approval:{approval}", 4.0, by="ann")
    run.claim("decided", "p2.1", 4.3)
    run.step("decided", "0:approval", 4.4)
    run.effect("decided", "1:idempotent", 4.5)
    run.effects["decided/1:idempotent"]["approval_id"] = approval
    run.move("decided", "COMPLETED", 4.8)


def _retried(run: Run) -> None:
    """Several fail and are tried again, each after a pause of its own."""
    for number, pause_s in enumerate(PAUSES):
        key, begins = f"retried{number}", 14.0 + number / 10
        run.submit(key, "retry", begins)
        run.claim(key, "p3.1", begins + 0.1)
        run.model(key, "0:retry", begins + 0.15, outcome="refused")
        run.retry(key, begins + 0.3, pause_s=pause_s)
        run.claim(key, "p2.1", begins + 0.7)
        run.model(key, "0:retry", begins + 0.8)
        run.step(key, "0:retry", begins + 1.0)
        run.move(key, "COMPLETED", begins + 1.1)


def _swept(run: Run) -> None:
    """Its pod is stopped for longer than the threshold: another one continues."""
    run.submit("swept", "model", 19.0)
    run.claim("swept", "p3.1", 19.1)
    run.model("swept", "0:model", 19.9, outcome="disconnected")
    run.renewals.append({"job_id": uuid("swept"), "attempt": 1, "at": at(19.9)})
    run.retry("swept", 23.0, pause_s=0.05, outcome="lease_expired")
    run.claim("swept", "p2.1", 23.1)
    run.model("swept", "0:model", 23.2)
    run.step("swept", "0:model", 23.4)
    run.move("swept", "COMPLETED", 23.5)


def _drained(run: Run) -> None:
    """Its pod leaves: a call that ends in time is kept, what is left is handed back."""
    run.submit("drained", "model sleep", 29.0)
    run.claim("drained", "p2.1", 29.1)
    run.model("drained", "0:model", 30.1)
    run.step("drained", "0:model", 30.3)
    run.end_attempt("drained", "handed_back", 30.8)
    run.claim("drained", "p3.1", 30.9)
    run.step("drained", "1:sleep", 31.5)
    run.move("drained", "COMPLETED", 31.6)


def _quietly_killed(run: Run) -> None:
    """Its pod is killed while nothing else is broken."""
    run.submit("quiet", "sleep", 26.5)
    run.claim("quiet", "p5.1", 26.6)
    run.end_attempt("quiet", "pod_died", 27.6)
    run.claim("quiet", "p3.1", 27.7)
    run.step("quiet", "0:sleep", 28.0)
    run.move("quiet", "COMPLETED", 28.1)


def _poison(run: Run) -> None:
    """It kills two pods in a row, then three processes of its own, and no more."""
    run.submit("poison", "poison", 14.0)
    for life in (1, 2):
        begins = 13.0 + 3 * life
        title = f"p4.{life}"
        run.pod(title, begins - 2, begins + 0.5, code=-9)
        run.claim("poison", title, begins)
        run.end_attempt("poison", "pod_died", begins + 1.4)
    run.pod("p4.3", 20.0, 24.5, code=0, SIGTERM=24.2)
    for begins in (22.0, 22.6, 23.2):
        run.claim("poison", "p4.3", begins)
        if begins < 23.0:
            run.end_attempt("poison", "process_died", begins + 0.5)
    run.jobs["poison"].update(error_code="poison", error_message="its own process died")
    run.move("poison", "FAILED", 23.9)


def _cancelled(run: Run) -> None:
    """Somebody does not want it any more."""
    run.submit("cancelled", "sleep", 7.0)
    run.claim("cancelled", "p3.1", 7.1)
    job = str(uuid("cancelled"))
    run.tell(7.2, "ann", "cancel", "invoke", job=job, by="ann")
    run.tell(7.3, "ann", "cancel", "ok", job=job, after="RUNNING")
    run.jobs["cancelled"]["cancelled_by"] = "ann"
    run.move("cancelled", "CANCELLED", 7.4)
