"""Crash points: every listed one is in the code, none costs anything unless asked for."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cortex.domain.errors import UsageError
from cortex.durable import crash_points as module
from cortex.durable.crash_points import POINTS, VARIABLE, crash_point, crash_points

PACKAGE = Path(module.__file__).parent.parent
A_TOOLS_OWN = "during_call"


class Crash(BaseException):
    """In place of the end of the process."""


def crash() -> None:
    raise Crash


def test_each_point_is_passed_and_no_other() -> None:
    passed = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'\bcrash_point\("(\w+)"\)', path.read_text("utf-8"))
    }
    assert passed | {A_TOOLS_OWN} == set(POINTS)


@pytest.mark.parametrize("unset", [None, ""])
def test_unset_nothing_happens(unset: str | None) -> None:
    passed = crash_points(unset, crash=crash)
    for point in POINTS:
        passed(point)
    assert passed is crash_point, "this very process has none, either"


def test_the_process_ends_at_the_right_passing_of_the_right_point() -> None:
    passed = crash_points("after_call:3", crash=crash)
    for point in ("after_call", "before_intent", "after_call", "after_intent"):
        passed(point)
    with pytest.raises(Crash):
        passed("after_call")


@pytest.mark.parametrize(
    "setting", ["after_call", "after_call:", "after_call:0", "after_call:-1", "after_call:²", "x:1"]
)
def test_a_setting_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=f"{VARIABLE} is "):
        crash_points(setting, crash=crash)


def test_it_is_a_kill_that_nothing_can_catch() -> None:
    code = "from cortex.durable.crash_points import crash_point; crash_point('after_call'); print()"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={VARIABLE: "after_call:1", "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, b""), ran.stderr
