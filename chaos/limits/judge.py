"""Judges a storm by what its jobs wrote: whether a limit was exceeded, and whether a key starved.

The runtime's record says only which jobs have ended, and which places are left.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from attrs import frozen

from chaos.limits.app import OF_ALL, OF_KEY
from chaos.limits.storm import Note, Storm

SPREAD_MAX = 4 * OF_KEY
"""How far the begins of two keys may be apart while both have jobs left. A key has at most five
places; those of a killed pod come later, after each kill."""


@frozen(kw_only=True)
class Verdict:
    """What a storm left."""

    jobs: int
    keys: int
    kills: int
    runs: int
    """Attempts."""
    most_of_key: int
    """Jobs of one key that ran at once."""
    most_of_all: int
    spread: int
    """How far the begins of two keys were apart at most, while both had jobs left."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(storm: Storm) -> Verdict:
    most_of_key = max((_at_once(notes) for notes in _by_key(storm)), default=0)
    most_of_all = _at_once(list(_spans(storm)))
    spread = _spread(storm)
    count = sum(storm.jobs_of.values())
    problems = []
    if most_of_key > OF_KEY:
        problems.append(f"{most_of_key} jobs of one key ran at once: the limit is {OF_KEY}")
    if most_of_all > OF_ALL:
        problems.append(f"{most_of_all} jobs ran at once: the limit is {OF_ALL}")
    if spread > SPREAD_MAX:
        problems.append(f"a key was {spread} jobs behind another one")
    if storm.statuses != {"COMPLETED": count}:
        problems.append(f"not all jobs completed: {storm.statuses}")
    if storm.places_left:
        problems.append(f"{storm.places_left} places are held, and no job runs")
    return Verdict(
        jobs=count,
        keys=len(storm.jobs_of),
        kills=len(storm.killed_at_s),
        runs=sum(note.is_begin for note in storm.notes),
        most_of_key=most_of_key,
        most_of_all=most_of_all,
        spread=spread,
        problems=tuple(problems),
    )


def _spans(storm: Storm) -> Iterator[tuple[str, float, float]]:
    """Yield the key, the begin and the end of each run; one that was killed ends with its pod."""
    open_runs: dict[tuple[str, int], Note] = {}
    for note in storm.notes:
        run = (note.job_id, note.pid)
        if note.is_begin:
            open_runs[run] = note
        elif (begun := open_runs.pop(run, None)) is not None:
            yield begun.key, begun.at_s, note.at_s
    for begun in open_runs.values():
        ended_s = storm.killed_at_s.get(begun.pid, begun.at_s)
        yield begun.key, begun.at_s, max(begun.at_s, ended_s)


def _by_key(storm: Storm) -> Iterator[list[tuple[str, float, float]]]:
    spans = sorted(_spans(storm))
    for _, of_key in groupby(spans, key=lambda span: span[0]):
        yield list(of_key)


def _at_once(spans: list[tuple[str, float, float]]) -> int:
    """Return how many overlapped at most; one may begin when another ends."""
    changes = sorted(
        change for _, begun_s, ended_s in spans for change in ((begun_s, 1), (ended_s, -1))
    )
    most = now = 0
    for _, step in changes:
        now += step
        most = max(most, now)
    return most


def _spread(storm: Storm) -> int:
    """Count first begins in their order, and compare the keys that have jobs left."""
    first: dict[str, Note] = {}
    for note in storm.notes:
        if note.is_begin:
            first.setdefault(note.job_id, note)
    begun: Counter[str] = Counter(dict.fromkeys(storm.jobs_of, 0))
    since: Counter[str] = Counter(dict.fromkeys(storm.jobs_of, 0))
    spread = 0
    for note in sorted(first.values(), key=lambda each: each.at_s):
        begun[note.key] += 1
        # Before, jobs are still being submitted: later keys cannot have begun.
        if note.at_s > storm.submitted_at_s:
            since[note.key] += 1
            left = [since[key] for key, number in begun.items() if number < storm.jobs_of[key]]
            spread = max(spread, since[note.key] - min(left, default=since[note.key]))
    return spread
