"""Crash points: every write of progress lies between two, none costs anything unless armed."""

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex import crash_points as module
from cortex.crash_points import (
    BETWEEN,
    POINTS,
    RECORD,
    VARIABLE,
    arm,
    crash_point,
    crash_points,
    is_armed,
    is_in_operation,
    note_write,
    one_operation,
    pass_between,
)
from cortex.domain.drain import DrainPhase
from cortex.domain.errors import UsageError

PACKAGE = Path(module.__file__).parent
A_TOOLS_OWN = "during_call"
WRITERS = (
    "runtime/**/*.py",
    "http/framework/idempotent.py",
    "http/page/approval.py",
    "http/routes/job_submit.py",
)
"""Where pods write to the database."""
NO_PROGRESS = frozenset(
    {
        # they read
        "approvals.find",
        "approvals.of_line",
        "approvals.require_named",
        "approvals.show",
        "bulk.choose",
        "bulk.give_up",
        "children.ids",
        "children.outcomes",
        "clock.now",
        "codes.served",
        "configs.spec",
        "drains.is_requested",
        "files.content",
        "feed.results",
        "feed.since",
        "jobs.cancel_requests",
        "jobs.settled",
        "model_batches.calls",
        "model_batches.find",
        "model_batches.others",
        "model_batches.outlook",
        "jobs.show",
        "pods.ended_owners",
        "pods.lock",
        "pods.probe",
        "mcp.known",
        "pods.without_lock",
        "retention.copy",
        "retention.next_batch",
        "retention.turn",
        "specs.newest_agent",
        "specs.spec",
        "steps.input_of",
        "steps.record_of",
        "steps.recorded",
        "store.next_due_s",
        "subscriptions.every",
        "subscriptions.one",
        "subscriptions.routes",
        "store.figures",
        "store.look",
        "store.met",
        "tasks.blocked",
        "tasks.has_work",
        "tasks.locked",
        "tasks.orphans",
        "traces.resumed",
        "watches.of_pod",
        "watches.said",
        # connections
        "self._session.close",
        "self._session.open",
        "session.listen",
        "watches.listen",
        "session.open",
        # notifications, to people and to breakers: no job depends on them
        "facts.append",
        "method",
        "tasks.record_blocked",
        "watches.send",
        "watches.unwatch",
        "watches.watch",
        # a lease that is not renewed ends, and what code declares is declared again
        "store.renew",
        "model_batches.put_off",
        "subscriptions.put",
        # what a server says of its tools is noted again by the next job that uses it
        "mcp.note",
        # what background work did, that it was done, and which steps run: no job depends on them
        "pods.report_steps",
        "tasks.is_watched",
        # repeated in its step, whose points stand around it
        "approvals.remind_one",
        "bulk.settle",
        "files.keep",
        "jobs.submit_once",
        # what has expired anyway is forgotten
        "store.forget",
        "model_batches.forget",
        "watches.forget",
    }
)
"""All else that goes through the port writes what jobs depend on."""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def points_of(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, name) of each passing of a point, in their order."""
    found = []
    for call in calls(tree):
        if ast.unparse(call.func) == "crash_point":
            (name,) = call.args
            assert isinstance(name, ast.Constant), ast.unparse(call)
            found.append((call.lineno, str(name.value)))
    return sorted(found)


def writes_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of each call of the store that writes progress."""
    for call in calls(tree):
        names = [ast.unparse(each) for each in (call.func, *call.args)]
        if names[0] == "partial":
            del names[0]  # what it will call
        is_sent = names[0].split(".")[-1] in {"port", "_port", "cross"} and names[1:]
        if is_sent and names[1] not in NO_PROGRESS:
            yield call.lineno, names[1]


def uncovered(source: str) -> list[str]:
    """Writes of progress that are not between `before_x` and `after_x` of one function."""
    wrong = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.AsyncFunctionDef):
            points = points_of(function)
            for line, method in writes_of(function):
                before = next((name for at, name in reversed(points) if at < line), "")
                after = next((name for at, name in points if at > line), "")
                if not before or f"after_{before.removeprefix('before_')}" != after:
                    wrong.append(f"{line}: {method}")
    return wrong


