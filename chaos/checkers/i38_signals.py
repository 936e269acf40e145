"""I38: each signal is received once, in the order of its key, and none is lost.

What was received is in the outputs of the steps; the senders know what they sent, and what was
acknowledged. A job that has ended well has received as many as its program says, and has emitted a
chunk for each. A wait that lost against another one has kept no signal.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from chaos.checkers.timeline import grouped, of_kind
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.program import SIGNALS, Op

EMIT: Final = "emit"
FIRST: Final = "first"
"""Kinds of steps."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I38", "each signal is received once, in the order of its key")
    steps = grouped(evidence.steps, "job_id")
    received = Counter[str]()
    for job in evidence.jobs:
        operations = job["payload"].get("operations", ())
        receiving = sum(each["op"] == Op.SIGNALS for each in operations)
        if not receiving:
            continue
        findings.count()
        outputs = [*_outputs(steps.get(job["id"], []))]
        if job.get("origin_id") is None:  # one that continues another has copies of its steps
            received.update(str(each["signal"]) for each in outputs)
        numbers = [each["value"] for each in outputs]
        wanted = [number for _ in range(receiving) for number in range(SIGNALS)]
        is_whole = job["status"] != "COMPLETED" or len(numbers) == len(wanted)
        if numbers != wanted[: len(numbers)] or not is_whole:
            findings.broken(
                f"job {job['id']} ({job['status']}) received {numbers}, not {wanted}", job=job["id"]
            )
        chunks = [each["output"] for each in steps.get(job["id"], []) if each["kind"] == EMIT]
        is_whole = job["status"] != "COMPLETED" or len(chunks) == len(wanted)
        if chunks != wanted[: len(chunks)] or not is_whole:
            findings.broken(
                f"job {job['id']} ({job['status']}) emitted {chunks}, not {wanted}", job=job["id"]
            )
    for signal, count in received.items():
        if count > 1:
            findings.broken(f"signal {signal} was received {count} times")
    for why in _kept_by_losers(evidence):
        findings.broken(why)
    for why in _sent(evidence):
        findings.broken(why)
    return findings.verdict(signals=len(evidence.signals), received=sum(received.values()))


def _outputs(steps: list[Row]) -> Iterator[Mapping[str, object]]:
    for step in steps:
        output = step["output"]
        if isinstance(output, Mapping) and output.keys() >= {"signal", "value"}:
            yield output


def _kept_by_losers(evidence: Evidence) -> Iterator[str]:
    """Signals that a step has, although it lost against another wait."""
    losers = {
        (str(step["job_id"]), str(key))
        for step in evidence.steps
        if step["kind"] == FIRST
        for key in step["output"].get("signals", ())
    }
    for row in evidence.signals:
        if (place := (str(row.get("taken_by")), str(row.get("taken_step")))) in losers:
            yield f"signal {row['id']} is kept by step {place[1]!r} of job {place[0]}, which lost"


def _sent(evidence: Evidence) -> Iterator[str]:
    """What was acknowledged is there, once for each key, name and number."""
    there = {str(row["id"]) for row in evidence.signals}
    first: dict[tuple[str, str, int], str] = {}
    for event in of_kind(evidence, "signal", "ok"):
        value = event.value
        one = (str(value["key"]), str(value["name"]), int(value["number"]))
        signal = str(value["signal"])
        if signal not in there:
            yield f"signal {signal} to {one[0]} was acknowledged, and is not there"
        if first.setdefault(one, signal) != signal:
            yield f"signal {one} was sent twice: {first[one]} and {signal}"
