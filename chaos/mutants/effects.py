"""Mutants of the world outside: effects, decisions, answers of the model."""

from typing import Final

from chaos.mutants.mutant import Mutant, Patch

MUTANTS: Final = (
    Mutant(
        name="no-intent",
        what="effects are called before their intent is recorded",
        scene="calm",
        invariant="I7",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "leave, is_first = "
                "await _leave(call, lease, ledger, new_id, is_sure=False), True\n",
                "names = ('result', 'why', 'quota', 'used', 'limit', 'amount', 'wait_s')\n"
                "    told = dict.fromkeys(names) | {'verdict': 'go', 'attempt': lease.attempt}\n"
                "    leave, is_first = IntentReply(id=new_id(), **told), True\n",
            ),
        ),
    ),
    Mutant(
        name="no-reconcile",
        what="a call with an unknown outcome counts as not applied, without a lookup",
        scene="killed",
        invariant="I3",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "    verdict = await call.reconcile(invocation)\n",
                "    verdict: Verdict = NotApplied()\n",
            ),
        ),
    ),
    Mutant(
        name="unknown-is-no",
        what="an effect that cannot be looked up counts as not applied",
        scene="killed",
        invariant="I3",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "        if isinstance(verdict, Unknown) and not call.is_idempotent:\n"
                "            raise _doubt(call, leave.id, verdict.why)\n"
                "        is_first =",
                "        is_first =",
            ),
        ),
    ),
    Mutant(
        name="new-key-each-attempt",
        what="each attempt calls with its own idempotency key",
        scene="killed",
        invariant="I3",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "        id=leave.id,\n        job_id=",
                "        id=UUID(int=leave.id.int ^ (lease.attempt - 1)),\n        job_id=",
            ),
        ),
    ),
    Mutant(
        name="hasty-replay",
        what="a new step begins while recorded steps were not replayed",
        scene="released",
        invariant="I3",
        patches=(
            Patch(
                "cortex/durable/replay.py",
                "        return key in self._begun or not any(self._due())\n",
                "        return True\n",
            ),
        ),
    ),
    Mutant(
        name="foreign-result",
        what="what a reconciled effect returned is not what the other side answered",
        scene="killed",
        invariant="I3",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "            return Done(leave.id, verdict.result)\n",
                "            return Done(leave.id, 0)\n",
            ),
        ),
    ),
    Mutant(
        name="first-attempt",
        what="the other side gets attempt 1 from every owner",
        scene="killed",
        invariant="I4",
        patches=(
            Patch(
                "cortex/durable/effects.py",
                "        attempt=lease.attempt,\n        tool=call.tool,\n",
                "        attempt=1,\n        tool=call.tool,\n",
            ),
        ),
    ),
    Mutant(
        name="late-decision",
        what="an expired request can be decided until a sweep closes it",
        scene="calm",
        invariant="I18",
        patches=(
            Patch(
                "sql/migrations/0027_people.sql",
                "        WHEN held.expires_at <= cortex.now() THEN 'expired'\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="approval-race",
        what="a decision is read, then written: two can be accepted",
        scene="calm",
        invariant="I18",
        patches=(
            Patch(
                "sql/migrations/0027_people.sql",
                "    SELECT t.id INTO its_task FROM cortex_worker.task t"
                " WHERE t.job_id = owner FOR UPDATE;\n"
                "    PERFORM FROM cortex.job_record j WHERE j.id = owner"
                " AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE;\n"
                "    IF NOT FOUND THEN\n"
                "        -- It got its task, or lost it,",
                "    IF owner IS NULL THEN\n        -- It got its task, or lost it,",
            ),
            Patch(
                "sql/migrations/0027_people.sql",
                "    SELECT * INTO held FROM cortex.approval a"
                " WHERE a.id = of_approval FOR UPDATE;\n"
                "    stands :=",
                "    SELECT * INTO held FROM cortex.approval a WHERE a.id = of_approval;\n"
                "    PERFORM pg_sleep(0.02);  -- somebody thinks about it\n"
                "    stands :=",
            ),
            Patch(
                "sql/migrations/0015_approvals.sql",
                "    IF OLD.status <> 'PENDING' THEN\n        RAISE EXCEPTION 'approval % is",
                "    IF OLD.status = 'NOBODY' THEN\n        RAISE EXCEPTION 'approval % is",
            ),
        ),
    ),
    Mutant(
        name="no-redaction",
        what="the pods' own credentials are not redacted in messages of others",
        scene="trickle",
        invariant="I23",
        patches=(
            Patch(
                "cortex/runtime/own_secrets.py",
                "            redaction.register(name, value)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        name="no-probe",
        what="a circuit breaker whose pause is over closes, and lets all calls through",
        scene="trickle",
        invariant="I16",
        patches=(
            Patch(
                "cortex/domain/breaker.py",
                "    if not breaker.may_be_probed(now):\n        return breaker\n",
                "    if breaker.may_be_probed(now):\n        return closed(breaker)\n",
            ),
        ),
    ),
    Mutant(
        name="hasty-proof",
        what="a circuit breaker's probe has succeeded as soon as its answer begins",
        scene="relapse",
        invariant="I16",
        patches=(
            Patch(
                "cortex/runtime/calls/breaker_handle.py",
                "now + RAMP_PROOF_S, now + idle_s\n",
                "now + RAMP_PROOF_S, now\n",
            ),
        ),
    ),
    Mutant(
        name="early-end",
        what="a stream that ends early is taken for a whole answer",
        scene="calm",
        invariant="I15",
        patches=(
            Patch(
                "cortex/agent/models/answer.py",
                "        if not (self.complete and is_whole):\n",
                "        self._stop_reason = self._stop_reason or 'end_turn'\n"
                "        if not self._message:\n",
            ),
        ),
    ),
    Mutant(
        name="cut-call",
        what="a tool call runs although the model's answer was cut before its arguments",
        scene="agents",
        invariant="I34",
        patches=(
            Patch(
                "cortex/domain/model.py",
                '        return raw is not None or not call.get("input")\n',
                "        return raw is not None\n",
            ),
        ),
    ),
    Mutant(
        name="odd-transcript",
        what="answers go back to the model with the blank text that its API refuses",
        scene="agents",
        invariant="I34",
        patches=(
            Patch(
                "cortex/agent/models/repairs.py",
                "            return fresh if _has_text(block) else None\n",
                "            return fresh\n",
            ),
        ),
    ),
)
