"""I15: an answer of the model is recorded only if all of it arrived."""

from chaos.checkers.timeline import operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.program import Op

REASONS = frozenset(
    {
        "end_turn",
        "max_tokens",
        "model_context_window_exceeded",
        "pause_turn",
        "refusal",
        "stop_sequence",
        "tool_use",
    }
)
"""From the documentation of the Messages API: a checker shares no code with the runtime."""
LAST_WORDS = "all is well"
"""How the scripted model ends each answer to a program."""


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I15", "each model answer was stored whole, with its stop reason")
    programs = {job["id"] for job in evidence.jobs if operations_of(job)}
    for step in evidence.steps:
        if step["kind"] != "model":
            continue
        findings.count()
        is_scripted = step["job_id"] in programs and f":{Op.AGENT}: " not in step["key"]
        for why in _wrong(step, is_scripted=is_scripted):
            findings.broken(f"job {step['job_id']}, step {step['key']}: {why}", job=step["job_id"])
    return findings.verdict()


def _wrong(step: Row, *, is_scripted: bool) -> list[str]:
    answer = step["output"]
    if not isinstance(answer, dict):
        return [f"its answer is {answer!r}"]
    wrong = []
    if answer.get("stop_reason") not in REASONS:
        wrong.append(f"its stop reason is {answer.get('stop_reason')!r}")
    text = "".join(block.get("text", "") for block in answer.get("content", ()))
    if is_scripted and not text.endswith(LAST_WORDS):
        wrong.append(f"its answer ends with {text[-40:]!r}")
    if not step["usage"]:
        wrong.append("its cost is unknown")
    return wrong
