"""Judges a storm: what was paid twice, and which effects were doubled or are missing.

By the logs of the model and of the servers alone: the runtime's record says only which answers were
recorded at each kill.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from attrs import frozen

from chaos.agents.script import APPEND, DONE, PUT, texts_of
from chaos.agents.storm import Kill, Run, Storm
from chaos.evidence import ModelCall

COMPLETED: Final = "COMPLETED"
CLOCK_S: Final = 0.1
"""How late the model's clock may run: its start is noticed by polling, some 10 ms after its zero.

No pod takes a job over within that time, so this excuses no call of the next one.
"""


@frozen(kw_only=True)
class Verdict:
    """What a storm left."""

    kills: int
    agents: int
    calls: int
    """Of the model."""
    repeated: int
    """Calls that were under way when a pod was killed, and made again."""
    paid_twice: tuple[str, ...]
    """Others that were made again."""
    effects: int
    """Lines that the servers wrote."""
    doubled: tuple[str, ...]
    missing: tuple[str, ...]
    """Effects that an agent that says it is done has not made."""
    unfinished: tuple[str, ...]
    resolved: int

    @property
    def problems(self) -> list[str]:
        return [
            *(f"paid twice: {each}" for each in self.paid_twice),
            *(f"doubled: {each}" for each in self.doubled),
            *(f"missing: {each}" for each in self.missing),
            *self.unfinished,
        ]

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(storm: Storm) -> Verdict:
    paid = [_paid(run, storm) for run in storm.runs]
    lines = [(run, tool, run.written[tool]) for run in storm.runs for tool in (APPEND, PUT)]
    return Verdict(
        kills=len(storm.kills),
        agents=len(storm.runs),
        calls=len(storm.calls),
        repeated=sum(count for count, _ in paid),
        paid_twice=tuple(text for _, texts in paid for text in texts),
        effects=sum(len(written) for _, _, written in lines),
        doubled=(
            *(
                f"{run.key}: {text!r} {count} times"
                for run, _, written in lines
                for text, count in Counter(written).items()
                if count > 1
            ),
            *(text for run in storm.runs for text in _called_again(run, storm)),
        ),
        missing=tuple(
            f"{run.key}: {text!r}"
            for run, tool, written in lines
            for text in texts_of(tool, run.turns)
            if text not in written or (tool == PUT and text not in run.called)
        ),
        unfinished=tuple(
            f"{run.key} ended {run.status} with {run.result}"
            for run in storm.runs
            if not _is_done(run)
        ),
        resolved=storm.resolved,
    )


def _is_done(run: Run) -> bool:
    return run.status == COMPLETED and DONE in json.dumps(run.result)


def _called_again(run: Run, storm: Storm) -> Iterator[str]:
    """Name calls that may be repeated, but were so more often than kills hit their turn."""
    kills = Counter(kill.turns for kill in storm.kills if kill.job_id == run.job_id)
    for text, count in Counter(run.called).items():
        turn = int(text.rpartition(" ")[2])
        if count - 1 > kills[turn + 1]:  # the answer that asks for it was on record
            yield f"{run.key}: {text!r} called {count} times, killed {kills[turn + 1]} times"


def _paid(run: Run, storm: Storm) -> tuple[int, list[str]]:
    """Return how many calls of an agent were rightly made again, and those that were not."""
    by_turn: defaultdict[int, list[ModelCall]] = defaultdict(list)
    for call in storm.calls:
        if call.conversation == run.key:
            by_turn[call.turn].append(call)
    kills = [each for each in storm.kills if each.job_id == run.job_id]
    used: set[Kill] = set()
    wrong = list(_beyond(run, by_turn))
    repeated = 0
    for turn, calls in sorted(by_turn.items()):
        for first, again in pairwise(calls):
            kill = _excuse(kills, used, turn, first, again)
            if kill is None:
                wrong.append(
                    f"{run.key}: turn {turn} at {again.at_s:.2f} s, {first.outcome} before"
                )
            else:
                used.add(kill)
                repeated += 1
    return repeated, wrong


def _beyond(run: Run, by_turn: dict[int, list[ModelCall]]) -> Iterator[str]:
    """Name calls of turns that the conversation does not have."""
    for turn in sorted(by_turn):
        if turn >= run.turns:
            yield f"{run.key}: turn {turn} of {run.turns}"


def _excuse(
    kills: Sequence[Kill], used: set[Kill], turn: int, first: ModelCall, again: ModelCall
) -> Kill | None:
    """Return the kill between two calls of a turn, whose answer was not recorded by then.

    A kill excuses one call: the one under way.
    """
    for kill in kills:
        is_between = first.at_s - CLOCK_S <= kill.dead_s and kill.at_s <= again.at_s
        if is_between and kill.turns <= turn and kill not in used:
            return kill
    return None
