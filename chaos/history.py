"""What happened in a run: an append-only list of events, kept as JSON lines.

A client's operation is `invoke` and then `ok`, `fail` or `info`. `info` means that it is unknown
whether it took place, such as a commit whose reply was lost. Other events are `info`, too.

What checkers read, by kind; the events of one operation have the same `process` and first name:

    submit     key; invoke: body (a digest of the request), ok: job, fail: code
    decide     approval; invoke: by, approve; ok: outcome, as recorded; fail: why
    resolve    effect; invoke: by, said
    publish    number, key: a message by SQL; every try has a number of its own
    schedule   name, first, every_min: one that is due first then, and each so many minutes
    cancel     job; invoke: by, ok: after (its state then), fail: code
    start      life, pid: a pod of this process (its place, such as p1) starts
    ready      life, pid, record (the pod's name in the record)
    signal     life, pid, signal (such as SIGKILL): as it is sent
    exit       life, pid, record, code, signals
    worker-ready, worker-exit  life, pid, and id (of its row) or code: of a pod with workers
    outlived   life, workers: pids that still ran long after their parent
    fault      number, nemesis, detail; invoke: it begins, info: healed, with windows
    phase      name: load, heal (no more faults), quiet or stuck, end (the last event of a run)
    activity   a sample of `chaos.probe`: see there
"""

import json
import time
from pathlib import Path
from typing import Any, Literal, TextIO

from attrs import asdict, frozen

Type = Literal["invoke", "ok", "fail", "info"]


@frozen(kw_only=True)
class Event:
    at_s: float
    """Seconds since the run began, by the monotonic clock of the process that writes the
    history."""
    process: str
    """The actor: `client-1`, `approver`, `nemesis`, `pod-3`, `ledger`, `probe`, `run`."""
    kind: str
    """The event: `submit`, `decide`, `cancel`, `fault`, `ready`, `exit`, `activity`, `phase` …"""
    type: Type
    value: dict[str, Any]
    """All other fields; JSON."""


class History:
    """Writes events as they happen: if the run is killed, its events so far are on disk."""

    def __init__(self, path: Path) -> None:
        self._began = time.monotonic()
        self._file: TextIO = path.open("w", encoding="utf-8")
        self.events: list[Event] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    def at_s(self, monotonic: float) -> float:
        """Convert a time of this process's monotonic clock to seconds of the run."""
        return round(monotonic - self._began, 6)

    def add(self, process: str, kind: str, type_: Type = "info", /, **value: Any) -> Event:
        """Append one event; only from the run's own thread."""
        at_s = round(self.now_s, 6)
        event = Event(at_s=at_s, process=process, kind=kind, type=type_, value=value)
        self.events.append(event)
        self._file.write(json.dumps(asdict(event), default=str) + "\n")
        self._file.flush()
        return event

    def close(self) -> None:
        self._file.close()


def read_history(path: Path) -> list[Event]:
    """The events of a file, in order."""
    with path.open(encoding="utf-8") as lines:
        return [Event(**json.loads(line)) for line in lines]
