"""The output of a watched job's model, bounded: the newest answer of each step."""

from collections import deque
from typing import Final

import orjson

from cortex.domain.answer_text import AnswerPiece, AnswerReader

CHARS_MAX: Final = 64 * 1024
"""Of one answer; a longer one loses its beginning."""
ANSWERS_MAX: Final = 8
"""Steps whose models stream at once and are kept whole."""
LINE_CHARS_MAX: Final = 1_000
"""Longer lines are broken: laying one out again for each piece would cost too much."""
GAP: Final = " … "
RATE_OVER_S: Final = 3.0
EMITTED: Final = "emitted"
"""What the job's code emits, in place of the key of a step."""


class StreamedAnswer:
    def __init__(self) -> None:
        self.lines: deque[str] = deque([""])
        self.chars = 0

    def add(self, text: str) -> None:
        first, *others = text.replace("\r\n", "\n").split("\n")
        self._append(first)
        for line in others:
            self.lines.append("")
            self._append(line)
        self.chars += len(text)
        while self.chars > CHARS_MAX and len(self.lines) > 1:
            self.chars -= len(self.lines.popleft()) + 1

    def _append(self, text: str) -> None:
        self.lines[-1] += text
        while len(long := self.lines[-1]) > LINE_CHARS_MAX:
            at = long.rfind(" ", LINE_CHARS_MAX // 2, LINE_CHARS_MAX) + 1 or LINE_CHARS_MAX
            self.lines[-1] = long[:at]
            self.lines.append(long[at:])


class Stream:
    """Assembles messages as they arrive. Texts come from models and are not safe yet."""

    def __init__(self) -> None:
        self._reader = AnswerReader()
        self._answers: dict[str, StreamedAnswer] = {}
        self._recent: deque[tuple[float, int]] = deque()
        self.key = ""
        """The step whose model spoke last, or ""."""
        self.is_over = False
        """That step is committed."""
        self._emitted_seq = 0

    @property
    def answer(self) -> StreamedAnswer | None:
        """Return the answer of that step so far."""
        return self._answers.get(self.key)

    def take(self, piece: AnswerPiece, *, now: float) -> bool:
        """Take a piece; return whether any of it is new."""
        found = self._reader.take(piece)
        if found is None:
            return False
        if found.offset == 0 or found.key not in self._answers:
            self._answers.pop(found.key, None)
            self._answers[found.key] = StreamedAnswer()
            if len(self._answers) > ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
        is_first = not self._answers[found.key].chars
        self._answers[found.key].add((GAP if found.missing else "") + found.text)
        self.key, self.is_over = found.key, False
        if not is_first:  # that may be all the output before anyone listened
            self._recent.append((now, len(found.text)))
            self._forget(now)
        return True

    def committed(self, key: str) -> None:
        """Note that the step is committed: its answer is complete."""
        self._reader.committed(key)
        if key == self.key:
            self.is_over = True

    def emitted(self, seq: int, chunk: str) -> bool:
        """Add what the job's code emitted in a step, as JSON text; return whether it is new.

        A model that speaks keeps the pane until its step is committed.
        """
        if seq <= self._emitted_seq:
            return False
        self._emitted_seq = seq
        answer = self._answers.setdefault(EMITTED, StreamedAnswer())
        answer.add(f"{_text(chunk)}\n")
        if self.is_over or self.key in ("", EMITTED):
            self.key, self.is_over = EMITTED, True
        return True

    def chars_a_second(self, now: float) -> float:
        """Return the speed of the output."""
        self._forget(now)
        return sum(chars for _, chars in self._recent) / RATE_OVER_S

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - RATE_OVER_S:
            self._recent.popleft()


def _text(chunk: str) -> str:
    """Return a text as itself and other JSON as it is, which may be truncated."""
    try:
        value = orjson.loads(chunk)
    except orjson.JSONDecodeError:
        return chunk
    return value.removesuffix("\n") if isinstance(value, str) else chunk
