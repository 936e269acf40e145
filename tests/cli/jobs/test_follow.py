import re
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest

from cortex.cli.jobs.facts import BATCH_MAX, Claimed, Cursor, Fact, snapshot
from cortex.cli.jobs.follow import FactPrinter
from cortex.cli.screen.terminal import Terminal
from cortex.domain.job import JobStatus, Suspend
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import jobs, pauses, tasks
from cortex.store.jobs import EndedAttempt, FollowedStep, Transition
from cortex.view.cells import width_of
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S
from tests.support.life import Life
from tests.support.servers.private_postgres import PrivatePostgres


class Follower:
    """Looks at a job again and again."""

    def __init__(self, life: Life, job_id: UUID) -> None:
        self._life = life
        self._job_id = job_id
        self._cursor = Cursor()
        self.is_over = False

    def look(self) -> list[Fact]:
        seen = self._life.call(snapshot, self._job_id, self._cursor)
        self._cursor = seen.cursor
        self.is_over = seen.is_over
        return seen.facts


@pytest.mark.parametrize("is_tty, columns", [(True, 80), (True, 200), (False, 80)])
def test_a_step_and_its_figures_stay_on_one_line_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, is_tty: bool, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal(
        stream=StringIO(), is_tty=is_tty, has_color=False, is_ascii=False, moves_cursor=is_tty
    )
    step = FollowedStep(
        chunk=None,
        started_at=datetime(2026, 11, 23, 11, 6, 32, 100_000, tzinfo=UTC),
        finished_at=datetime(2026, 11, 23, 11, 6, 33, 500_000, tzinfo=UTC),
        seq=12,
        kind="model",
        key="3 a step of a name that is not short",
        attempt=1,
        usage={"input_tokens": 45_100, "output_tokens": 1_400},
        cost_usd=Decimal("0.0453"),
    )
    line = FactPrinter(terminal).line(step)
    assert line.endswith("model   1.4s  45.1k→1.4k tokens  $0.0453")
    assert (width_of(line) <= columns) == is_tty
    assert ("not short" in line) == (columns == 200 or not is_tty)


def test_each_fact_is_seen_once_and_in_order(life: Life) -> None:
    first, second = life.pod("one"), life.pod("two")
    job_id = life.job()
    follower = Follower(life, job_id)
    (submitted,) = follower.look()
    assert isinstance(submitted, Transition)
    assert submitted.new is JobStatus.PENDING
    assert follower.look() == []

    claim = life.claim(first)
    life.step(first, claim, 1, "plan", is_paid=True)
    started, step = follower.look()
    assert isinstance(started, Transition)
    assert (started.new, started.attempt, started.pod) == (JobStatus.RUNNING, 1, "one")
    assert isinstance(step, FollowedStep)
    assert (step.seq, step.key, step.kind, step.attempt) == (1, "plan", "model", 1)
    assert step.cost_usd == Decimal("0.0123")
    assert step.usage is not None
    assert step.usage["input_tokens"] == 1200

    life.release(first, claim, "handed_back")
    claim = life.claim(second)
    ended, claimed = follower.look()
    assert isinstance(ended, EndedAttempt)
    assert (ended.attempt, ended.outcome, ended.pod) == (1, "handed_back", "one")
    assert isinstance(claimed, Claimed)
    assert (claimed.attempt, claimed.pod) == (2, "two")
    assert not follower.is_over

    life.finish(second, claim)
    (completed,) = follower.look()
    assert isinstance(completed, Transition)
    assert completed.new is JobStatus.COMPLETED
    assert follower.is_over


def test_a_long_story_ends_with_its_end(life: Life) -> None:
    pod = life.pod()
    job_id = life.job()
    claim = life.claim(pod)
    count = 2 * BATCH_MAX + 1
    life.many_steps(job_id, count)
    life.finish(pod, claim)
    follower = Follower(life, job_id)
    facts = []
    while not follower.is_over:
        facts += follower.look()
    assert [f.seq for f in facts if isinstance(f, FollowedStep)] == list(range(1, count + 1))
    last = facts[-1]
    assert isinstance(last, Transition)
    assert last.new is JobStatus.COMPLETED


def test_watching_prints_a_fact_a_line_as_it_happens(cortex: Cortex, life: Life) -> None:
    pod = life.pod("one")
    job_id = str(life.job())
    watching = cortex.start("jobs", "watch", job_id)
    assert watching.stdout is not None

    def line() -> str:
        assert watching.stdout is not None
        found = watching.stdout.readline().rstrip("\n")
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", found), found
        return found[26:]

    assert line() == "○ pend"
    assert line() == "○ pend     no pod is there to run it"
    claim = life.claim(pod)
    assert line() == "● run      attempt 1 on one"
    life.step(pod, claim, 1, "plan", is_paid=True)
    assert line().split() == [
        *("+", "step", "1", "plan", "model", "250ms", "1.2k→34", "tokens", "$0.0123")
    ]
    life.release(pod, claim, "failed", "no page")
    assert line() == "✗ attempt  1 on one ended: failed: no page · next worker attempt at once"
    claim = life.claim(pod)
    assert line() == "● run      attempt 2 on one goes on"
    life.finish(pod, claim, result='{"text": "found"}')
    last = line()
    assert last.startswith("✓ done     ")
    assert last.endswith('1 step · 1.2k tokens in, 34 out · $0.0123 · {"text":"found"}')
    out, err = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, out, err) == (0, "", "")


