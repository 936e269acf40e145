"""No stream of keys decides by accident: only the full sequence, each part after a silence.

What is legitimate is judged by the stream alone, with none of the code under test: the key that
decides, or the first one of an id or of a reason, has a silence before it, and so does the key that
opened the question, unless it follows a decision at once.

`CORTEX_FUZZ_STREAMS=1000000` runs the whole million; the default is what a gate has time for.
"""

import os
import random
from collections.abc import Callable, Iterator

import attrs
import pytest

from cortex_tui.clock import SystemClock
from cortex_tui.model.question import KeyAnswer
from cortex_tui.model.verdict import (
    LONGER_S,
    QUIET_MAX_S,
    QUIET_S,
    ApproveQuestion,
    DenyQuestion,
    Guard,
)

STREAMS = int(os.environ.get("CORTEX_FUZZ_STREAMS", "40000"))
IDS = ("y", "7f3c", "aa1d", "dada")
REASONS = ("one", "two", "three", "four", "five")
KEYS = (*"aaaayyyyddd1127f3cyYnjkqxA", "enter", "escape", "backspace", "down", "pagedown", "tab")
EPSILON_S = 1e-9

Press = tuple[float, str]
"""When, and which key."""
MakesGuard = Callable[[float], Guard]


@attrs.define
class Model:
    """The inbox as its keys see it: what is in front, the question that is open."""

    guard: Guard
    now: float = 0.0
    front: int = 0
    question: ApproveQuestion | DenyQuestion | None = None
    opened_at: float = 0.0
    decided: list[tuple[int, str]] = attrs.field(factory=list)
    """Index of the key in the stream, and how it was answered."""

    def press(self, index: int, key: str) -> None:
        if self.question is not None:
            self._answer(index, key)
            return
        counts = self.guard.press(self.now, came_at=self.now)
        if key in ("j", "k", "A", "n"):
            self.front += 1
            self.guard.restart(self.now)
        elif key in ("a", "d") and counts:
            self.question = self._approve() if key == "a" else self._deny()

    def _answer(self, index: int, key: str) -> None:
        assert self.question is not None
        character = {"enter": "\r", "backspace": "\x7f"}.get(key, key if len(key) == 1 else None)
        answer = self.question.press(key, character)
        if answer is KeyAnswer.NONE:
            return
        if answer is KeyAnswer.YES:
            kind = "approve" if isinstance(self.question, ApproveQuestion) else "deny"
            self.decided.append((index, kind))
            self.front += 1
            self.guard.skip(self.now)
        else:
            self.guard.restart(self.now)
        self.question = None

    def _approve(self) -> ApproveQuestion:
        return ApproveQuestion(
            "approve it",
            wanted=self.wanted,
            guard=self.guard,
            now=self._now,
            came=self._now,
            scroll=_nothing,
        )

    def _deny(self) -> DenyQuestion:
        return DenyQuestion(
            "deny it",
            reasons=REASONS,
            guard=self.guard,
            now=self._now,
            came=self._now,
            scroll=_nothing,
        )

    @property
    def wanted(self) -> str:
        return IDS[self.front % len(IDS)]

    def _now(self) -> float:
        return self.now


def _nothing(_: str) -> None:
    pass


def a_stream(rng: random.Random) -> list[Press]:
    """Bursts, held keys, typed text, and pauses around the silence."""
    stream: list[Press] = []
    at = rng.uniform(0, 1)
    while len(stream) < 24:
        kind = rng.randrange(4)
        if kind == 0:  # a held key: a first pause, then repeats
            key = rng.choice(KEYS)
            gaps = [rng.uniform(0.2, 0.7), *[0.033] * rng.randrange(8)]
            keys = [key] * len(gaps)
        elif kind == 1:  # typed ahead
            keys = rng.choices(KEYS, k=rng.randrange(1, 8))
            gaps = [rng.uniform(0, 0.25) for _ in keys]
        elif kind == 2:  # what would decide, too fast somewhere
            keys = [*rng.choice(("ay", "aay", "yay", "d1", "dno", "a7f3c", "jay", "Aay", "Ad1"))]
            gaps = [rng.choice((0.0, 0.05, 0.39, 0.41, 0.6)) for _ in keys]
        else:
            keys, gaps = [rng.choice(KEYS)], [rng.uniform(0, 2)]
        for key, gap in zip(keys, gaps, strict=True):
            at += gap
            stream.append((at, key))
    return stream


def accidents(stream: list[Press], decided: list[tuple[int, str]]) -> Iterator[str]:
    """Yield what decided without the full sequence after silence, judged by the stream alone."""
    before = -1
    for index, kind in decided:
        opener = "a" if kind == "approve" else "d"
        # What was typed last, back to a key that has a silence before it.
        first = index
        while first > before and _gap(stream, first) < QUIET_S - EPSILON_S:
            first -= 1
        opened = [
            at
            for at in range(before + 1, first)
            if stream[at][1] == opener
            and (_gap(stream, at) >= QUIET_S - EPSILON_S or at == before + 1 or at == 0)
        ]
        if first <= before:
            yield f"key {index} decided, with no silence since the decision before"
        elif not [at for at in range(before + 1, first) if stream[at][1] == opener]:
            yield f"key {index} decided, which nobody had opened by {opener} before a silence"
        elif not opened and before >= 0 and _since_front(stream, before, first) < QUIET_S:
            yield f"key {index} decided on what was just in front"
        elif kind == "approve" and stream[index][1] not in "y7f3caa1ddada":
            yield f"key {index}, {stream[index][1]}, approved"
        before = index


