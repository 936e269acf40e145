"""Turns what `cortex doctor` observed into findings, each with a fix if something is wrong.

FAIL: jobs are lost, stopped or delayed now. WARN: they may be, or a person decided so.
"""

import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

import attrs

from cortex.domain.confinement import WAY_OUT, Confinement
from cortex.domain.drain import Liveness
from cortex.domain.limits import LOST_SHARE, THREADS_MAX
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.domain.server_facts import (
    IntruderFacts,
    OpenDatabase,
    PodFacts,
    ServerFacts,
    SnapshotFacts,
)
from cortex.store.background.retention import Retention
from cortex.store.background.runners import RunnerRow
from cortex.store.background.subscriptions import FailingSubscription
from cortex.store.limits import StuckLimit
from cortex.store.pauses import PauseRow
from cortex.store.specs import CacheMiss
from cortex.view.health import subscription_text
from cortex.view.phrases import since_s
from cortex.view.runners import pulse_text

SKEW_WARN_S: Final = 2.0
"""People compare log lines; no decision depends on this machine's clock."""
FREE_CONNECTIONS_MIN: Final = 10
"""A pod takes up to six, a command one."""
DISK_WARN: Final = 0.1
DISK_FAIL_BYTES: Final = 256 * 1024**2
"""Less than the WAL of a busy minute; Postgres stops when its WAL has no room."""
SNAPSHOT_WARN_S: Final = 300.0
SNAPSHOT_FAIL_S: Final = 3600.0
"""Claims slow down with each job that ends while a snapshot is open: fourfold after 30,000."""
SNAPSHOT_WARN_XIDS: Final = 1_000_000
"""Used where the server does not report the snapshot's age in seconds."""
LAG_WARN_MS: Final = 100.0
NEARLY_LOST_SHARE: Final = 0.5
"""Share of the losses that replace a pod, from which on they are an error."""
WAIT_WARN_S: Final = 60.0
PAUSED_LONG_S: Final = 86_400.0
NAMES_MAX: Final = 5
CODE_FIX: Final = (
    "cortex jobs ls status:code; for one job: cortex why ID; then start a pod with its code"
)
"""The way out for jobs that wait for code."""
CODE_TYPES_MAX: Final = 3
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
    """Return a finding that needs no action."""
    return Finding(check, Grade.OK, found)


def warn(check: str, found: str, fix: str | None) -> Finding:
    """Return a finding that deserves attention."""
    return Finding(check, Grade.WARN, found, fix)


def fail(check: str, found: str, fix: str | None) -> Finding:
    """Return a finding that affects jobs now."""
    return Finding(check, Grade.FAIL, found, fix)


def of_writes(server: ServerFacts) -> Finding:
    """Whether jobs can be written, and are on disk when acknowledged."""
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
    return ok(check, "accepted, and on disk when acknowledged")


def of_clock(ahead_s: float) -> Finding:
    """Compare this machine's clock with the database's; negative: behind."""
    if abs(ahead_s) < SKEW_WARN_S:
        return ok("clock", f"{1000 * abs(ahead_s):.0f}ms from the database's")
    way = "ahead of" if ahead_s > 0 else "behind"
    text = f"{timedelta(seconds=round(abs(ahead_s)))} {way} the database's"
    fix = "synchronise it; it affects only what people read: the database's clock decides"
    return warn("clock", text, fix)


def of_logins(logins: Sequence[str]) -> Finding:
    """Whether a pod runs with a login that may do what only people may."""
    if not logins:
        return ok("logins", "no pod may decide approvals or make tokens")
    names = safe(", ".join(logins))
    fix = "run pods with a login that is only a member of cortex_runtime: docs/guides/databases.md"
    return warn("logins", f"pods connect as {names}, which may decide approvals", fix)


def of_connections(server: ServerFacts) -> Finding:
    """Whether enough connections are free for one more pod."""
    left = server.connections_max - server.connections_used
    text = f"{server.connections_used} of {server.connections_max} in use"
    if left > FREE_CONNECTIONS_MIN:
        return ok("connections", text)
    fix = "raise max_connections, or put PgBouncer in between"
    grade = Grade.WARN if left > 0 else Grade.FAIL
    return Finding("connections", grade, text, fix)