def test_the_rule_finds_a_write_without_points() -> None:
    assert uncovered("async def f():\n await self._port(tasks.claim)") == ["2: tasks.claim"]
    pair = 'async def f():\n crash_point("before_a")\n await port(tasks.claim)\n crash_point("%s")'
    assert uncovered(pair % "after_a") == []
    assert uncovered(pair % "after_b") == ["3: tasks.claim"]
    assert uncovered("async def f():\n await self._port(tasks.orphans)") == []
    assert uncovered("async def f():\n g = partial(self.port, tasks.claim)") == ["2: tasks.claim"]


@pytest.mark.parametrize(
    "path",
    sorted(path for each in WRITERS for path in PACKAGE.glob(each)),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_each_write_of_progress_stands_between_points(path: Path) -> None:
    assert uncovered(path.read_text("utf-8")) == []


def test_each_point_is_passed_and_no_other() -> None:
    drain = PACKAGE / "runtime" / "liveness" / "drain.py"
    passed = {
        name
        for path in PACKAGE.rglob("*.py")
        if path != drain and "crash_point" in (text := path.read_text("utf-8"))
        for _, name in points_of(ast.parse(text))
    }
    assert 'crash_point(f"drain_{phase}")' in drain.read_text("utf-8")
    phases = {f"drain_{phase}" for phase in DrainPhase}
    assert passed | phases | {A_TOOLS_OWN, BETWEEN} == set(POINTS)


def test_each_point_is_described_once() -> None:
    said = [point.what for point in POINTS.values()]
    assert len(set(said)) == len(said)
    assert all(said)


@pytest.mark.parametrize("unset", [None, ""])
def test_unarmed_crash_points_do_nothing(unset: str | None) -> None:
    arm(unset)
    for point in POINTS:
        crash_point(point)


@pytest.mark.parametrize(
    "how, number", [("", signal.SIGKILL), (":kill", signal.SIGKILL), (":stop", signal.SIGSTOP)]
)
def test_crash_point_fires_at_its_nth_passing(how: str, number: signal.Signals) -> None:
    hits: list[signal.Signals] = []
    passed = crash_points(f"after_call:3{how}", hit=hits.append)
    for point in ("after_call", "before_intent", "after_call", "after_intent"):
        passed(point)
    assert not hits
    passed("after_call")
    assert hits == [number]
    passed("after_call")
    assert hits == [number], "stopped once, not at each passing after that"


@pytest.mark.parametrize(
    "setting", [f"{BETWEEN}.store.move.3:1", f"{BETWEEN}.store.move:2", f"{BETWEEN}:2"]
)
def test_point_stands_before_each_transaction_but_the_first(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits: list[signal.Signals] = []
    assert not is_armed()
    monkeypatch.setattr(module, "_passed", crash_points(setting, hit=hits.append))
    assert is_armed()
    begun: list[None] = []
    transaction = pass_between("store.move", lambda: begun.append(None))
    transaction()
    transaction()
    assert not hits
    transaction()
    assert hits == [signal.SIGKILL]
    assert len(begun) == 3


def test_point_stands_before_each_method_after_a_write_of_its_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[str] = []

    def call(method: str) -> None:
        pass_between(method, lambda: passed.append(method))()

    with one_operation("unarmed"):
        assert not is_in_operation()
    monkeypatch.setattr(module, "_passed", passed.append)
    with one_operation("tidy"):
        assert is_in_operation()
        call("store.look")
        call("store.move")
        note_write()
        call("store.record")
    assert not is_in_operation()
    with one_operation("tidy"):
        call("store.look")
    point = f"{BETWEEN}.tidy.store.record"
    assert passed == ["store.look", "store.move", point, "store.record", "store.look"]


def test_recording_writes_the_passed_points(tmp_path: Path) -> None:
    passed = crash_points(f"{RECORD}:{tmp_path / 'a:b'}", hit=lambda _: pytest.fail("hit"))
    passed("after_call")
    passed("before_intent")
    assert (tmp_path / "a:b").read_text() == "after_call\nbefore_intent\n"


@pytest.mark.parametrize(
    "setting",
    [
        "after_call",
        "after_call:",
        "after_call:0",
        "after_call:-1",
        "after_call:²",
        "after_call:1:pause",
        "x:1",
        "record:",
    ],
)
def test_invalid_setting_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=f"{VARIABLE} is "):
        arm(setting)


def test_crash_point_kill_cannot_be_caught() -> None:
    code = """
from cortex.crash_points import arm, crash_point
arm("after_call:1")
crash_point("after_call")
print()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, b""), ran.stderr
