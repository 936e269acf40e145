"""What `cortex doctor` makes of what it saw: findings, each with a way out if it is not well.

Ill is what loses, stops or delays jobs now; worth a look is what may, and what somebody decided.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

import attrs

from cortex.domain.confinement import WAY_OUT, Confinement
from cortex.domain.drain import Liveness
from cortex.domain.server_facts import IntruderFacts, PodFacts, ServerFacts, SnapshotFacts

SKEW_WARN_S: Final = 2.0
"""People compare log lines; nothing is decided by this machine's clock."""
FREE_CONNECTIONS_MIN: Final = 10
"""A pod takes up to six, a command one."""
DISK_WARN: Final = 0.1
DISK_FAIL_BYTES: Final = 256 * 1024**2
"""Less than the log of a busy minute: without room for its log, Postgres stops."""
SNAPSHOT_WARN_S: Final = 300.0
SNAPSHOT_FAIL_S: Final = 3600.0
"""Claims get slower with each job that ends while a snapshot is open: fourfold after 30,000."""
SNAPSHOT_WARN_XIDS: Final = 1_000_000
"""Where the server does not say since when."""
LAG_WARN_MS: Final = 100.0
WAIT_WARN_S: Final = 60.0
NAMES_MAX: Final = 5
RELOAD: Final = "; SELECT pg_reload_conf()"


