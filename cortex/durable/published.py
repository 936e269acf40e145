"""What job code publishes while it runs: its state, its progress, and how much it has emitted.

An assignment costs no query: changes are gathered and sent before the next step is recorded, at
the latest `GATHER_S` later, and when the attempt ends. Code may assign from any thread.

A replayed handler assigns old values again. While something on record is still due, its assignments
count only if it has assigned the key more often than the record says: so what later code or a step
that does not run again has published stays, and what a killed pod had not sent yet is not lost.
What a step assigns is new: one on record does not run.
"""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final, Protocol

import attrs
import orjson
import trio
from trio.lowlevel import in_trio_run

from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import CortexError, InvalidValueError
from cortex.domain.job import Lease, Publish
from cortex.domain.published import (
    CHUNK_BYTES_MAX,
    CHUNKS_MAX,
    STATE,
    STATE_KEYS_MAX,
    JobProgress,
    check_state_key,
)
from cortex.domain.tracing import current
from cortex.durable.codec import decode, encode
from cortex.logger import Logger

PROGRESS: Final = ""
"""Stands for the progress among keys: no key is empty."""
GATHER_S: Final = 0.25
"""How long changes are gathered: a pod that is killed loses no more than these."""

_log: Final = Logger(__name__)


class Publisher(Protocol):
    """Keeps what jobs publish; given by the pod."""

    async def publish(self, change: Publish) -> None:
        """Send a change, which is committed before anything that its job sends later.

        Does not wait for that. Raises `LeaseLost` on a pod that is closing.
        """


@attrs.define(eq=False)
class _Pending:
    """What was assigned and not sent."""

    values: dict[str, str | None] = attrs.field(factory=dict)
    """JSON text by key; None for a key that was deleted."""
    certain: set[str] = attrs.field(factory=set)
    """The keys that were not only assigned by a replay."""
    progress: JobProgress | None = None

    @property
    def is_news(self) -> bool:
        return bool(self.values) or self.progress is not None

    def change(self, lease: Lease, number: int, counts: dict[str, int]) -> Publish:
        """Return it as it is sent; `counts` says how often the handler has assigned each key."""
        values, certain = self.values, self.certain
        keys = [*values, PROGRESS] if self.progress is not None else [*values]
        removed = sorted(key for key, text in values.items() if text is None)
        return Publish(
            lease=lease,
            number=number,
            changes=_object({k: v for k, v in values.items() if v is not None and k in certain}),
            defaults=_object(
                {k: v for k, v in values.items() if v is not None and k not in certain}
            ),
            removed=tuple(key for key in removed if key in certain),
            removed_again=tuple(key for key in removed if key not in certain),
            progress=self.progress,
            is_default=PROGRESS not in certain,
            counts=_object({key: str(counts.get(key, 0)) for key in keys}),
        )


