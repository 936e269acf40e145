"""Trees of jobs, pauses and limits in the terminal UI."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from cortex.domain.job import JobStatus
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.store.children import SHOWN_MAX, JobTree, StepCount, TreeJob
from cortex.store.limits import LimitRow
from cortex.view.phrases import NOTHING
from cortex.view.tree import lines_of
from cortex_tui.render.tree_rows import page_lines, rows_of
from tests.support.hostile import treacherous
from tests.support.terminal.tui import FakeBackend, on_asyncio, sitting
from tests.support.terminal.tui_pods import a_pause

BEGAN: Final = datetime.fromtimestamp(1_000_000, UTC)
PARENT, CHILD = UUID(int=1), UUID(int=2)


def a_job(number: int, status: JobStatus = JobStatus.RUNNING, **fields: Any) -> TreeJob:
    known: dict[str, Any] = {
        "id": UUID(int=number),
        "type": "resize",
        "status": status,
        "waiting_on": None,
        "created_at": BEGAN,
        "started_at": BEGAN,
        "finished_at": None,
        "error_message": None,
        "has_children": False,
        "now": BEGAN + timedelta(seconds=5),
        "step": "pages",
        "ordinal": number - 2,
        "is_detached": False,
        "is_withdrawn": False,
        "budgets": (),
        "parent_id": PARENT,
    }
    return TreeJob(**known | fields)


def a_tree(shown_max: int, *, count: int = 30, **of_first: Any) -> JobTree:
    """A job with running children, of which some are shown."""
    root = a_job(1, type="digest", step=None, ordinal=None, parent_id=None, has_children=True)
    shown = [a_job(2 + nth, **of_first if nth == 0 else {}) for nth in range(shown_max)]
    running = StepCount(step="pages", status=JobStatus.RUNNING, is_withdrawn=False, count=count)
    children = tuple(JobTree(job=each, counts=(), children=()) for each in shown[:count])
    return JobTree(job=root, counts=(running,), children=children)


def a_limit(**fields: Any) -> LimitRow:
    known: dict[str, Any] = {
        "name": "digest:running:tenant",
        "type": "digest",
        "unit": "running",
        "per": None,
        "key": "tenant",
        "limit_amount": 5,
        "changed_at": BEGAN,
        "keys": 3,
        "full_keys": 1,
        "busiest_key": "acme",
        "busiest_used": 5,
        "waiting_jobs": 12,
        "now": BEGAN,
    }
    return LimitRow(**known | fields)


def test_lines_of_a_tree_keep_their_keys_while_others_change() -> None:
    few, more = (rows_of(lines_of(a_tree(2, count=count))) for count in (5, 900))
    assert [row.key for row in few] == [row.key for row in more]
    assert [row.key for row in few] == [PARENT, CHILD, UUID(int=3), ("more", PARENT)]


def test_hostile_text_of_a_child_stays_text() -> None:
    bad = "a\x1b[2J\u202eb\nc"
    (_, row, *_) = rows_of(lines_of(a_tree(1, type=bad, step=bad, error_message=bad)))
    shown = "\n".join("".join(cell.text for cell in line) for line in page_lines(row, BEGAN, 80))
    assert "error" in shown
    assert treacherous(shown) == []


@on_asyncio
async def test_tree_of_a_job_opens_its_children_and_what_is_folded(cluster: FakeBackend) -> None:
    for job_id in (1, 2):
        cluster.add(job_id, status="RUNNING", has_children=True)
    asked: list[int] = []

    def grown(shown_max: int) -> JobTree:
        asked.append(shown_max)
        return a_tree(shown_max)

    cluster.one.grown = grown
    async with sitting(cluster, size=(80, 24)) as seat:
        await seat.press("j", "T")
        await seat.pass_time(1)
        assert "└─ … 20 more: 20 running" in seat.text
        assert "00:" in seat.text, "the times of running jobs go on"
        await seat.pass_time(1)
        assert asked == [SHOWN_MAX], "a tree is read every other second"
        await seat.press("j", "enter")
        await seat.pass_time(1)
        assert "tree" not in seat.lines[0]
        await seat.press("T")
        await seat.pass_time(1)
        await seat.press("escape", "escape")
        assert "tree" in seat.lines[0], "esc returns from the child"
        await seat.press("G", "enter")
        await seat.pass_time(3)
        assert asked[-1] == SHOWN_MAX * 10
        assert "more:" not in seat.text


@on_asyncio
async def test_pauses_and_limits_are_listed_from_the_queues(cluster: FakeBackend) -> None:
    cluster.queues.add("mail", paused_at=BEGAN)
    job_id = cluster.add(7, status="PENDING")
    job = Pausable(PauseKind.JOB, str(job_id))
    cluster.queues.paused.append(a_pause(job, BEGAN, by="ana", reason="wrong customer"))
    tokens = {"unit": "tokens", "per": "minute", "key": "model", "limit_amount": 100_000}
    of_agent = a_limit(name="agent:bo:tokens/minute:model", type="agent:bo", **tokens)
    cluster.queues.limited += [a_limit(), of_agent]
    async with sitting(cluster, size=(80, 24), first="pods") as seat:
        await seat.press("p")
        await seat.pass_time(1)
        (line,) = (line for line in seat.lines if "job …000007" in line)
        assert "ana" in line
        assert "wrong customer" in line
        (queue,) = (line for line in seat.lines if "queue mail" in line)
        assert NOTHING in queue, "what a queue holds back is not counted"
        await seat.press("enter")
        assert "000007" in seat.lines[0]
        await seat.press("escape", "escape", "l")
        await seat.pass_time(1)
        assert "digest:running:tenant" in seat.text
        assert "5 at once for each tenant" in seat.text
        assert "agent:bo:tokens/minute:model" in seat.text, "jobs that wait for it show the name"
        assert "100,000 tokens a minute" in seat.text
        assert "acme: 5" in seat.text
        await seat.press("j")
        assert "by the file of the agent" in seat.text