def of_disk(*, free_bytes: int, total_bytes: int, folder: str) -> Finding:
    """Whether the disk of the embedded database has enough free space."""
    text = f"{free_bytes / 1024**3:.1f} GB of {total_bytes / 1024**3:.1f} GB free in {folder}"
    fix = "make room there, or choose another folder with --data"
    if free_bytes < DISK_FAIL_BYTES:
        return fail("disk", text, fix)
    if free_bytes < DISK_WARN * total_bytes:
        return warn("disk", text, fix)
    return ok("disk", text)


def of_snapshots(observed: Sequence[SnapshotFacts]) -> Finding:
    """Whether an old snapshot keeps dead rows from being removed; reports the worst one."""
    if not observed:
        return ok("snapshots", "none is open")
    return max(map(_of_snapshot, observed), key=lambda finding: _ORDER.index(finding.grade))


def _of_snapshot(observed: SnapshotFacts) -> Finding:
    check = "snapshots"
    if observed.held_s is None:
        text = f"{observed.xids:,} transactions old"
        is_long, is_ill = observed.xids > SNAPSHOT_WARN_XIDS, False
    else:
        text = f"{timedelta(seconds=round(observed.held_s))} old"
        is_long, is_ill = observed.held_s > SNAPSHOT_WARN_S, observed.held_s > SNAPSHOT_FAIL_S
    if not is_long:
        return ok(check, f"the oldest is {text}")
    fixes = {
        "session": f"end it: SELECT pg_terminate_backend({observed.pid})",
        "standby": "end what it runs, or set hot_standby_feedback = off there",
        "prepared transaction": f"end it: ROLLBACK PREPARED {_literal(observed.name)}",
        "replication slot": f"drop it: SELECT pg_drop_replication_slot({_literal(observed.name)})",
    }
    text = f"{observed.kind} {observed.name} holds a snapshot that is {text}: claims get slower"
    return Finding(check, Grade.FAIL if is_ill else Grade.WARN, text, fixes[observed.kind])


_ORDER: Final = (Grade.OK, Grade.WARN, Grade.FAIL)


def _literal(text: str) -> str:
    """Quote a text as an SQL literal."""
    if text.isascii() and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    shown = (c if c.isascii() and c.isprintable() else f"\\U{ord(c):08X}" for c in escaped)
    return f"E'{''.join(shown)}'"


def of_pods(
    pods: Sequence[PodFacts], *, version: str, due: int, has_ticks: bool = False
) -> list[Finding]:
    """Whether pods are running, and whether they are healthy; `has_ticks`: ticks run the jobs."""
    if not pods and has_ticks:
        return [ok("pods", "none is needed: cortex tick runs the jobs")]
    if not pods:
        return [_of_no_pods(due)]
    ready = [pod for pod in pods if pod.state == "READY" and not pod.is_silent]
    draining = sum(pod.state == "DRAINING" for pod in pods)
    silent = [pod.name for pod in pods if pod.is_silent]
    late = [pod.name for pod in pods if (pod.loop_lag_ms or 0) > LAG_WARN_MS]
    others = [pod.name for pod in pods if pod.version != version]
    suffering = [f"{pod.name} ({pod.trouble.replace('_', ' ')})" for pod in pods if pod.trouble]
    text = f"{len(ready)} ready" + (f", {draining} draining" if draining else "")
    found = [ok("pods", text) if ready or draining else _of_no_pods(due)]
    if silent:
        fix = (
            "check their processes (stopped, cut off or overloaded?); other pods "
            "take over their jobs"
        )
        found.append(warn("heartbeats", f"silent: {_names(silent)}", fix))
    else:
        oldest_s = max(pod.silent_s for pod in pods)
        found.append(ok("heartbeats", f"the oldest is {oldest_s:.0f}s old"))
    if late:
        fix = "something blocks their event loops: a tool that computes without a thread?"
        found.append(warn("event loops", f"late: {_names(late)}", fix))
    found += _of_lost_threads(pods)
    if suffering:
        fix = "check the database server: its disk, its memory, its max_connections"
        found.append(fail("database trouble", f"of {_names(suffering)}", fix))
    if others:
        fix = "finish the roll-out: all pods should run the same version"
        found.append(warn("versions", f"not {version}: {_names(others)}", fix))
    return found