class Published:
    """What one attempt publishes."""

    def __init__(
        self,
        lease: Lease,
        publisher: Publisher,
        *,
        is_replaying: Callable[[], bool],
        token: trio.lowlevel.TrioToken,
    ) -> None:
        self._lease = lease
        self._publisher = publisher
        self._is_replaying = is_replaying
        self._token = token
        self._lock = threading.Lock()
        self._pending = _Pending()
        self._number = 0
        self._is_armed = False
        self._is_over = False
        self._chunk_count = 0
        self._chunk_bytes = 0
        self._progress: JobProgress | None = None
        self._counts: dict[str, int] = {}
        self.state = State(self._assign, self._counts)

    def progress(self, progress: JobProgress) -> None:
        """Publish how far the job has come."""
        if current.step.get() is None:
            self._counts[PROGRESS] = self._counts.get(PROGRESS, 0) + 1
        if progress == self._progress:
            return
        self._progress = progress
        is_old = self._is_old()
        with self._lock:
            self._pending.progress = progress
            if not is_old:
                self._pending.certain.add(PROGRESS)
        self._arm_soon()

    def count_chunk(self, key: str, size: int) -> None:
        """Count a chunk that is emitted. Raises `InvalidValueError` if the job has too many."""
        self._chunk_count += 1
        self._chunk_bytes += size
        if self._chunk_count > CHUNKS_MAX:
            raise InvalidValueError(
                f"chunk {key!r} is the job's chunk {self._chunk_count:,}, more than {CHUNKS_MAX:,}",
                hint="emit more in each chunk",
            )
        if self._chunk_bytes > CHUNK_BYTES_MAX:
            raise InvalidValueError(
                f"with chunk {key!r} the job has emitted {self._chunk_bytes:,} bytes, more than "
                f"{CHUNK_BYTES_MAX:,}",
                hint="write large output to a file and emit its path",
            )

    async def send(self, *, is_over: bool = False) -> None:
        """Send what was assigned, unless a replay is under way. `is_over`: the attempt ends."""
        self._is_over |= is_over
        if not self._pending.is_news or self._is_replaying():
            return
        with self._lock:
            pending, self._pending = self._pending, _Pending()
            self._number += 1
            change = pending.change(self._lease, self._number, self._counts)
        await self._publisher.publish(change)

    def _assign(self, key: str, text: str | None) -> None:
        is_old = self._is_old()
        with self._lock:
            self._pending.values[key] = text
            if not is_old:
                self._pending.certain.add(key)
        self._arm_soon()

    def _is_old(self) -> bool:
        """Return whether a replay runs this code again; steps only run if they are new."""
        return current.step.get() is None and self._is_replaying()

    def _arm_soon(self) -> None:
        if self._is_armed or self._is_over:
            return
        if in_trio_run():
            self._arm()
            return
        try:
            self._token.run_sync_soon(self._arm, idempotent=True)
        except trio.RunFinishedError:  # a thread that was left behind
            self._is_over = True

    def _arm(self) -> None:
        if not (self._is_armed or self._is_over):
            self._is_armed = True
            # A step may run for long, in a thread, too, before the attempt comes by here again.
            trio.lowlevel.spawn_system_task(self._send_later, name="published state")

    async def _send_later(self) -> None:
        await trio.sleep(GATHER_S)
        while self._is_replaying() and not self._is_over:  # noqa: ASYNC110 -- ends soon, or is over
            await trio.sleep(GATHER_S)
        self._is_armed = False
        if self._is_over:
            return
        try:
            await self.send()
        except LeaseLost:
            self._is_over = True
        except CortexError as error:
            _log.warning("state not published", job=str(self._lease.job_id), error=error.message)


class State(MutableMapping[str, Any]):
    """The small state that a job publishes: JSON values by key.

    It begins empty with each attempt. Its handler reads what it has assigned itself, so that a
    replay reads the same; inside a step, also what steps have assigned in this attempt. Changing a
    value in place publishes nothing: assign it again.
    """

    def __init__(self, assign: Callable[[str, str | None], None], counts: dict[str, int]) -> None:
        self._assign = assign
        self._counts = counts
        """How often the handler has assigned each key, by which a replay knows what is new."""
        self._own: dict[str, str] = {}
        self._of_steps: dict[str, str] = {}
        """A step that is on record does not run again, and assigns nothing."""

    @property
    def _read(self) -> dict[str, str]:
        return self._own if current.step.get() is None else self._own | self._of_steps

    def __getitem__(self, key: str) -> Any:
        return decode(self._read[key])

    def __setitem__(self, key: str, value: Any) -> None:
        check_state_key(key)
        text = encode(value, what=f"state {key!r}", limit=STATE)
        published = self._own | self._of_steps
        if is_own := current.step.get() is None:
            self._counts[key] = self._counts.get(key, 0) + 1
        if published.get(key) == text and key in (self._own if is_own else published):
            return
        after = published | {key: text}
        if len(after) > STATE_KEYS_MAX:
            raise InvalidValueError(
                f"state {key!r} would be key {STATE_KEYS_MAX + 1} of the state, more than "
                f"{STATE_KEYS_MAX}",
                hint="keep several values in one key, or delete one: del ctx.state[…]",
            )
        size = sum(len(name.encode()) + len(each.encode()) for name, each in after.items())
        STATE.check(size, what=f"the state with {key!r}")
        if is_own:
            self._own[key] = text
            self._of_steps.pop(key, None)
        else:
            self._of_steps[key] = text
        self._assign(key, text)

    def __delitem__(self, key: str) -> None:
        if key not in self._read:
            raise KeyError(key)
        if current.step.get() is None:
            self._counts[key] = self._counts.get(key, 0) + 1
            del self._own[key]
        self._of_steps.pop(key, None)
        self._assign(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._read))

    def __len__(self) -> int:
        return len(self._read)

    def __repr__(self) -> str:
        return f"<state {dict(self)!r}>"


def _object(texts: dict[str, str]) -> str:
    """Return the JSON text of an object with these JSON texts."""
    pairs = (f"{orjson.dumps(key).decode()}:{text}" for key, text in sorted(texts.items()))
    return f"{{{','.join(pairs)}}}"
