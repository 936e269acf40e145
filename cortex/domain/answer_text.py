"""What a model says while it says it: cut into messages for watchers, and put together again.

Messages are hints, as all notifications are: some may be lost, some come twice. Offsets tell which;
the committed step is the truth.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

PAYLOAD_BYTES_MAX: Final = 7_800
"""Postgres takes less than 8000 bytes a notification."""
ANSWERS_MAX: Final = 200
"""Of one job at once, and keys of committed ones that are remembered."""


@attrs.frozen(kw_only=True)
class AnswerPiece:
    """A part of a model's answer. Offsets count the characters of the answer."""

    job_id: UUID
    attempt: int
    key: str
    """The step for which the model is asked."""
    call: int
    """A later call in the same attempt has a larger number: what earlier ones said is void."""
    offset: int
    end: int
    """Where the next piece begins."""
    text: str
    missing: int = 0
    """For who puts pieces together: so many characters before this one never came."""


@attrs.frozen
class PollHint:
    """Something was committed of a job: who follows it should look at the record."""

    job_id: UUID


Message = AnswerPiece | PollHint


def payloads(messages: Iterable[Message]) -> list[str]:
    """Return messages as JSON texts of at most `PAYLOAD_BYTES_MAX` bytes, in order, few and full.

    The text must be storable: no half of a surrogate pair.
    """
    packed: list[str] = []
    batch: list[bytes] = []
    size = 0
    for row in (row for message in messages for row in _rows(message)):
        if batch and size + len(row) + 1 > PAYLOAD_BYTES_MAX:
            packed.append(_list(batch))
            batch, size = [], 0
        batch.append(row)
        size += len(row) + 1
    if batch:
        packed.append(_list(batch))
    return packed


def messages_of(payload: str) -> list[Message]:
    """Read one payload. Raises `ValueError` for one that `payloads` did not make."""
    try:
        return [_message(row) for row in orjson.loads(payload)]
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message of a stream: {payload[:80]!r}") from error


@attrs.define
class _ReceivedAnswer:
    """How far one answer was received."""

    call: int
    end: int = 0
    has_gap: bool = False


class AnswerReader:
    """Puts the answers of one job together, for one watcher.

    A piece that is returned goes where its `offset` says; one at offset 0 begins its answer anew.
    """

    def __init__(self) -> None:
        self._attempt = 0
        self._answers: dict[str, _ReceivedAnswer] = {}
        self._committed: dict[str, None] = {}

    def committed(self, key: str) -> None:
        """The step is in the record: pieces of it that still come are of no use."""
        self._answers.pop(key, None)
        self._committed[key] = None
        _keep_newest(self._committed)

    def take(self, piece: AnswerPiece) -> AnswerPiece | None:
        """Return what is new of a piece, with `missing` set; None if nothing is."""
        if piece.attempt < self._attempt or piece.key in self._committed:
            return None
        if piece.attempt > self._attempt:
            self._attempt = piece.attempt
            self._answers.clear()
        answer = self._answers.get(piece.key)
        if answer is not None and piece.call < answer.call:
            return None
        is_sent_anew = answer is not None and answer.has_gap and piece.offset == 0
        if answer is None or piece.call > answer.call or is_sent_anew:
            answer = self._answers[piece.key] = _ReceivedAnswer(piece.call)
            _keep_newest(self._answers)
        return _new_of(piece, answer)


def _new_of(piece: AnswerPiece, answer: _ReceivedAnswer) -> AnswerPiece | None:
    known = answer.end
    if piece.end <= known:
        return None
    answer.end = piece.end
    if piece.offset >= known:
        missing = piece.offset - known
        answer.has_gap = answer.has_gap or missing > 0
        return attrs.evolve(piece, missing=missing)
    # What has been replaced in a text makes it longer or shorter: then its end is as far from it.
    return attrs.evolve(piece, offset=known, text=piece.text[known - piece.end :])


def _rows(message: Message) -> Iterator[bytes]:
    """One message as JSON arrays, each of which fits into a payload."""
    if isinstance(message, PollHint):
        yield orjson.dumps([str(message.job_id)])
        return
    offset, text = message.offset, message.text
    while True:
        head, rest = _cut(text, PAYLOAD_BYTES_MAX - len(_row(message, offset, offset, "")) - 40)
        end = min(offset + len(head), message.end) if rest else message.end
        yield _row(message, offset, end, head)
        if not rest:
            return
        offset, text = end, rest


def _row(piece: AnswerPiece, offset: int, end: int, text: str) -> bytes:
    named = (str(piece.job_id), piece.attempt, piece.key, piece.call)
    return orjson.dumps([*named, offset, end, text])


def _cut(text: str, bytes_max: int) -> tuple[str, str]:
    """Split a text after as much of it as fits, one character at least."""
    head = text[:bytes_max]
    while len(head) > 1 and (size := len(orjson.dumps(head))) > bytes_max:
        head = head[: max(1, len(head) * bytes_max // size)]
    return head, text[len(head) :]


def _list(rows: list[bytes]) -> str:
    return f"[{b','.join(rows).decode()}]"


def _message(row: Any) -> Message:
    match row:
        case [str(job_id)]:
            return PollHint(UUID(job_id))
        case [str(job_id), int(attempt), str(key), int(call), int(offset), int(end), str(text)]:
            return AnswerPiece(
                job_id=UUID(job_id),
                attempt=attempt,
                key=key,
                call=call,
                offset=offset,
                end=end,
                text=text,
            )
        case _:
            raise ValueError("neither a piece of an answer nor a hint")


def _keep_newest(entries: dict[str, Any]) -> None:
    if len(entries) > ANSWERS_MAX:
        del entries[next(iter(entries))]
