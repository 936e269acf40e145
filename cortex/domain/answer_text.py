"""Model output in transit: cut into messages for watchers, and reassembled.

Messages are hints, like all notifications: some may be lost, some may come twice, which their
offsets show. The committed step is the truth.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

PAYLOAD_BYTES_MAX: Final = 7_800
"""Postgres takes less than 8000 bytes per notification."""
ANSWERS_MAX: Final = 200
"""Answers of one job at once, and keys of committed answers that are remembered."""


@attrs.frozen(kw_only=True)
class AnswerPiece:
    """A part of a model's answer. Offsets count the characters of the answer."""

    job_id: UUID
    attempt: int
    key: str
    """The step that calls the model."""
    call: int
    """A later call in the same attempt has a larger number: output of earlier ones is void."""
    offset: int
    end: int
    """Where the next piece begins."""
    text: str
    missing: int = 0
    """For the reader of pieces: how many characters before this one never came."""


@attrs.frozen
class PollHint:
    """Something was committed for a job: its followers should read the record."""

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
    """Reassembles the answers of one job, for one watcher.

    A returned piece belongs at its `offset`; one at offset 0 begins its answer again.
    """

    def __init__(self) -> None:
        self._attempt = 0
        self._answers: dict[str, _ReceivedAnswer] = {}
        self._committed: dict[str, None] = {}

    def committed(self, key: str) -> None:
        """The step is in the record: late pieces of it are useless."""
        self._answers.pop(key, None)
        self._committed[key] = None
        _keep_newest(self._committed)

    def take(self, piece: AnswerPiece) -> AnswerPiece | None:
        """Return the new part of a piece, with `missing` set; None if there is none."""
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
    received = answer.end
    if piece.end <= received:
        return None
    answer.end = piece.end
    if piece.offset >= received:
        missing = piece.offset - received
        answer.has_gap = answer.has_gap or missing > 0
        return attrs.evolve(piece, missing=missing)
    # Replaced text makes a piece longer or shorter; then its end is still at the right distance.
    return attrs.evolve(piece, offset=received, text=piece.text[received - piece.end :])


def _rows(message: Message) -> Iterator[bytes]:
    """Yield one message as JSON arrays, each of which fits into a payload."""
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
