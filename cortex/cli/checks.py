"""The checks of `cortex doctor`, in order; a failed check is a finding as well."""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import cortex
from cortex.cli.options import Options
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import data_dir, database, settings_from
from cortex.config import Settings, misspelled, origins
from cortex.domain.breaker import BreakerState
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.errors import CortexError, UsageError
from cortex.postgres import migrate
from cortex.postgres.database import Profile
from cortex.postgres.dsn import redact, remote_tls
from cortex.postgres.session import Session, open_session, run_alone
from cortex.store import breakers, limits, mcp, pauses, people, pulse, specs, tasks
from cortex.store import doctor as store
from cortex.store.background import retention, runners, schedules, subscriptions
from cortex.view import doctor
from cortex.view.doctor import Finding, fail, ok, warn
from cortex.view.schedules import state_of

T = TypeVar("T")

BOUND_S: Final = 5.0
SCHEDULES_MAX: Final = 1000
FAILING_MAX: Final = 100
OVERDUE_S: Final = 10.0
"""A dead pod's jobs move within two seconds; these did not."""


def findings(options: Options, terminal: Terminal | None) -> Iterator[Finding]:
    """Run all checks, the local ones first; without a terminal not that of it."""
    try:
        settings = settings_from(options)
        yield _of_config(origins({"dsn": options.dsn, "data": options.data}))
    except CortexError as error:
        yield _refused("config", error)
    else:
        yield from of_models(settings)
        yield from _of_database(settings)
    yield from _of_surroundings()
    if terminal is not None:
        yield _of_terminal(terminal)


def quick_findings(options: Options) -> Iterator[Finding]:
    """Check that a pod of this host is alive in a database that fits: one session, four queries."""
    try:
        settings = settings_from(options)
        with database(settings, must_exist=True) as address:
            run_alone(lambda: migrate.check(address))
            with open_session(Profile(dsn=address, connections_max=1, bound_s=BOUND_S)) as call:
                pods = call(store.living)
    except CortexError as error:
        yield _refused("database", error)
    else:
        host = socket.gethostname()
        yield doctor.of_host([pod for pod in pods if pod.name.startswith(f"{host}:")], host=host)


def _of_config(sources: dict[str, str]) -> Finding:
    parts = [f"{name} from {source}" for name, source in sorted(sources.items())]
    found = ", ".join(parts) + "; the rest by default" if parts else "all by default"
    if wrong := misspelled():
        names = ", ".join(wrong)
        return warn(
            "config", f"{found}; not a setting: {names}", f"set {', '.join(wrong.values())}"
        )
    return ok("config", found)


def of_models(settings: Settings) -> Iterator[Finding]:
    """Check the endpoints of the settings: their packages, and their keys if they are here."""
    from cortex.agent.models.providers import PROVIDERS

    for each in settings.models:
        try:
            PROVIDERS[each.kind].require_installed()
        except UsageError as error:
            yield warn("models", f"endpoint {each.name!r}: {error.message}", error.hint)
        if each.key_variable is not None and not os.environ.get(each.key_variable):
            yield warn(
                "models",
                f"endpoint {each.name!r} has no key: {each.key_variable} is not set here",
                f"set {each.key_variable} where pods run",
            )


def _of_surroundings() -> Iterator[Finding]:
    """Check the proxies, certificates and temporary folder of this environment."""
    from cortex.runtime.surroundings import problems

    found = list(problems())
    for problem in found:
        yield warn("environment", problem.message, problem.hint)
    if not found:
        yield ok("environment", "proxies, certificates and temporary files are usable")


def _of_database(settings: Settings) -> Iterator[Finding]:
    if settings.dsn is None:
        yield from _of_disk(data_dir(settings))
    try:
        with database(settings, must_exist=True) as address:
            yield from _of_server(address)
            yield from _of_schema(address, settings)
    except CortexError as error:
        yield _refused("database", error)


def _of_disk(folder: Path) -> Iterator[Finding]:
    try:
        disk = shutil.disk_usage(folder)
    except FileNotFoundError:
        return  # the database has not been created yet
    except OSError as error:
        fix = "make it readable for this user, or choose another folder with --data"
        yield fail("disk", f"cannot read {folder}: {error.strerror}", fix)
    else:
        yield doctor.of_disk(free_bytes=disk.free, total_bytes=disk.total, folder=str(folder))


