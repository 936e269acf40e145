"""Judges a storm by the jobs that it left: what each must be follows from its path.

How many of a map ran at once is counted from their records: a child that is held has none.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from attrs import frozen

from chaos.families import app
from chaos.families.storm import Member, Storm

SHOWN_MAX = 10


@frozen(kw_only=True)
class Verdict:
    """What a storm left."""

    families: int
    jobs: int
    kills: int
    cancels: int
    most_at_once: int
    """Children of one map."""
    doubled: int
    """Children with more than one job."""
    open: int
    """Jobs that have not ended."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(storm: Storm) -> Verdict:
    jobs_of = Counter(each.path for each in storm.members)
    doubled = [path for path, number in jobs_of.items() if number > 1]
    by_id = {each.id: each for each in storm.members}
    most = max((_at_once(each) for each in _maps(storm)), default=0)
    problems = [f"{path} has {jobs_of[path]} jobs" for path in doubled]
    for each in storm.members:
        parent = None if each.parent_id is None else by_id.get(each.parent_id)
        problems += _wrong(each, parent)
    problems += [f"{path} has no job" for path in _expected(storm) if path not in jobs_of]
    if most > app.AT_ONCE:
        problems.append(f"{most} children of a map ran at once: {app.AT_ONCE} may")
    if storm.left:
        problems.append(f"{storm.left} waits, lists or children are left")
    return Verdict(
        families=len(storm.families),
        jobs=len(storm.members),
        kills=storm.kills,
        cancels=storm.cancels,
        most_at_once=most,
        doubled=len(doubled),
        open=sum(each.finished_at is None for each in storm.members),
        problems=tuple(problems[:SHOWN_MAX]),
    )


def _expected(storm: Storm) -> Iterator[str]:
    """Yield the paths that must have jobs: all, but for those below what is cancelled."""
    for family in storm.families:
        yield family
        if family.endswith(app.ENDLESS):
            continue
        yield from (app.spawned(family), app.submitted(family))
        for branch in app.below(family):
            yield branch
            if not branch.endswith(app.ENDLESS):
                yield from app.below(branch)


def _wrong(member: Member, parent: Member | None) -> Iterator[str]:
    where = f"{member.type} {member.path}"
    if member.finished_at is None:
        yield f"{where} is {member.status}"
        return
    wanted = app.outcome(member.path)
    status = wanted if wanted in ("CANCELLED", "FAILED") else "COMPLETED"
    if member.status != status:
        why = f": {member.error}" if member.error else ""
        yield f"{where} is {member.status}, not {status}{why}"
    elif status == "COMPLETED" and member.result != wanted:
        yield f"{where} returned {member.result}, not {wanted}"
    if member.ends != 1:
        yield f"{where} ended {member.ends} times"
    if parent is not None and member.path not in _of_step(member, parent):
        yield f"{where} is child {member.ordinal} of step {member.step!r} of {parent.path}"


def _of_step(member: Member, parent: Member) -> list[str]:
    beside = {"one": app.spawned(parent.path), "aside": app.submitted(parent.path)}
    if member.step in beside:
        return [beside[member.step]]
    return app.below(parent.path)[member.ordinal or 0 :][:1]


def _maps(storm: Storm) -> Iterator[list[Member]]:
    """Yield the children of each map that were submitted."""
    of_map: dict[object, list[Member]] = {}
    for each in storm.members:
        if each.parent_id is not None and each.step not in ("one", "aside"):
            of_map.setdefault(each.parent_id, []).append(each)
    yield from of_map.values()


def _at_once(children: list[Member]) -> int:
    """Return how many overlapped at most; one may begin when another ends."""
    changes = sorted(
        chain.from_iterable(
            ((each.created_at, 1), *(((each.finished_at, -1),) if each.finished_at else ()))
            for each in children
        )
    )
    most = now = 0
    for _, step in changes:
        now += step
        most = max(most, now)
    return most
