"""The messages between a pod and a runner: JSON in frames, and calls with replies over them.

The pod never executes or unpickles a runner's data, and never lets a runner name its job: a job
that has taken its process over can do no more than its own attempt could.
"""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
import orjson
import trio
from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.orjson import make_converter

from cortex.domain.classification import class_name, describe, failure_of
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import CortexError, InvalidValueError, MisfitKind, UnfitCodeError
from cortex.domain.failure import Failure
from cortex.domain.job import StepDone
from cortex.durable.heavy_values import TEXT, refuse_heavy, scarce

T = TypeVar("T")
HEADER_BYTES: Final = 4
FRAME_BYTES_MAX: Final = TEXT.bytes_max
"""More than any result, checkpoint or model response may have."""
READ_BYTES: Final = 65_536
WAITING_MAX: Final = 10_000
"""Messages in flight: far more than the steps that a job runs at once."""
CONGESTED: Final = 100
"""Messages in flight above which a job's log waits."""
OWN_OF_STEPS: Final = ("spent", "ended_at", "tally")
"""Fields of a finished step that each side has for itself."""


def _converter() -> Any:
    made = make_converter()
    for shape in (UUID, Decimal):
        made.register_unstructure_hook(shape, str)
        made.register_structure_hook(shape, lambda value, kind: kind(value))
    made.register_unstructure_hook(
        StepDone,
        make_dict_unstructure_fn(
            StepDone,
            made,
            spent=override(omit=True),
            ended_at=override(omit=True),
            tally=override(omit=True),
        ),
    )
    return made


_CONVERTER: Final = _converter()


def plain(value: Any, shape: Any = None) -> Any:
    """Return a value as plain JSON; `shape` where its own type is not enough."""
    return _CONVERTER.unstructure(value, unstructure_as=shape)


def shaped(value: Any, shape: type[T]) -> T:
    """Restore a value that `plain` has converted."""
    restored: T = _CONVERTER.structure(value, shape)
    return restored