def _of_lost_threads(pods: Sequence[PodFacts]) -> list[Finding]:
    """Whether time-outs left threads behind: an error when a pod is close to being replaced."""
    losing = [pod for pod in pods if pod.threads_lost]
    if not losing:
        return []
    text = _names([f"{pod.name} ({pod.threads_lost} of {THREADS_MAX})" for pod in losing])
    most = max(pod.threads_lost for pod in losing)
    grade = fail if most >= NEARLY_LOST_SHARE * LOST_SHARE * THREADS_MAX else warn
    drains_at = int(LOST_SHARE * THREADS_MAX)
    fix = (
        "give calls in sync functions limits of their own; a pod drains when it has lost "
        f"{drains_at} threads"
    )
    return [grade("threads", f"left behind by time-outs: {text}", fix)]


def of_host(pods: Sequence[PodFacts], *, host: str) -> Finding:
    """Whether the pods of this host work."""
    working = [pod.name for pod in pods if not pod.is_silent]
    if not working:
        return fail("pods", f"none of {host} is alive", "check its log; cortex up starts one")
    return ok("pods", f"alive: {_names(working)}")


def of_commands(pods: Sequence[PodFacts]) -> Finding:
    """Whether the programs that agents start are confined."""
    check = "commands"
    free = [pod.name for pod in pods if pod.confinement in {None, Confinement.UNSAFE}]
    if free:
        fix = "unset unsafe_run_command, and restart pods of older versions"
        text = f"agents' programs run with all rights of the pod: {_names(free)}"
        return fail(check, text, fix)
    if none := [pod.name for pod in pods if pod.confinement == Confinement.NONE]:
        return warn(check, f"run_command refuses to start: {_names(none)}", WAY_OUT)
    means = sorted({str(pod.confinement) for pod in pods})
    return ok(check, f"agents' programs are confined by {', '.join(means)}")


def of_locks(pods: Sequence[PodFacts]) -> Finding:
    """Whether pods hold the lock that proves they are alive."""
    holders = [pod for pod in pods if pod.liveness is Liveness.LOCK]
    without = [pod.name for pod in holders if not pod.is_locked]
    pooled = len(pods) - len(holders)
    if without:
        fix = "if they run, their connections break: check their logs; if not, their jobs move now"
        return warn("locks", f"not held by {_names(without)}", fix)
    text = f"{len(holders)} of {len(pods)} pods hold theirs"
    if pooled:
        return ok("locks", f"{text}; {pooled} behind a pooler: only silence reveals their death")
    return ok("locks", text)


def of_tls(mode: str) -> Finding:
    """Whether the way to a server on another machine is encrypted, and its certificate checked."""
    if mode == "verify-full":
        return ok("tls", "encrypted, and the server's certificate is checked (sslmode=verify-full)")
    fix = "add sslmode=verify-full&sslrootcert=FILE to the address, FILE with the server's CA"
    if mode in {"disable", "allow", "prefer"}:
        return warn("tls", f"the server need not encrypt: sslmode={mode}", fix)
    return warn("tls", f"encrypted, but who the server is goes unchecked: sslmode={mode}", fix)


def of_access(database: OpenDatabase | None) -> Finding:
    """Whether only the roles of Cortex may connect: None; else the database."""
    if database is None:
        return ok("access", "only logins that were granted it may connect to the database")
    name = database.name
    fix = (
        f"its owner runs: GRANT CONNECT ON DATABASE {name} TO {database.roles}; "
        f"REVOKE CONNECT, TEMPORARY ON DATABASE {name} FROM PUBLIC"
    )
    return warn("access", f"every login of the server may connect to database {name}", fix)


def of_intruders(observed: Sequence[IntruderFacts]) -> Finding:
    """Whether a session that belongs to no pod holds a lock of pods; reports the first one."""
    first = observed[0]
    more = f", {len(observed) - 1} more such" if len(observed) > 1 else ""
    text = f"session {first.name} belongs to no pod and holds {first.what}{more}"
    return fail("intruders", text, f"end it: SELECT pg_terminate_backend({first.pid})")


def of_queue(*, due: int, oldest_s: float, ready: bool) -> Finding:
    """Whether due jobs are taken."""
    if not due:
        return ok("queue", "no job waits")
    text = f"{due:,} due, the oldest for {timedelta(seconds=round(oldest_s))}"
    if oldest_s < WAIT_WARN_S:
        return ok("queue", text)
    fix = "add pods or slots; for one job: cortex why ID" if ready else "start a pod: cortex up"
    return warn("queue", text, fix)


def of_code(stranded: int, types: Sequence[str]) -> Finding:
    """Whether living pods have the code of all due jobs; `types` of those that wait."""
    if not stranded:
        return ok("code", "every due job has a pod whose code fits it")
    text = code_text(stranded, types)
    return warn("code", text, CODE_FIX)


