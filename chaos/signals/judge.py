"""Judges a storm of signals: by what the jobs returned, and what the senders had acknowledged."""

from collections.abc import Iterator

from attrs import frozen

from chaos.signals.storm import Received, Storm

SHOWN_MAX = 10


@frozen(kw_only=True)
class Verdict:
    """What a storm left."""

    jobs: int
    sent: int
    repeated: int
    received: int
    kills: int
    attempts: int
    took_s: float
    lost: int
    """Signals that were acknowledged and not received."""
    doubled: int
    """Signals that were received again."""
    disordered: int
    """Jobs that received them in another order."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(storm: Storm) -> Verdict:
    lists = [each.items if isinstance(each.items, list) else [] for each in storm.jobs]
    wanted = range(storm.count)
    problems = [why for each in storm.jobs for why in _wrong(each, storm.count)]
    if storm.sent != storm.count * len(storm.jobs):
        problems.append(f"{storm.sent} signals were acknowledged for {len(storm.jobs)} jobs")
    return Verdict(
        jobs=len(storm.jobs),
        sent=storm.sent,
        repeated=storm.repeated,
        received=sum(map(len, lists)),
        kills=storm.kills,
        attempts=storm.attempts,
        took_s=storm.took_s,
        lost=sum(len(set(wanted) - set(items)) for items in lists),
        doubled=sum(len(items) - len(set(items)) for items in lists),
        disordered=sum(items != sorted(items) for items in lists),
        problems=tuple(problems[:SHOWN_MAX]),
    )


def _wrong(job: Received, count: int) -> Iterator[str]:
    if job.status != "COMPLETED":
        yield f"job {job.job_id} is {job.status}"
    elif job.items != [*range(count)]:
        yield f"job {job.job_id} received {job.items}"