def test_watching_for_machines(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed("no page"))
    ended = cortex("jobs", "watch", job_id, "--json")
    assert ended.code == 6
    assert [each["fact"] for each in ended.documents] == ["moved", "moved", "moved", "ended"]
    assert ended.documents[-1]["error_message"] == "no page"
    assert ended.documents[-1]["id"] == job_id


def test_live_line_is_rewritten_and_gone_at_the_end(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = str(life.job())
    watching = cortex.on_terminal("jobs", "watch", job_id, env={"NO_COLOR": "1"})
    watching.read_until(lambda text: "\r○ pend" in text, what="the live line")
    life.finish(pod, life.claim(pod))
    assert watching.end() == 0
    assert lines_seen(watching.text)[-1].partition("  ")[2].startswith("✓ done")
    assert [line.split()[1] for line in lines_seen(watching.text)] == ["○", "●", "✓"]


def test_plain_lines_on_a_terminal(cortex: Cortex, life: Life) -> None:
    job_id = str(life.failed())
    watching = cortex.on_terminal("jobs", "watch", job_id, "--plain", env={"NO_COLOR": "1"})
    assert watching.end() == 6
    assert "\x1b" not in watching.text


def test_ctrl_c_leaves_a_clean_terminal(cortex: Cortex, life: Life) -> None:
    watching = cortex.on_terminal("jobs", "watch", str(life.job()))
    watching.read_until(lambda text: "0 steps" in text, what="the live line")
    watching.interrupt()
    assert watching.end() == 130
    assert watching.text.endswith("\r\x1b[K")
    assert "Traceback" not in watching.text


def test_an_outage_of_the_database_is_waited_out(
    tmp_path: Path, private_postgres: PrivatePostgres
) -> None:
    dsn = private_postgres.dsn
    cortex = Cortex(tmp_path, dsn)
    assert cortex("migrate").code == 0
    with open_session(Profile(dsn=dsn)) as call:
        life = Life(call, dsn)
        pod, job_id = life.pod(), life.job()
    watching = cortex.start("jobs", "watch", str(job_id))
    assert watching.stdout is not None
    assert watching.stderr is not None
    assert "pend" in watching.stdout.readline()
    private_postgres.stop()
    assert watching.stderr.readline().endswith("; trying again\n")
    private_postgres.start()
    with open_session(Profile(dsn=dsn)) as call:
        life = Life(call, dsn)
        life.finish(pod, life.claim(pod))
    out, err = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, err) == (0, "")
    assert "✓ done" in out


def lines_seen(text: str) -> list[str]:
    """The lines that stay on a terminal: what was rewritten shows its last writing."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    last = [line.rsplit("\r", 1)[-1].replace("\x1b[K", "") for line in lines]
    return [line for line in last if line]


@pytest.mark.parametrize("is_live", [True, False])
def test_watch_shows_why_a_job_does_not_run(cortex: Cortex, life: Life, is_live: bool) -> None:
    life.pod()
    job_id = str(life.job(queue_name="mail"))
    life.call(pauses.pause, Pausable(PauseKind.QUEUE, "mail"), by="ana", reason="deploy")
    more = [] if is_live else ["--plain"]
    watching = cortex.on_terminal("jobs", "watch", job_id, *more, env={"NO_COLOR": "1"})
    output = "queue mail paused by ana: deploy"
    watching.read_until(lambda text: output in text, what="why")
    assert ("\r" + "○ pend" in watching.text.split(output)[0]) == is_live
    life.call(jobs.cancel, UUID(job_id), by="ana", reason="")
    assert watching.end() == 6
    assert (watching.text.count(output) > 1) == is_live or watching.text.count(output) == 1


def test_watch_shows_the_failure_of_a_job_in_retry(cortex: Cortex, life: Life) -> None:
    pod = life.pod()
    job_id = str(life.job())
    claim = life.claim(pod)
    suspend = Suspend(
        lease=claim.lease,
        delay_s=60.0,
        is_counted=True,
        waiting_on="llm:gpt",
        error="Number of requests",
        error_class="TRANSIENT_429",
        error_source="llm:gpt",
        code="rate_limit",
    )
    assert life.call(tasks.suspend, pod_id=pod, operations=[suspend])
    watching = cortex.on_terminal("jobs", "watch", job_id, env={"NO_COLOR": "1"})
    output = re.compile(r"retries in (59|\d\d)s · 429 from gpt: Number of requests")
    watching.read_until(lambda text: bool(output.search(text)), what="why and when")
    watching.interrupt()
    assert watching.end() == 130
