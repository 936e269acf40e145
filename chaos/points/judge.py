"""Whether a trial came out right: by the record, and by what the world outside received."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from chaos.checkers import (
    i02_one_end,
    i04_one_owner,
    i05_checkpoints,
    i06_retries,
    i07_intents,
    i10_whole_commits,
    i18_decided_once,
    i19_messages,
    i20_legal_transitions,
    i27_schedules,
    i28_people,
    i29_retention,
    i37_logs,
)
from chaos.checkers.verdict import Result
from chaos.evidence import Evidence
from chaos.history import Event
from chaos.points import outcomes
from chaos.points.bench import SCALE
from chaos.points.events import CANCELLED_BY
from chaos.points.programs import Program
from chaos.points.shot import Left, Shot
from chaos.workloads.program import NOTE
from cortex.domain.job import SEND_NOTIFICATION

CHECKERS: Final = (
    i02_one_end.check,
    i04_one_owner.check,
    i05_checkpoints.check,
    i06_retries.check,
    i07_intents.check,
    i10_whole_commits.check,
    i18_decided_once.check,
    i19_messages.check,
    i20_legal_transitions.check,
    i27_schedules.check,
    i28_people.check,
    i29_retention.check,
    i37_logs.check,
)
LEAVES_WELL: Final = frozenset({0})
LEAVES_LATE: Final = frozenset({0, 1})
"""A pod that was stopped while draining may have had to cut something off."""
ENDS_AS_TICK: Final = frozenset({0, 1, 143})
"""It had lost its job, or SIGTERM ended it."""
LINE_MAX: Final = 500
FAULTS: Final = ('"code": "internal"', '"event": "actor crashed')


def problems(program: Program, left: Left, *, shot: Shot | None, baseline: Left) -> list[str]:
    """What is wrong with a trial, one line each; `baseline` is what an undisturbed trial left."""
    if (count := len(left.record["jobs"]) - len(left.idle)) != 1 + program.others:
        return [f"there are {count} jobs"]
    wrong = [
        *_record(program, left),
        *_end(program, left, baseline),
        *_outside(program, left, shot),
        *_notified(program, left),
        *outcomes.problems(program, left, baseline, shot),
    ]
    if shot is not None:
        wrong += [*_kept(left), *_counts(left, baseline, shot)]
    return [*wrong, *_pods(program, left)]


def _record(program: Program, left: Left) -> Iterator[str]:
    evidence = Evidence(
        settings=SCALE.figures,
        events=tuple(_events(program, left)),
        applications=(),
        model_calls=(),
        requests=(),
        deliveries=left.deliveries,
        archived=left.archived,
        canaries=(),
        logs=left.logs,
        **left.record,
    )
    for check in CHECKERS:
        verdict = check(evidence)
        if verdict.result is Result.INVALID:
            yield from (f"{verdict.invariant}: {why}" for why in verdict.why)


def _events(program: Program, left: Left) -> Iterator[Event]:
    """The client operations that checkers need."""
    cancelled = [left.job, *left.idle] if program.event == "cancel" else left.idle
    for job in cancelled:
        value = {"job": str(job["id"]), "by": CANCELLED_BY}
        yield Event(at_s=0, process="points", kind="cancel", type="invoke", value=value)
    for old, is_needed in left.old.items():
        known = {"job": old, "is_needed": is_needed}
        yield Event(at_s=0, process="points", kind="old", type="info", value=known)


def _end(program: Program, left: Left, baseline: Left) -> Iterator[str]:
    job = left.job
    if job["status"] != program.status:
        yield f"the job is {job['status']}, not {program.status}: {job['error_message']}"
    elif _result(program, left) != (usual_result := _result(program, baseline)):
        yield f"its result is {_result(program, left)!r}, undisturbed it is {usual_result!r}"
    elif job["error_code"] != baseline.job["error_code"]:
        yield f"it failed by {job['error_code']}, undisturbed by {baseline.job['error_code']}"
    for idle in left.idle:
        if (idle["status"], idle["cancelled_by"]) != ("CANCELLED", CANCELLED_BY):
            yield f"job {idle['id']} is {idle['status']}, but was to be cancelled"
    requested, usual = len(left.record["approvals"]), len(baseline.record["approvals"])
    if requested > usual:
        yield f"approval was requested {requested} times, not {usual}"


def _result(program: Program, left: Left) -> Any:
    """The result of its job, without what differs from trial to trial."""
    result = left.job["result"]
    is_note = program.job_type == SEND_NOTIFICATION and isinstance(result, dict)
    return result["is_degraded"] if is_note else result


def _outside(program: Program, left: Left, shot: Shot | None) -> Iterator[str]:
    """Effects happen once; a model's answer is paid for again only if it was not recorded."""
    expected = Counter(program.applied_once(left.key))
    applied = Counter(each.account for each in left.applied)
    for account in expected | applied:
        if applied[account] != expected[account]:
            yield f"{account} was applied {applied[account]} times, not {expected[account]}"
    yield from _results(left)
    committed = {step["key"] for step in left.before.get("steps", ())}
    ends = 0 if shot is None else 1 + (program.first is not None)
    for conversation in program.conversations(left.key):
        is_kept = conversation.partition("/")[2] in committed
        most = 1 if is_kept else 1 + ends
        least = 1 if program.status == "COMPLETED" else 0
        if not least <= left.calls[conversation] <= most:
            yield f"the model was called {left.calls[conversation]} times, at most {most} expected"


def _notified(program: Program, left: Left) -> Iterator[str]:
    """What a job sends by itself arrives; see I28 for the rest."""
    notes = [each for each in left.deliveries if each.topic == NOTE]
    if program.job_type == SEND_NOTIFICATION and not any(each.is_accepted for each in notes):
        yield "its notification never arrived"


def _results(left: Left) -> Iterator[str]:
    """The record has the results that the other side returned."""
    returned = {each.key: each.result for each in left.applied}
    outputs = {step["key"]: step["output"] for step in left.record["steps"]}
    for effect in left.record["effects"]:
        if effect["status"] != "COMPLETED":
            continue
        recorded = outputs.get(effect["key"]) if effect["result"] is None else effect["result"]
        if recorded != returned.get(str(effect["id"])):
            results = f"{recorded!r}, the ledger {returned.get(str(effect['id']))!r}"
            yield f"the record has result {results} of effect {effect['key']}"


def _kept(left: Left) -> Iterator[str]:
    """What was committed before stays as it was."""
    after = {(step["job_id"], step["seq"]): step for step in left.record["steps"]}
    for step in left.before["steps"]:
        if after.get((step["job_id"], step["seq"])) != step:
            yield f"step {step['key']!r} was committed but is gone"


def _counts(left: Left, baseline: Left, shot: Shot) -> Iterator[str]:
    """A killed pod costs its job nothing, one that fell silent a retry."""
    silent = (shot.how == "stop") + shot.program.has_stop
    retries, usual = left.job["retry_count"], baseline.job["retry_count"]
    if retries > usual + silent:
        yield f"{retries} retries were counted, at most {usual + silent} expected"


def _pods(program: Program, left: Left) -> Iterator[str]:
    for name, code in left.exits.items():
        right = LEAVES_LATE if program.event == "leave" else LEAVES_WELL
        if program.event == "tick" and name == "doomed":
            right = ENDS_AS_TICK
        if code not in right:
            yield f"pod {name} ended with {code}"
    for name, log in left.logs.items():
        for line in log.splitlines():
            if any(fault in line for fault in FAULTS):
                yield f"the log of pod {name} has {line[:LINE_MAX]}"
