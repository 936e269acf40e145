"""What happened in a run: an append-only list of events, kept as JSON lines.

An operation of a client is `invoke` and then `ok`, `fail` or `info`: `info` when nobody knows
whether it took place, such as a commit whose reply was lost. What is no operation is `info`, too.

What checkers read, by kind; the events of one operation have the same `process` and first name.

    submit    key; invoke: body (a digest of what is asked for), ok: job, fail: code
    decide    approval; invoke: by, approve; ok: outcome, as the record has it; fail: why
    resolve   effect; invoke: by, said
    cancel    job; invoke: by, ok: after (the state that it is in then), fail: code
    start     life, pid: a pod of this process (its place, such as p1) begins
    ready     life, pid, record (the pod's name in the record)
    signal    life, pid, signal (such as SIGKILL): as it is sent
    exit      life, pid, record, code, signals
    fault     number, nemesis, detail; invoke: it begins, info: healed, with windows
    phase     name: load, heal (no more faults), quiet or stuck, end (the last event of a run)
    activity  what `chaos.probe` saw: see there
"""

import json
import time
from pathlib import Path
from typing import Any, Literal, TextIO

from attrs import asdict, frozen

Type = Literal["invoke", "ok", "fail", "info"]


@frozen(kw_only=True)
class Event:
    """One line of the history."""

    at_s: float
    """Since the run began, by the monotonic clock of the one process that writes the history."""
    process: str
    """Who: `client-1`, `approver`, `nemesis`, `pod-3`, `ledger`, `probe`, `run`."""
    kind: str
    """What: `submit`, `decide`, `cancel`, `fault`, `ready`, `exit`, `activity`, `phase` …"""
    type: Type
    value: dict[str, Any]
    """The rest, by names; JSON."""


class History:
    """Writes events as they happen: what a run that is killed had seen until then is on disk."""

    def __init__(self, path: Path) -> None:
        self._began = time.monotonic()
        self._file: TextIO = path.open("w", encoding="utf-8")
        self.events: list[Event] = []

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def at_s(self, monotonic: float) -> float:
        """An instant of this process's monotonic clock, as seconds of the run."""
        return round(monotonic - self._began, 6)

    def add(self, process: str, kind: str, type_: Type = "info", /, **value: Any) -> Event:
        """Append one event; from the run's own thread only."""
        at_s = round(self.now_s, 6)
        event = Event(at_s=at_s, process=process, kind=kind, type=type_, value=value)
        self.events.append(event)
        self._file.write(json.dumps(asdict(event), default=str) + "\n")
        self._file.flush()
        return event

    def close(self) -> None:
        """End the file; the events stay."""
        self._file.close()


def read_history(path: Path) -> list[Event]:
    """The events of a file, in their order."""
    with path.open(encoding="utf-8") as lines:
        return [Event(**json.loads(line)) for line in lines]
