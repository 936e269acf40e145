"""I34: a tool runs only with arguments that the model gave, and no conversation is refused.

The tool of the agents of programs returns its argument, so that its recorded result says what it
ran with.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from chaos.checkers.timeline import grouped, operations_of
from chaos.checkers.verdict import Findings, Verdict
from chaos.evidence import Evidence, Row
from chaos.workloads.program import Op

ARGUMENT: Final = "words"
FAILED: Final = "tool_error"
"""Key of the output of a call that failed or did not run."""
MARK: Final = f":{Op.AGENT}: "
"""In the keys of an agent's steps."""
REFUSED: Final = "invalid_request"


def check(evidence: Evidence) -> Verdict:
    findings = Findings("I34", "tools run with the model's arguments, and conversations are valid")
    for steps in grouped(evidence.steps, "job_id").values():
        outputs = {step["key"]: step["output"] for step in steps if step["kind"] == "tool"}
        for step in steps:
            if step["kind"] != "model" or MARK not in step["key"]:
                continue
            for key, arguments in _calls(step):
                if key not in outputs:
                    continue
                findings.count()
                if why := _wrong(outputs[key], arguments):
                    findings.broken(f"job {step['job_id']}, step {key}: {why}", job=step["job_id"])
    for job in evidence.jobs:
        if operations_of(job) and job["error_code"] == REFUSED:
            why = f"job {job['id']} failed: the model refused its conversation"
            findings.broken(f"{why}: {job['error_message']}", job=job["id"])
    return findings.verdict()


def _calls(step: Row) -> Iterator[tuple[str, Any]]:
    """The key and the arguments of each call of an answer, as the model gave them."""
    prefix = step["key"].rpartition(" ")[0]
    answer = step["output"] if isinstance(step["output"], dict) else {}
    counts: Counter[str] = Counter()
    for block in answer.get("content", ()):
        if block.get("type") == "tool_use":
            counts[block["name"]] += 1
            number = counts[block["name"]]
            suffix = f"#{number}" if number > 1 else ""
            yield f"{prefix} {block['name']}{suffix}", block["input"].get(ARGUMENT)


def _wrong(output: Any, given: Any) -> str | None:
    if isinstance(output, dict) and FAILED in output:
        return None
    return None if output == given else f"its tool ran with {output!r}, the model gave {given!r}"
