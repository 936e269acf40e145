"""`cortex jobs resume`: a failed job continues, and none of its work is lost."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.timeouts import Choice, TimeoutReceipt
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import facts, jobs, resumptions, steps, timeouts
from tests.support.command_line import Cortex
from tests.support.in_process import Ended
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.receipts import (
    BEFORE,
    a_change,
    a_receipt,
    a_work_tree,
    an_artefact,
    an_interruption,
)


def failed(life: Life, *, folder: Path | None = None, **left: Any) -> UUID:
    """A job that failed in its second step, by a time-out if something is `left` of it."""
    pod = life.pod()
    job_id = life.job(payload=json.dumps({"folder": str(folder)} if folder else {}))
    claim = life.claim(pod)
    life.step(pod, claim, 1, "1 model")
    life.finish(pod, claim, error="Job timed out after 60 seconds")
    if left:
        receipt: TimeoutReceipt = a_receipt(interruption=an_interruption(lease=claim.lease), **left)
        life.call(timeouts.record, [receipt])
    return job_id


def resume(cortex: Cortex, job_id: UUID, *arguments: str) -> Ended:
    return cortex("jobs", "resume", str(job_id), *arguments, "--json", "--as", "ana")


def output(life: Life, job_id: UUID, subtype: str) -> list[dict[str, Any]]:
    found = life.call(facts.of_job, job_id)
    return [fact.data for fact in found if fact.subtype == subtype]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git work tree."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    person = ("-c", "user.name=ana", "-c", "user.email=ana@example.org")
    (folder / "a.py").write_text("one\n")
    for arguments in (("init", "-q"), ("add", "."), (*person, "commit", "-q", "-m", "begin")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


def leave_work(folder: Path) -> None:
    """Leave a change and a new file uncommitted, as a step does after the last checkpoint."""
    (folder / "a.py").write_text("half done\n")
    (folder / "new.py").write_text("new\n")


def left_in(checkout: Path, **fields: Any) -> dict[str, Any]:
    tree = a_work_tree(a_change(**fields), root=str(checkout), folder=str(checkout))
    return {"work_trees": (tree,)}


@pytest.mark.parametrize("left", [{}, {"problem": None}])
def test_clean_job_resumes_without_a_choice(
    cortex: Cortex, life: Life, left: dict[str, Any]
) -> None:
    job_id = failed(life, **left)
    document = resume(cortex, job_id, "--reason", "once more").document
    assert document["choice"] == "retry_step"
    new_id = UUID(document["resumed_as"])
    new = life.call(jobs.show, new_id)
    assert (new.status, new.origin_id) == ("PENDING", job_id)
    assert [step.key for step in life.call(steps.of_job, new_id)] == ["1 model"]
    (fact,) = output(life, job_id, "job_resumed")
    assert fact == {
        "by": me("ana"),
        "reason": "once more",
        "choice": "retry_step",
        "retried_as": str(new_id),
        "set_aside": {},
    }


def test_the_help_has_a_choice_a_line(cortex: Cortex) -> None:
    shown = cortex("jobs", "resume", "--help").out
    assert "\\b" not in shown
    assert "\b" not in shown
    starts = [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert {each.value for each in Choice} <= set(starts)


def test_a_job_that_left_work_waits_for_a_choice(cortex: Cortex, life: Life) -> None:
    job_id = failed(life, artefacts=(an_artefact(),))
    ended = resume(cortex, job_id)
    assert ended.code == 2
    assert "recommended: discard_and_retry" in ended.error["message"]
    assert "--choice discard_and_retry" in ended.error["hint"]
    assert output(life, job_id, "job_resumed") == []
    older = failed(life, work_trees=(a_work_tree(a_change(changed_at=BEFORE)),))
    assert "recommended: retry_step" in resume(cortex, older).error["message"]
    assert resume(cortex, older, "--choice", "retry_step").code == 0


def test_on_a_terminal_a_person_is_asked(cortex: Cortex, life: Life, checkout: Path) -> None:
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    terminal = cortex.on_terminal("jobs", "resume", str(job_id), columns=120)
    terminal.read_until(lambda text: "[retry_step]" in text, what="the question")
    assert "1 uncommitted" in terminal.text
    terminal.type("discard_and_retry\n")
    assert terminal.end() == 0, terminal.text
    assert "brings it back" in terminal.text
    assert (checkout / "a.py").read_text() == "one\n"


def test_discarded_changes_are_kept_in_a_stash(cortex: Cortex, life: Life, checkout: Path) -> None:
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    document = resume(cortex, job_id, "--choice", "discard_and_retry").document
    (stash,) = document["set_aside"]["stashes"]
    assert stash["folder"] == str(checkout)
    assert (checkout / "a.py").read_text() == "one\n"
    assert not (checkout / "new.py").exists()
    subprocess.run(["git", "stash", "apply", "-q", stash["commit"]], cwd=checkout, check=True)
    assert (checkout / "a.py").read_text() == "half done\n"
    assert (checkout / "new.py").read_text() == "new\n"
    (fact,) = output(life, job_id, "job_resumed")
    assert fact["set_aside"]["stashes"] == [stash]


def test_files_of_the_workspace_are_moved_aside(cortex: Cortex, life: Life, tmp_path: Path) -> None:
    job_id = failed(life, artefacts=(an_artefact("out/report.md"),))
    workspace = tmp_path / "data" / "workspaces" / str(job_id)
    (workspace / "out").mkdir(parents=True)
    (workspace / "out" / "report.md").write_text("half")
    (workspace / "kept").write_text("whole")
    data = ("--data", str(tmp_path / "data"))
    document = resume(cortex, job_id, "--choice", "discard_and_retry", *data).document
    set_aside = document["set_aside"]
    assert set_aside["files"] == ["out/report.md"]
    assert (Path(set_aside["into"]) / "out" / "report.md").read_text() == "half"
    assert not (workspace / "out" / "report.md").exists()
    assert (workspace / "kept").exists()


def test_files_of_committed_steps_are_kept(
    cortex: Cortex, life: Life, checkout: Path, tmp_path: Path
) -> None:
    """Uncommitted work from before the checkpoint, a file that is older, one that a step names."""
    (checkout / "a.py").write_text("of a committed step\n")
    changed = an_artefact("build.log")
    job_id = failed(
        life,
        artefacts=(an_artefact("out"), attrs.evolve(changed, is_new=False), an_artefact("new")),
        **left_in(checkout),
    )
    (checkout / "new.py").write_text("new\n")
    workspace = tmp_path / "data" / "workspaces" / str(job_id)
    workspace.mkdir(parents=True)
    for name in ("out", "build.log", "new"):
        (workspace / name).write_text("x")
    data = ("--data", str(tmp_path / "data"))
    document = resume(cortex, job_id, "--choice", "discard_and_retry", *data).document
    assert document["set_aside"]["files"] == ["new"]
    assert {each.name for each in workspace.iterdir()} == {"out", "build.log"}
    assert (checkout / "a.py").read_text() == "of a committed step\n"
    assert not (checkout / "new.py").exists()


def test_job_without_a_receipt_discards_changes_in_its_folder(
    cortex: Cortex, life: Life, checkout: Path
) -> None:
    job_id = failed(life, folder=checkout)
    leave_work(checkout)
    document = resume(cortex, job_id, "--choice", "discard_and_retry").document
    assert len(document["set_aside"]["stashes"]) == 1
    assert (checkout / "a.py").read_text() == "one\n"


def test_missing_folder_is_an_error_and_resumes_nothing(
    cortex: Cortex, life: Life, tmp_path: Path
) -> None:
    job_id = failed(life, **left_in(tmp_path / "elsewhere"))
    ended = resume(cortex, job_id, "--choice", "discard_and_retry")
    assert ended.code == 3
    assert "is not on this machine" in ended.error["message"]
    assert "on pod-1" in ended.error["hint"]
    assert output(life, job_id, "job_resumed") == []


def test_failed_stash_resumes_nothing(cortex: Cortex, life: Life, checkout: Path) -> None:
    (checkout / ".git" / "index.lock").touch()
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    ended = resume(cortex, job_id, "--choice", "discard_and_retry")
    assert ended.code == 1
    assert "index.lock exists" in ended.error["message"]
    assert (checkout / "a.py").read_text() == "half done\n"
    assert output(life, job_id, "job_resumed") == []


def test_escalated_job_waits_for_an_operator(cortex: Cortex, life: Life) -> None:
    job_id = failed(life, artefacts=(an_artefact(),))
    ended = resume(cortex, job_id, "--choice", "escalate", "--reason", "who knows")
    assert (ended.code, ended.document["resumed_as"]) == (0, None)
    (state,) = life.sql("SELECT state FROM cortex.dead_letter WHERE job_id = $1", job_id)
    assert state["state"] == "ESCALATED"
    assert output(life, job_id, "job_escalated") == [{"by": me("ana"), "reason": "who knows"}]
    assert resume(cortex, job_id, "--choice", "retry_step").code == 0
    again = resume(cortex, job_id, "--choice", "escalate")
    assert again.code == 5
    (letter,) = life.sql("SELECT retried_as FROM cortex.dead_letter WHERE job_id = $1", job_id)
    assert re.search(
        rf"was retried by {re.escape(me('ana'))} at \S+Z as {letter['retried_as']}$",
        again.error["message"],
    )


def test_already_resumed_job_keeps_its_files(cortex: Cortex, life: Life, checkout: Path) -> None:
    """The successor works in the same folder: nothing in it may be stashed any more."""
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    assert resume(cortex, job_id, "--choice", "retry_step").code == 0
    ended = resume(cortex, job_id, "--choice", "discard_and_retry")
    assert ended.code == 5
    assert f"was retried by {me('ana')}" in ended.error["message"]
    assert (checkout / "a.py").read_text() == "half done\n"


def test_one_person_resumes_a_job_at_a_time(
    cortex: Cortex, life: Life, database: str, checkout: Path
) -> None:
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    with open_session(Profile(dsn=database, connections_max=1)) as other:
        other(resumptions.lock, job_id)
        ended = resume(cortex, job_id, "--choice", "discard_and_retry")
        assert ended.code == 5
        assert "another person" in ended.error["message"]
        assert (checkout / "a.py").read_text() == "half done\n"
    assert resume(cortex, job_id, "--choice", "discard_and_retry").code == 0


def test_resume_under_a_key_happens_once(cortex: Cortex, life: Life, checkout: Path) -> None:
    job_id = failed(life, **left_in(checkout))
    leave_work(checkout)
    asked = ("--choice", "discard_and_retry", "--idempotency-key", "k1")
    first = resume(cortex, job_id, *asked).document
    (checkout / "a.py").write_text("the successor's\n")
    second = resume(cortex, job_id, *asked).document
    assert second.pop("replayed") is True
    assert second == first
    assert (checkout / "a.py").read_text() == "the successor's\n"


def test_only_failed_jobs_are_resumed(cortex: Cortex, life: Life) -> None:
    ended = resume(cortex, life.job())
    assert ended.code == 5
    assert "is PENDING, not FAILED" in ended.error["message"]
    job_id = life.job()
    life.sql("UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", job_id)
    life.sql(
        "UPDATE cortex.job_record SET status = 'RETRY', next_retry_at = cortex.now() WHERE id = $1",
        job_id,
    )
    ended = resume(cortex, job_id)
    assert "is RETRY, not FAILED" in ended.error["message"]
    assert f"cortex jobs retry {job_id}" in ended.error["hint"]
