"""Passes what a job logs in a process of its own on to its pod, in batches.

A process that is killed loses what it gathered in the last moments. The pod takes the lines as
those of the attempt that it hosts, under its own bounds, whatever the process claims.
"""

import math
import threading
from collections.abc import Callable
from typing import Any, Final

import trio

from cortex.domain.errors import InvalidValueError
from cortex.domain.job import Claim, Lease
from cortex.domain.log_line import Level
from cortex.durable.job_log import LineBuffer, Why, WrittenLine

GATHER_S: Final = 0.1
BATCH_MAX: Final = 500


class LineSender:
    """The side of the process: its `buffer` takes the lines."""

    def __init__(self, send: Callable[[dict[str, Any]], None], is_full: Callable[[], bool]) -> None:
        """`send` queues a message for the pod. While `is_full`, the lines stay here."""
        self._send = send
        self._is_full = is_full
        self._lease: Lease | None = None
        self._pending = trio.Event()
        token, own_thread = trio.lowlevel.current_trio_token(), threading.get_ident()

        def wake() -> None:
            if threading.get_ident() == own_thread:
                self._pending.set()
            else:
                token.run_sync_soon(self._set_pending, idempotent=True)

        self.buffer = LineBuffer(trio.lowlevel.current_clock().current_time, wake=wake)

    def _set_pending(self) -> None:
        self._pending.set()

    def begin(self, lease: Lease) -> None:
        """From now on lines of this attempt are sent; those of earlier ones are counted."""
        self._lease = lease
        self._pending.set()

    async def run(self) -> None:
        """Send lines until cancelled. Idle while the job writes none."""
        while True:
            if not self.buffer.has_any or self._lease is None:
                await self._pending.wait()
            self._pending = trio.Event()
            await trio.sleep(GATHER_S)
            if not self._is_full():
                self._send_batch()

    def finish(self) -> None:
        """Send what is left of the attempt, before its end.

        Lines that its threads write later stay here: the pod would take them as those of the next
        attempt.
        """
        if self._lease is not None:
            self.buffer.end_lines(lease=self._lease)
        while self.buffer.has_any and not self._is_full() and self._send_batch():
            pass
        self._lease = None

    def _send_batch(self) -> bool:
        if self._lease is None:
            return False
        relay = self.buffer.take_to_relay(self._lease, BATCH_MAX)
        is_empty = not (relay.lines or relay.dropped or relay.late_count)
        if not is_empty:
            lines = [
                [line.age_s, int(line.level), line.step, line.source, line.message, line.fields]
                for line in relay.lines
            ]
            dropped = {why.value: count for why, count in relay.dropped.items()}
            self._send({"lines": lines, "dropped": dropped, "late": relay.late_count})
        return not is_empty


def received(
    buffer: LineBuffer, claim: Claim, *, lines: list[Any], dropped: dict[str, Any], late: int
) -> None:
    """Take lines of a hosted attempt on the side of its pod.

    Raises `InvalidValueError` for what no process of ours sends.
    """
    if len(lines) > BATCH_MAX:
        raise InvalidValueError(f"a runner sends {len(lines)} lines at once")
    for each in lines:
        buffer.relay(claim, _line(each))
    for why, count in dropped.items():
        buffer.missed(claim, Why(why), _count(count))
    if late:
        buffer.count(Why.LATE, _count(late))


def _line(given: list[Any]) -> WrittenLine:
    match given:
        case [int() | float() as age_s, int() as level, step, source, str() as message, fields] if (
            math.isfinite(age_s)
            and all(each is None or isinstance(each, str) for each in (step, source, fields))
        ):
            return WrittenLine(
                level=Level.of_number(level),
                message=message,
                step=step,
                source=source,
                fields=fields,
                age_s=max(0.0, age_s),
            )
        case _:
            raise InvalidValueError("a runner sends a line that is none")


def _count(given: Any) -> int:
    if not isinstance(given, int) or not 0 < given < 2**53:
        raise InvalidValueError("a runner sends a count that is none")
    return given