def fields_of(document: dict[str, Any], kind: type, *, without: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an attrs class except some, each in its own shape."""
    return {
        field.name: shaped(document[field.name], field.type)
        for field in attrs.fields(kind)
        if field.name not in without
    }


def plain_error(error: BaseException) -> dict[str, Any]:
    """Return what the other side needs to raise an error again."""
    if isinstance(error, LeaseLost):
        return {"kind": "LeaseLost", "message": str(error)}
    if isinstance(error, UnfitCodeError):
        return {"kind": "UnfitCodeError", "message": error.message, "misfit": error.kind}
    if isinstance(error, Suspended):
        return {"kind": "Suspended", "wish": plain(_PlainSuspended.of(error))}
    hint = error.hint if isinstance(error, CortexError) else None
    document = {"kind": class_name(error), "message": describe(error), "hint": hint}
    return document | {"failure": plain(failure_of(error))}


def error_of(document: dict[str, Any]) -> BaseException:
    """Restore an error that `plain_error` has converted, with the same classification.

    An error of one of our own classes keeps its class, others become `RemoteError`.
    """
    if document["kind"] == "LeaseLost":
        return LeaseLost(document["message"])
    if document["kind"] == "UnfitCodeError":
        return UnfitCodeError(document["message"], kind=MisfitKind(document["misfit"]))
    if document["kind"] == "Suspended":
        return shaped(document["wish"], _PlainSuspended).error()
    failure = shaped(document["failure"], Failure)
    kind = _ours(document["kind"], CortexError) or RemoteError
    error = kind.__new__(kind)
    CortexError.__init__(error, document["message"], hint=document["hint"])
    for name in ("retry_after_s", "scope", "limit_s", "raw"):
        setattr(error, name, getattr(failure, name))
    error.failure = failure
    restored: BaseException = error
    return restored


class RemoteError(CortexError):
    """An error that was raised in another process; `failure` is its classification there."""

    code = "remote"
    failure: Failure


@attrs.frozen(kw_only=True)
class _PlainSuspended:
    """The fields of a `Suspended`, which is no attrs class."""

    waiting_on: str
    reason: str
    delay_s: float | None
    failure: Failure | None
    opened_unix_s: float | None

    @classmethod
    def of(cls, wish: Suspended) -> "_PlainSuspended":
        return cls(**{field.name: getattr(wish, field.name) for field in attrs.fields(cls)})

    def error(self) -> Suspended:
        return Suspended(
            self.waiting_on,
            self.reason,
            delay_s=self.delay_s,
            failure=self.failure,
            opened_unix_s=self.opened_unix_s,
        )


def _ours(name: str, family: type[CortexError]) -> Any:
    if family.__name__ == name:
        return family
    return next(filter(None, (_ours(name, each) for each in family.__subclasses__())), None)


class Channel:
    """One end of the connection. Whole frames only: a cancelled read loses nothing."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._number = 0
        self._waiting: dict[int, tuple[trio.Event, list[dict[str, Any]]]] = {}
        self._outgoing, self._queue = trio.open_memory_channel[bytes](WAITING_MAX)

    @property
    def is_congested(self) -> bool:
        """Whether the other side reads too slowly for messages that can wait."""
        return self._outgoing.statistics().current_buffer_used > CONGESTED

    def send(self, **message: Any) -> None:
        """Queue a message. Raises `InvalidValueError` if it is too large."""
        self._outgoing.send_nowait(_frame(message))

    async def call(self, what: str, /, **given: Any) -> Any:
        """Call a method of the other side; return its answer, or raise its error."""
        self._number += 1
        number, done = self._number, trio.Event()
        answers: list[dict[str, Any]] = []
        self._waiting[number] = done, answers
        try:
            await self._outgoing.send(_frame({"call": what, "number": number, "given": given}))
            await done.wait()
        except trio.Cancelled:
            self.send(drop=number)
            raise
        finally:
            del self._waiting[number]
        answer = answers[0]
        if "error" in answer:
            raise error_of(answer["error"])
        return answer["answer"]

    def answered(self, message: dict[str, Any]) -> None:
        """Pass an answer to the call that waits for it, if it still does."""
        waiting = self._waiting.get(message["reply"])
        if waiting is not None:
            waiting[1].append(message)
            waiting[0].set()

    async def reply(self, number: int, work: Callable[[], Awaitable[Any]]) -> None:
        """Do what a call requests and answer it. A cancelled call is not answered."""
        try:
            frame = _frame({"reply": number, "answer": await work()})
        except (Exception, LeaseLost, Suspended) as error:  # noqa: BLE001 -- it is raised there
            frame = _frame({"reply": number, "error": plain_error(error)})
        await self._outgoing.send(frame)

    async def write(self) -> None:
        """Send queued messages until cancelled, or until the other side has gone."""
        async for frame in self._queue:
            try:
                await self._stream.send_all(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def finish(self) -> None:
        """Let `write` end when everything queued is sent."""
        self._outgoing.close()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the other side has gone."""
        while (message := self._next()) is None:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not data:
                return None
            self._buffer += data
        return message

    def _next(self) -> dict[str, Any] | None:
        if len(self._buffer) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        if size > FRAME_BYTES_MAX:
            raise InvalidValueError(f"a runner sends a message of {size} bytes")
        end = HEADER_BYTES + size
        if len(self._buffer) < end:
            return None
        text = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        message: dict[str, Any] = orjson.loads(text)
        return message


def _frame(message: dict[str, Any]) -> bytes:
    if scarce.memory:
        refuse_heavy(message, "a message to the pod", TEXT)
    text = orjson.dumps(message)
    if len(text) > FRAME_BYTES_MAX:
        raise InvalidValueError(f"{len(text)} bytes are too many for one message")
    return len(text).to_bytes(HEADER_BYTES, "big") + text
