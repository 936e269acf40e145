"""All checkers: a healthy run is valid; no evidence, or a run cut short, is unknown."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.checkers import ALL
from chaos.checkers.verdict import LINES_MAX, Checker, Findings, Result
from tests.support.evidence import Run
from tests.support.healthy_run import healthy_run

NUMBERS = [*range(1, 25), *range(26, 31), *range(34, 41)]
CHECKERS = [
    pytest.param(check, id=f"I{number}") for check, number in zip(ALL, NUMBERS, strict=True)
]


@pytest.mark.parametrize("check", CHECKERS)
def test_a_healthy_run_is_valid(check: Checker) -> None:
    verdict = check(healthy_run().evidence())
    assert (verdict.result, verdict.why, verdict.jobs) == (Result.VALID, (), ())
    assert verdict.checked > 0


@pytest.mark.parametrize("check", CHECKERS)
def test_empty_evidence_is_unknown(check: Checker) -> None:
    verdict = check(Run().evidence())
    assert verdict.result is Result.UNKNOWN
    assert len(verdict.why) == 1


@pytest.mark.parametrize("check", CHECKERS)
def test_a_run_that_was_cut_short_is_not_held_against_the_runtime(check: Checker) -> None:
    run = healthy_run()
    run.events = [event for event in run.events if event.at_s < 25]
    run.submit("late", "model", 24.0)
    run.claim("late", "p3.1", 24.1)
    run.tasks.append({"job_id": run.jobs["late"]["id"], "state": "LOCKED"})
    assert check(run.evidence()).result is not Result.INVALID


def test_checkers_are_numbered_like_the_invariants() -> None:
    output = [check(Run().evidence()).invariant for check in ALL]
    assert output == [f"I{number}" for number in NUMBERS]


def test_no_code_is_shared_with_the_runtime() -> None:
    """In a process of its own: this one has loaded it."""
    code = "import sys, chaos.checkers; sys.exit('cortex' in sys.modules)"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_verdict_lists_a_bounded_number_of_findings() -> None:
    findings = Findings("I0", "nothing is wrong")
    for number in range(LINES_MAX + 7):
        findings.broken(f"wrong {number}")
    verdict = findings.verdict()
    assert len(verdict.why) == LINES_MAX + 1
    assert verdict.why[-1] == "and 7 more"


def test_broken_rule_is_invalid_despite_unknown_evidence() -> None:
    findings = Findings("I0", "nothing is wrong")
    findings.broken("wrong")
    assert findings.verdict(unknown="cut short").result is Result.INVALID