def _gap(stream: list[Press], index: int) -> float:
    return stream[index][0] - (stream[index - 1][0] if index else 0.0)


def _since_front(stream: list[Press], before: int, at: int) -> float:
    return stream[at][0] - stream[before][0]


def run(stream: list[Press], makes_guard: MakesGuard) -> list[tuple[int, str]]:
    model = Model(makes_guard(0.0))
    for index, (at, key) in enumerate(stream):
        model.now = at
        model.press(index, key)
    return model.decided


def fuzz(seed: int, count: int, makes_guard: MakesGuard) -> tuple[int, list[str]]:
    """Return how many decisions there were, and the accidents among them."""
    rng = random.Random(seed)
    decisions, found = 0, []
    for _ in range(count):
        stream = a_stream(rng)
        decided = run(stream, makes_guard)
        decisions += len(decided)
        found += [f"{output}: {stream}" for output in accidents(stream, decided)]
    return decisions, found


@pytest.mark.timeout(1200)
def test_no_stream_decides_by_accident() -> None:
    seed = int(os.environ.get("CORTEX_FUZZ_SEED", "1"))
    decisions, found = fuzz(seed, STREAMS, Guard)
    assert found == [], f"CORTEX_FUZZ_SEED={seed}, {STREAMS} streams"
    assert decisions > STREAMS / 100, "the full sequence does decide"


class NoSilence(Guard):
    """A guard that lets every key count."""

    def is_armed(self, now: float) -> bool:  # noqa: ARG002 -- the guard's
        return True


class NoAbsorbing(Guard):
    """A guard whose quiet time is not restarted by a key that comes too early."""

    def press(self, now: float, *, came_at: float) -> bool:  # noqa: ARG002 -- the guard's
        return self.is_armed(came_at)


class NoRestart(Guard):
    """A guard that forgets that another question is in front."""

    def restart(self, now: float) -> None:
        pass


@pytest.mark.parametrize("broken", [NoSilence, NoAbsorbing, NoRestart])
def test_a_broken_guard_is_found(broken: type[Guard]) -> None:
    _, found = fuzz(7, 2_000, broken)
    assert found


def test_no_stream_without_a_silence_ever_decides() -> None:
    rng = random.Random(3)
    for _ in range(2_000):
        stream: list[Press] = []
        at = 0.0
        for _ in range(60):
            at += rng.uniform(0, QUIET_S * 0.99)
            stream.append((at, rng.choice(KEYS)))
        assert run(stream, Guard) == []


def test_early_key_extends_the_silence_up_to_a_limit() -> None:
    guard = Guard(0.0)
    assert not guard.press(0.39, came_at=0.39)
    again = 0.39 + QUIET_S + LONGER_S - 0.01
    assert not guard.press(again, came_at=again)
    now = 10.0
    guard.restart(now)
    for _ in range(50):
        now += 0.1
        assert not guard.press(now, came_at=now)
    assert guard.armed_at == pytest.approx(now + QUIET_MAX_S)
    assert not guard.is_armed(now + QUIET_MAX_S - 0.01)
    assert guard.filled(now + QUIET_MAX_S / 2) == pytest.approx(0.5)
    assert guard.press(now + QUIET_MAX_S, came_at=now + QUIET_MAX_S)


def test_delayed_key_counts_by_its_arrival() -> None:
    guard = Guard(0.0)
    assert not guard.press(1.0, came_at=0.1), "the app stood still, the fingers did not"
    assert not guard.is_armed(1.0), "nor does it count for who asks a moment later"
    assert guard.press(2.0, came_at=1.0 + QUIET_S + LONGER_S)


def test_the_key_after_a_decision_counts_at_once() -> None:
    guard = Guard(0.0)
    guard.skip(0.1)
    assert guard.press(0.1, came_at=0.1)


def test_wrong_character_restarts_the_typed_id() -> None:
    clock = [0.0]
    question = ApproveQuestion(
        "",
        wanted="7f3c",
        guard=Guard(0.0),
        now=lambda: clock[0],
        came=lambda: clock[0],
        scroll=_nothing,
    )
    clock[0] = 1.0
    assert [question.press(each, each) for each in "7f37"] == [KeyAnswer.NONE] * 4
    assert question.typed == ""
    assert [question.press(each, each) for each in "7f3c"] == [KeyAnswer.NONE] * 4
    clock[0] = 3.0
    assert [question.press(each, each) for each in "7f3c"][-1] is KeyAnswer.YES


def test_words_deny_by_enter_and_one_letter_does_not() -> None:
    clock = [0.0]
    question = DenyQuestion(
        "",
        reasons=REASONS,
        guard=Guard(0.0),
        now=lambda: clock[0],
        came=lambda: clock[0],
        scroll=_nothing,
    )
    clock[0] = 1.0
    assert question.press("n", "n") is KeyAnswer.NONE
    assert question.press("enter", "\r") is KeyAnswer.NONE
    clock[0] = 2.0
    for each in "ot 1":
        assert question.press(each, each) is KeyAnswer.NONE
    assert question.press("enter", "\r") is KeyAnswer.YES
    assert question.reason == "not 1"


def test_clock_subtracts_the_wait_of_a_key() -> None:
    clock = SystemClock()
    before = clock.now()
    assert before - 5.0 <= clock.came(5.0) <= clock.now() - 5.0