def of_pauses(rows: Sequence[PauseRow]) -> Finding:
    """Whether a pause has been forgotten: it is older than a day."""
    old = [row for row in rows if since_s(row, row.paused_at) > PAUSED_LONG_S]
    if not old:
        return ok("pauses", f"{len(rows)} in force, none older than a day" if rows else "none")
    first = old[-1]
    since = span(since_s(first, first.paused_at))
    text = f"{first.target} has been paused for {since} by {first.paused_by}: {first.reason}"
    more = f", and {len(old) - 1} more" if len(old) > 1 else ""
    return warn(
        "pauses", safe(text + more), safe(f"cortex resume {shlex.quote(str(first.target))}")
    )


def of_limits(observed: Sequence[StuckLimit]) -> Finding:
    """Whether a limit keeps jobs waiting while the places of a key are never freed."""
    if not observed:
        return ok("limits", "none has kept jobs waiting for an hour without letting one through")
    first = observed[0]
    name = first.name + (f" for {first.counted_for}={first.key}" if first.counted_for else "")
    noun = "1 job waits" if first.waiting_jobs == 1 else f"{first.waiting_jobs:,} jobs wait"
    text = (
        f"{name} has let no job through for {span(first.still_s)}: all its places are held, "
        f"{noun}, the oldest for {span(first.oldest_s)}"
    )
    more = f", and {len(observed) - 1} more such" if len(observed) > 1 else ""
    fix = f"see what keeps the job that has held its place for longest: cortex why {first.holder}"
    return warn("limits", safe(text + more), fix)


def code_text(stranded: int, types: Sequence[str]) -> str:
    """Return how many jobs wait for code, and their first types, safe for a terminal."""
    noun = "1 job waits" if stranded == 1 else f"{stranded:,} jobs wait"
    names = ", ".join(types[:CODE_TYPES_MAX])
    more = f" and {len(types) - CODE_TYPES_MAX} more" if len(types) > CODE_TYPES_MAX else ""
    return safe(f"{noun} for code that no pod has" + (f": {names}{more}" if names else ""))


def of_blocked(count: int, *, pid: int | None, holder: str) -> Finding:
    """Whether jobs of lost pods can be taken over; `holder` blocks the oldest of them."""
    if not count:
        return ok("recovery", "no job of a lost pod is blocked")
    fix = "end the sessions that hold them" + (
        f": SELECT pg_terminate_backend({pid})" if pid else ""
    )
    return fail("recovery", f"{count} jobs of lost pods are blocked: {holder} holds them", fix)


def of_mcp(failing: Mapping[str, str | None], changed: Sequence[str]) -> list[Finding]:
    """Whether MCP servers fail, and whether what they say of their tools waits for a person.

    `failing`: errors by breaker; `changed`: AGENT SERVER.TOOL.
    """
    found = [
        warn(
            "mcp",
            f"{name} fails: {error or 'no reason on record'}",
            "mend the server; its calls wait",
        )
        for name, error in failing.items()
    ]
    if changed:
        fix = "look at the changes and accept them: cortex agents trust AGENT SERVER[.TOOL]"
        found.append(warn("mcp", f"tools that servers have changed: {_names(changed)}", fix))
    return found


def of_breakers(unwell: Sequence[str]) -> Finding:
    """Whether circuit breakers keep jobs waiting."""
    if not unwell:
        return ok("breakers", "all are closed")
    return warn("breakers", f"not closed: {_names(unwell)}", "see why: cortex breakers ls")


KEPT_TURNS: Final = (
    "find it: SELECT cortex.holder_of(xmax) FROM cortex.runner_turn WHERE xmax <> 0; "
    "end it: SELECT pg_terminate_backend(PID)"
)


def of_runners(rows: Sequence[RunnerRow]) -> Finding:
    """Whether background work is done, and succeeds."""
    check = "runners"
    late = [row.name for row in rows if row.is_late]
    failing = [row for row in rows if row.error is not None]
    if late:
        fix = "see why: cortex runners ls; nothing runs them without a pod or cortex tick"
        if skipped := [row.name for row in rows if row.is_late and row.skipped_in_a_row]:
            text = (
                f"are skipped by every process, since a session keeps their turn: {_names(skipped)}"
            )
            return fail(check, text, KEPT_TURNS)
        return fail(check, f"have not succeeded for five intervals: {_names(late)}", fix)
    if failing:
        text = f"the last run failed: {_names([row.name for row in failing])}"
        return warn(check, text, "see why: cortex runners ls")
    return ok(check, pulse_text(rows))


