"""The tree of a job and the jobs below it, as aligned lines."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import attrs

from cortex.domain.job import JobStatus
from cortex.domain.job_filter import STATE_WORDS
from cortex.domain.phrases import short_id, span
from cortex.store.children import JobTree, StepCount, TreeJob
from cortex.view.cells import Cell
from cortex.view.jobs import spent_text, state_shown

HELD: Final = Cell("· held", "dim")
GIVEN_UP: Final = Cell("⊘ given up", STATE_WORDS[JobStatus.CANCELLED])
_ORDER: Final = (
    *(JobStatus.FAILED, JobStatus.RUNNING, JobStatus.RETRY, JobStatus.WAITING_FOR_APPROVAL),
    *(JobStatus.PENDING, JobStatus.CANCELLED, JobStatus.COMPLETED),
)
_WORDS: Final = {
    JobStatus.FAILED: "failed",
    JobStatus.RUNNING: "running",
    JobStatus.RETRY: "waiting",
    JobStatus.WAITING_FOR_APPROVAL: "waiting",
    JobStatus.PENDING: "pending",
    JobStatus.CANCELLED: "cancelled",
    JobStatus.COMPLETED: "completed",
}


@attrs.frozen(kw_only=True)
class TreeLine:
    """One line: a job, or how many more there are."""

    branch: str
    """The branches that lead to it."""
    name: str
    state: Cell | None
    """None: the line is about several jobs."""
    time: str
    note: str
    job: TreeJob | None


def lines_of(tree: JobTree) -> list[TreeLine]:
    """Return the lines of a tree; texts of jobs are not safe yet."""
    return [_line(tree.job, "", is_root=True), *_below(tree, "")]


def counted(counts: tuple[StepCount, ...] | list[StepCount]) -> str:
    """Say how many children are in which state: `10 failed, 50 running, 9,940 completed`."""
    by_word: Counter[str] = Counter()
    for each in sorted(counts, key=lambda each: _rank(each.status)):
        by_word[_word(each)] += each.count
    return ", ".join(f"{number:,} {word}" for word, number in by_word.items())


def _rank(status: JobStatus | None) -> int:
    return len(_ORDER) if status is None else _ORDER.index(status)


def _word(each: StepCount) -> str:
    if each.status is None:
        return "given up" if each.is_withdrawn else "held"
    return _WORDS[each.status]


def _below(tree: JobTree, branch: str) -> Iterator[TreeLine]:
    shown = Counter((each.job.status, each.job.is_withdrawn) for each in tree.children)
    left = []
    for each in tree.counts:
        key = (each.status, each.is_withdrawn)
        of_it = min(shown[key], each.count)
        shown[key] -= of_it
        if each.count > of_it:
            left.append(attrs.evolve(each, count=each.count - of_it))
    for nth, child in enumerate(tree.children, start=1):
        is_last = nth == len(tree.children) and not left
        yield _line(child.job, f"{branch}{'└─ ' if is_last else '├─ '}")
        yield from _below(child, f"{branch}{'   ' if is_last else '│  '}")
    if left:
        number = sum(each.count for each in left)
        yield TreeLine(
            branch=f"{branch}└─ ",
            name=f"… {number:,} more: {counted(left)}",
            state=None,
            time="",
            note="",
            job=None,
        )


def _line(job: TreeJob, branch: str, *, is_root: bool = False) -> TreeLine:
    step = "" if is_root or job.step in (None, job.type) else f" {job.step}"
    place = "" if is_root or not job.ordinal else f" #{job.ordinal + 1}"
    return TreeLine(
        branch=branch,
        name=f"{job.type}{step}{place} {short_id(job.id)}",
        state=_state(job),
        time=_time(job),
        note=" · ".join(
            part
            for part in (
                "detached" if job.is_detached else "",
                *map(spent_text, job.budgets),
                job.error_message or "",
            )
            if part
        ),
        job=job,
    )


def _state(job: TreeJob) -> Cell:
    if job.status is None:
        return GIVEN_UP if job.is_withdrawn else HELD
    state = state_shown(job.status, job.waiting_on)
    return Cell(str(state), state.style)


def _time(job: TreeJob) -> str:
    if job.started_at is None:
        return ""
    return span(((job.finished_at or job.now) - job.started_at).total_seconds())


def flat(tree: JobTree) -> dict[str, Any]:
    """Return a tree as plain lists: its jobs, each after its parent, and counts by step."""
    found: dict[str, list[dict[str, Any]]] = {"jobs": [], "counts": []}
    _flatten(tree, found)
    return found


def _flatten(tree: JobTree, into: dict[str, list[dict[str, Any]]]) -> None:
    job = attrs.asdict(tree.job, recurse=False, filter=lambda field, _: field.name not in _UNSHOWN)
    into["jobs"].append(job)
    for each in tree.counts:
        into["counts"].append({"parent_id": tree.job.id, **attrs.asdict(each, recurse=False)})
    for child in tree.children:
        _flatten(child, into)


_UNSHOWN: Final = ("now", "has_children")
