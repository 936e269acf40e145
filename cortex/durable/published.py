"""What job code publishes while it runs: its state, its progress, and how much it has emitted.

An assignment costs no query: changes are gathered and sent before the next step is recorded, at
the latest `GATHER_S` later, and when the attempt ends. Code may assign from any thread.

A replayed handler assigns old values again. While something on record is still due, its assignments
are only defaults, for keys that nobody has published a value of: what later code or a step that
does not run again has published stays.
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

    changes: dict[str, str] = attrs.field(factory=dict)
    defaults: dict[str, str] = attrs.field(factory=dict)
    removed: set[str] = attrs.field(factory=set)
    progress: JobProgress | None = None
    is_default: bool = False

    @property
    def is_news(self) -> bool:
        return bool(self.changes or self.defaults or self.removed) or self.progress is not None


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
        self.state = State(self._assign)

    def progress(self, progress: JobProgress) -> None:
        """Publish how far the job has come."""
        if progress == self._progress:
            return
        self._progress = progress
        is_default = self._is_old()
        with self._lock:
            self._pending.progress, self._pending.is_default = progress, is_default
        self._arm_soon(is_default)

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
            number = self._number
        change = Publish(
            lease=self._lease,
            number=number,
            changes=_object(pending.changes),
            defaults=_object(pending.defaults),
            removed=tuple(sorted(pending.removed)),
            progress=pending.progress,
            is_default=pending.is_default,
        )
        await self._publisher.publish(change)

    def _assign(self, key: str, text: str | None) -> None:
        is_default = self._is_old()
        with self._lock:
            pending = self._pending
            pending.defaults.pop(key, None)
            pending.removed.discard(key)
            if text is None:
                pending.changes.pop(key, None)
                if not is_default:
                    pending.removed.add(key)
            elif is_default:
                pending.defaults[key] = text
            else:
                pending.changes[key] = text
        self._arm_soon(is_default)

    def _is_old(self) -> bool:
        """Return whether a replay runs this code again; threads only run steps that are new."""
        return in_trio_run() and self._is_replaying()

    def _arm_soon(self, is_default: bool) -> None:  # noqa: FBT001
        if self._is_armed or is_default or self._is_over:
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

    def __init__(self, assign: Callable[[str, str | None], None]) -> None:
        self._assign = assign
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
        is_own = current.step.get() is None
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