def of_retention(setting: Retention | None, runner: RunnerRow | None) -> Finding:
    """Whether old jobs and facts are deleted as the setting says."""
    check = "retention"
    if setting is None:
        return ok(check, "off: finished jobs and facts are kept for ever")
    periods = {"completed": setting.completed_s, "failed": setting.failed_s}
    periods["facts"] = setting.facts_s
    kept = ", ".join(f"{name} {span(each)}" for name, each in periods.items() if each is not None)
    text = kept.replace(" 0h", "")
    if setting.archive is not None:
        text += f", copies go to {setting.archive}"
    if runner is not None and runner.error is not None:
        fix = "cortex runners ls; or set another folder: cortex retention set"
        return warn(check, f"nothing is deleted: {runner.error}", fix)
    if setting.held_until is not None:
        fix = "it goes on by itself: cortex retention show"
        return warn(check, f"held: the clock was moved, or nothing ran for days; {text}", fix)
    return ok(check, text)


def of_letters(*, waiting: int, escalated: int) -> Finding:
    """Whether failed jobs wait for a person, `escalated` of them for an operator."""
    if not waiting:
        return ok("dead letters", "none waits for a person")
    text = "1 failed job waits" if waiting == 1 else f"{waiting:,} failed jobs wait"
    text += " for a person"
    text += f", {escalated:,} of them for an operator" if escalated else ""
    return warn("dead letters", text, "cortex dead ls")


def of_effects(unknown: int) -> Finding:
    """Whether effects with an unknown outcome wait for a person."""
    if not unknown:
        return ok("effects", "every outcome is known")
    text = f"{unknown:,} with an unknown outcome: their jobs wait for you"
    return warn("effects", text, "record the outcomes: cortex effects ls")


def of_caching(misses: Sequence[CacheMiss]) -> Finding:
    """Whether agents write their prompts to the provider's cache and hardly read them."""
    if not misses:
        return ok("caching", "no agent writes prompts to a cache that it hardly reads")
    shown = [f"{each.name} ({each.share:.0%} of {each.calls:,} calls)" for each in misses]
    more = f" and {len(shown) - NAMES_MAX} more" if len(shown) > NAMES_MAX else ""
    text = (
        f"prompts change from call to call, so that caching costs: {', '.join(shown[:NAMES_MAX])}"
    )
    fix = (
        "keep the tools, the system prompt and the beginning of the messages the same; for pauses "
        "of over five minutes cache: {ttl: 1h}, else cache: {ttl: off}: docs/guides/agents.md"
    )
    return warn("caching", f"{safe(text)}{more}", fix)


def of_approvals(unnoticed: int) -> Finding:
    """Whether a request for approval waits that nobody was notified of."""
    if not unnoticed:
        return ok("approvals", "none waits that nobody was notified of")
    fix = "subscribe somebody to approval.*: cortex subscriptions apply FILE"
    return warn("approvals", f"{unnoticed:,} wait, and nobody was notified of them", fix)


def of_schedules(
    troubled: Sequence[tuple[str, str]], *, late: Sequence[tuple[str, str]] = ()
) -> Finding:
    """Whether schedules cannot fire, or nobody declares them; each with what is wrong.

    `late`: those that can fire, and missed an instant.
    """
    if not troubled and not late:
        return ok("schedules", "all can fire")
    (name, words), *more = [*troubled, *late]
    text = f"{name}: {words}" + (f"; and {len(more)} more" if more else "")
    return (fail if troubled else warn)("schedules", text, "cortex schedules ls")


def of_subscriptions(failing: Sequence[FailingSubscription]) -> Finding:
    """Whether the receivers of messages take them; names the one that has failed longest."""
    if not failing:
        return ok("subscriptions", "no receiver fails")
    first, *more = failing
    text = f"{first.name} fails {subscription_text(first)}"
    if more:
        text += f"; also {_names([each.name for each in more])}"
    fix = f"cortex outbox ls --subscription {first.name}; once it is mended, cortex outbox retry"
    return warn("subscriptions", text, fix)


def _of_no_pods(due: int) -> Finding:
    fix = "start one: cortex up"
    if due:
        return fail("pods", f"none is ready, and {due:,} jobs are due", fix)
    return warn("pods", "none is ready", fix)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"