class Grade(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@attrs.frozen
class Finding:
    """One line of the report."""

    check: str
    grade: Grade
    found: str
    fix: str | None = None


def ok(check: str, found: str) -> Finding:
    """Return that a thing is well."""
    return Finding(check, Grade.OK, found)


def warn(check: str, found: str, fix: str | None) -> Finding:
    """Return that a thing is worth a look."""
    return Finding(check, Grade.WARN, found, fix)


def fail(check: str, found: str, fix: str | None) -> Finding:
    """Return that a thing is ill."""
    return Finding(check, Grade.FAIL, found, fix)


def of_writes(server: ServerFacts) -> Finding:
    """Whether jobs can be written, and are on disc when they were acknowledged."""
    check = "writes"
    if server.is_standby:
        fix = "name the primary, or all servers: postgresql://user@one,two/database"
        return fail(check, "this server is a standby: it takes no writes", fix)
    if server.is_read_only:
        reset = "ALTER SYSTEM RESET default_transaction_read_only"
        fix = f"unless that was meant: {reset}{RELOAD}"
        return fail(check, "this server is set to take no writes", fix)
    if not server.fsync:
        fix = f"ALTER SYSTEM SET fsync = on{RELOAD}"
        return warn(check, "fsync is off: a power cut may destroy everything", fix)
    if server.synchronous_commit == "off":
        fix = f"ALTER SYSTEM SET synchronous_commit = on{RELOAD}"
        return warn(check, "synchronous_commit is off: a crash loses acknowledged jobs", fix)
    return ok(check, "accepted, and on disc when acknowledged")


def of_clock(ahead_s: float) -> Finding:
    """How far this machine's clock is from the database's; negative: behind."""
    if abs(ahead_s) < SKEW_WARN_S:
        return ok("clock", f"{1000 * abs(ahead_s):.0f}ms from the database's")
    way = "ahead of" if ahead_s > 0 else "behind"
    told = f"{timedelta(seconds=round(abs(ahead_s)))} {way} the database's"
    fix = "synchronise it; only what people read depends on it: the database's clock decides"
    return warn("clock", told, fix)


def of_connections(server: ServerFacts) -> Finding:
    """Whether there is room for one more pod."""
    left = server.connections_max - server.connections_used
    told = f"{server.connections_used} of {server.connections_max} in use"
    if left > FREE_CONNECTIONS_MIN:
        return ok("connections", told)
    fix = "raise max_connections, or put PgBouncer in between"
    grade = Grade.WARN if left > 0 else Grade.FAIL
    return Finding("connections", grade, told, fix)


def of_disk(*, free_bytes: int, total_bytes: int, folder: str) -> Finding:
    """Whether there is room where the embedded database is."""
    told = f"{free_bytes / 1024**3:.1f} GB of {total_bytes / 1024**3:.1f} GB free in {folder}"
    fix = "make room there, or choose another folder with --data"
    if free_bytes < DISK_FAIL_BYTES:
        return fail("disk", told, fix)
    if free_bytes < DISK_WARN * total_bytes:
        return warn("disk", told, fix)
    return ok("disk", told)


def of_snapshots(seen: Sequence[SnapshotFacts]) -> Finding:
    """Whether something keeps dead rows from being cleared away: the worst of what was seen."""
    if not seen:
        return ok("snapshots", "none is open")
    return max(map(_of_snapshot, seen), key=lambda finding: _ORDER.index(finding.grade))


def _of_snapshot(seen: SnapshotFacts) -> Finding:
    check = "snapshots"
    if seen.held_s is None:
        told = f"{seen.xids:,} transactions old"
        is_long, is_ill = seen.xids > SNAPSHOT_WARN_XIDS, False
    else:
        told = f"{timedelta(seconds=round(seen.held_s))} old"
        is_long, is_ill = seen.held_s > SNAPSHOT_WARN_S, seen.held_s > SNAPSHOT_FAIL_S
    if not is_long:
        return ok(check, f"the oldest is {told}")
    fixes = {
        "session": f"end it: SELECT pg_terminate_backend({seen.pid})",
        "standby": "end what it runs, or set hot_standby_feedback = off there",
        "prepared transaction": f"end it: ROLLBACK PREPARED {_literal(seen.name)}",
        "replication slot": f"drop it: SELECT pg_drop_replication_slot({_literal(seen.name)})",
    }
    told = f"{seen.kind} {seen.name} holds one that is {told}: claims get slower"
    return Finding(check, Grade.FAIL if is_ill else Grade.WARN, told, fixes[seen.kind])


_ORDER: Final = (Grade.OK, Grade.WARN, Grade.FAIL)


def _literal(text: str) -> str:
    """Write a text for SQL so that it can be pasted, whatever is in it."""
    if text.isascii() and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    shown = (c if c.isascii() and c.isprintable() else f"\\U{ord(c):08X}" for c in escaped)
    return f"E'{''.join(shown)}'"


def of_pods(pods: Sequence[PodFacts], *, version: str, due: int) -> list[Finding]:
    """Whether there are pods, and whether they are well."""
    if not pods:
        return [_of_no_pods(due)]
    ready = [pod for pod in pods if pod.state == "READY" and not pod.is_silent]
    draining = sum(pod.state == "DRAINING" for pod in pods)
    silent = [pod.name for pod in pods if pod.is_silent]
    late = [pod.name for pod in pods if (pod.loop_lag_ms or 0) > LAG_WARN_MS]
    others = [pod.name for pod in pods if pod.version != version]
    suffering = [f"{pod.name} ({pod.trouble.replace('_', ' ')})" for pod in pods if pod.trouble]
    told = f"{len(ready)} ready" + (f", {draining} draining" if draining else "")
    found = [ok("pods", told) if ready or draining else _of_no_pods(due)]
    if silent:
        fix = "look at their processes: stopped, cut off or overloaded; their jobs go on elsewhere"
        found.append(warn("heartbeats", f"silent: {_names(silent)}", fix))
    else:
        oldest_s = max(pod.silent_s for pod in pods)
        found.append(ok("heartbeats", f"the oldest is {oldest_s:.0f}s old"))
    if late:
        fix = "something blocks their event loops: a tool that computes without a thread?"
        found.append(warn("event loops", f"late: {_names(late)}", fix))
    if suffering:
        fix = "see to the database's server: its disk, its memory, its max_connections"
        found.append(fail("database trouble", f"of {_names(suffering)}", fix))
    if others:
        fix = "end the roll-out: no pod should stay on another version"
        found.append(warn("versions", f"not {version}: {_names(others)}", fix))
    return found


def of_commands(pods: Sequence[PodFacts]) -> Finding:
    """Whether the programs that agents start can do no harm."""
    check = "commands"
    free = [pod.name for pod in pods if pod.confinement in {None, Confinement.UNSAFE}]
    if free:
        fix = "unset unsafe_run_command, and restart pods of older versions"
        told = f"programs of agents may do all that the pod may: {_names(free)}"
        return fail(check, told, fix)
    if none := [pod.name for pod in pods if pod.confinement == Confinement.NONE]:
        return warn(check, f"run_command refuses to start: {_names(none)}", WAY_OUT)
    means = sorted({str(pod.confinement) for pod in pods})
    return ok(check, f"programs of agents are confined by {', '.join(means)}")


def of_locks(pods: Sequence[PodFacts]) -> Finding:
    """Whether pods hold what shows that they live."""
    holders = [pod for pod in pods if pod.liveness is Liveness.LOCK]
    without = [pod.name for pod in holders if not pod.is_locked]
    pooled = len(pods) - len(holders)
    if without:
        fix = "if they run, their connections break: look at their logs; else their jobs move now"
        return warn("locks", f"not held by {_names(without)}", fix)
    told = f"{len(holders)} of {len(pods)} pods hold theirs"
    if pooled:
        return ok("locks", f"{told}; {pooled} behind a pooler: only silence tells of their death")
    return ok("locks", told)


def of_intruders(seen: Sequence[IntruderFacts]) -> Finding:
    """Somebody who is no pod keeps pods from their work; of several, the first."""
    first = seen[0]
    more = f", {len(seen) - 1} more such" if len(seen) > 1 else ""
    told = f"session {first.name} is no pod's and holds {first.what}{more}: pods wait for it"
    return fail("intruders", told, f"end it: SELECT pg_terminate_backend({first.pid})")


def of_queue(*, due: int, oldest_s: float, ready: bool) -> Finding:
    """Whether what is due is taken."""
    if not due:
        return ok("queue", "nothing waits")
    told = f"{due:,} due, the oldest for {timedelta(seconds=round(oldest_s))}"
    if oldest_s < WAIT_WARN_S:
        return ok("queue", told)
    fix = "more pods or slots; of one job: cortex why ID" if ready else "start a pod: cortex up"
    return warn("queue", told, fix)


def of_blocked(count: int, *, pid: int | None, holder: str) -> Finding:
    """Whether jobs of lost pods can be taken; `holder`: who keeps the oldest from it."""
    if not count:
        return ok("recovery", "no job of a lost pod is out of reach")
    fix = "end what holds them" + (f": SELECT pg_terminate_backend({pid})" if pid else "")
    return fail("recovery", f"{count} jobs of lost pods are out of reach: {holder} holds them", fix)


def of_breakers(unwell: Sequence[str]) -> Finding:
    """Whether jobs wait for something outside."""
    if not unwell:
        return ok("breakers", "all are closed")
    return warn("breakers", f"not closed: {_names(unwell)}", "see why: cortex breakers ls")


def of_letters(*, waiting: int, escalated: int) -> Finding:
    """Whether failed jobs wait for somebody."""
    if not waiting and not escalated:
        return ok("dead letters", "nobody has to look at one")
    told = f"{waiting:,} failed jobs wait for a person"
    told += f", {escalated:,} for an operator" if escalated else ""
    return warn("dead letters", told, "cortex dead ls")


def of_effects(unknown: int) -> Finding:
    """Whether people have to say what became of calls."""
    if not unknown:
        return ok("effects", "what became of each is known")
    told = f"nobody knows whether {unknown:,} were applied: their jobs wait"
    return warn("effects", told, "say so: cortex effects ls")


def _of_no_pods(due: int) -> Finding:
    fix = "start one: cortex up"
    if due:
        return fail("pods", f"none is ready, and {due:,} jobs are due", fix)
    return warn("pods", "none is ready", fix)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"