def _of_server(address: str) -> Iterator[Finding]:
    """Check any server. Raises the error of connecting."""
    profile = Profile(dsn=address, role=None, connections_max=1, bound_s=BOUND_S)
    unix_ms = system_chance().unix_ms
    with open_session(profile) as call:
        call(store.connected)  # the first query is slow: it looks up types
        began_ms, began_s = unix_ms(), time.monotonic()
        observed = call(store.connected)
        took_ms = 1000 * (time.monotonic() - began_s)
        ahead_s = (began_ms + took_ms / 2) / 1000 - observed.now.timestamp()
        text = f"Postgres {observed.version} at {redact(address)}, answers in {took_ms:.1f}ms"
        yield ok("database", text)
        if mode := remote_tls(address):
            yield doctor.of_tls(mode)
        yield doctor.of_writes(observed.server)
        yield doctor.of_clock(ahead_s)
        yield doctor.of_connections(observed.server)
        yield doctor.of_snapshots(observed.server.snapshots)
        if observed.is_pooled:
            yield warn(
                "pooler",
                "present: pods poll, and only silence reveals a pod's death",
                ("connect to the server directly if two seconds matter; all else works as it is"),
            )
        else:
            yield ok("pooler", "none: sessions are our own")
            yield _tried("notifications", lambda: _of_hints(call))


def _of_hints(call: Session) -> Finding:
    came_ms = call(store.hint_ms)
    if came_ms is None:
        text = f"none arrived within {store.HINT_BOUND_S:g}s: pods find work by polling"
        return warn("notifications", text, "check proxies between here and the server")
    return ok("notifications", f"arrive in {came_ms:.1f}ms")


def _of_schema(address: str, settings: Settings) -> Iterator[Finding]:
    """Check pods and jobs, if the schema exists."""
    try:
        run_alone(lambda: migrate.check(address))
        with open_session(Profile(dsn=address, connections_max=1, bound_s=BOUND_S)) as call:
            yield ok("schema", f"version {len(migrate.migrations())}, as this Cortex expects")
            yield from _of_work(call, settings)
    except CortexError as error:
        yield _refused("schema", error)


def _of_work(call: Session, settings: Settings) -> Iterator[Finding]:
    yield doctor.of_logins(call(people.deciding_pods))
    pods = call(store.living)
    figures = call(pulse.figures)
    ran = call(runners.page)
    yield from doctor.of_pods(
        pods,
        version=cortex.__version__,
        due=figures.due_count,
        has_ticks=figures.ticked_s is not None,
    )
    yield doctor.of_runners(ran)
    of_retention = next((row for row in ran if row.name == "retention"), None)
    yield doctor.of_retention(call(retention.current), of_retention)
    if pods:
        yield doctor.of_locks(pods)
        yield doctor.of_commands(pods)
    yield doctor.of_access(call(store.open_to_all))
    if found := call(store.intruders):
        yield doctor.of_intruders(found)
    # Uses the pods' settings; those of this machine only if there is no pod.
    zombie_s = max((pod.zombie_s for pod in pods), default=settings.zombie_s)
    yield _tried("recovery", lambda: _of_blocked(call, zombie_s))
    yield doctor.of_queue(due=figures.due_count, oldest_s=figures.oldest_due_s, ready=bool(pods))
    yield doctor.of_code(figures.stranded_count, figures.stranded_types)
    yield doctor.of_pauses(call(pauses.page))
    yield doctor.of_limits(call(limits.stuck))
    rows = call(breakers.page)
    yield doctor.of_breakers([r.name for r in rows if r.state is not BreakerState.CLOSED])
    failing = {r.name: r.last_error for r in rows if r.name.startswith("mcp:") and r.failures}
    changed = [f"{row.agent} {row.name}" for row in call(mcp.changed)]
    yield from doctor.of_mcp(failing, changed)
    yield doctor.of_letters(
        waiting=sum(figures.letters.values()),
        escalated=figures.letters[DeadLetterState.ESCALATED],
    )
    yield doctor.of_effects(call(store.unknown_effects))
    yield doctor.of_approvals(call(store.unnoticed_approvals))
    yield doctor.of_caching(call(specs.cache_misses))
    yield doctor.of_subscriptions(call(subscriptions.failing, limit=FAILING_MAX))
    states = [(row.name, *state_of(row)) for row in call(schedules.page, limit=SCHEDULES_MAX)]
    yield doctor.of_schedules(
        [
            (name, words)
            for name, word, words, style in states
            if style == "fail" or word == "undeclared"
            if pods or word != "unserved"  # that no pod lives is a finding already
        ],
        late=[(name, words) for name, word, words, _ in states if word == "missed"],
    )


def _of_blocked(call: Session, zombie_s: float) -> Finding:
    found = call(tasks.blocked, silent_s=zombie_s, overdue_s=OVERDUE_S)
    holder = found[0].holder if found else None
    return doctor.of_blocked(
        len(found),
        pid=None if holder is None else holder.pid,
        holder=found[0].held_by if found else "",
    )


def _of_terminal(terminal: Terminal) -> Finding:
    if not terminal.is_tty:
        return ok("terminal", "none: plain text")
    colour = "in colour" if terminal.has_color else "without colours"
    text = f"{terminal.width} columns, {colour}"
    if terminal.is_ascii:
        return warn("terminal", f"{text}, ASCII only", "choose a UTF-8 locale: LANG=C.UTF-8")
    return ok("terminal", text)


def _tried(check: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except CortexError as error:
        return _refused(check, error)


def _refused(check: str, error: CortexError) -> Finding:
    return fail(check, error.message, error.hint)
