"""The terminal UI as a user sees it: `cortex tui` on a terminal, its keys, and a real Postgres.

Each part measures some bars on one database full of jobs. All measurements are external: the screen
over time, the process's resources, and the database's transactions, one per statement.
"""

import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import attrs

from bench import jobs as bench_jobs
from bench import streams
from bench.glass import Glass, Probe
from bench.tui_bars import Bar, quantile
from bench.tui_load import Load
from cortex.bench.processes import pod, scripted_model
from cortex.domain.errors import TimedOutError
from cortex.domain.interpreter import module_command
from cortex.domain.job import JobStatus
from cortex.postgres import scratch
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session, run, run_alone
from cortex.store import jobs

BAR: Final = "▌"
"""Marks the row with the cursor."""
VISIBLE: Final = 30
"""The newest jobs, all in view: the ones that change."""
STARTS: Final = 3
PAGES: Final = 40
ROUNDS: Final = 3
BETWEEN_KEYS_S: Final = 0.1
"""As fast as a key that is held down."""
SETTLED_S: Final = 1.5
"""Time until an opened screen has been read and painted."""
CHANGES_PER_S: Final = 200
EVENTS_PER_S: Final = 2_000
EVENTS_BATCH: Final = 20
TOKENS_PER_S: Final = 200
MANY_PER_S: Final = 20_000
"""Fast enough for a million within a minute."""
MANY_BATCH: Final = 200
STREAM_MORE_S: Final = 6.0
"""Time until a user has found and opened the job."""
LOOK_S: Final = 0.1
GOLDEN: Final = 0.618
FILTER_HEAD: Final = " / "
SCREENS: Final = {
    "1": "pulse",
    "2": "jobs",
    "3": "approvals",
    "4": "pods",
    "5": "dead",
    "6": "breakers",
}
"""The words that each key shows, in the top bar as well."""
FILLED: Final = frozenset({"pulse", "jobs"})
"""Screens that show the contents of a measurement's database."""
_CURSOR: Final = re.compile(rf"{BAR}[ *]…(?P<job>[0-9a-f]{{6}})")
_MARK: Final = re.compile(r"…(?P<job>[0-9a-f]{6}) .* turn (?P<number>\d+) · mark ")
MB: Final = 2**20


@attrs.frozen(kw_only=True)
class Place:
    """The database and the durations of a measurement."""

    dsn: str
    folder: Path
    jobs: int
    """Number of jobs in the database; their ids are their numbers."""
    seconds: float
    """Duration of each continuous measurement."""
    events: int
    """Number of events after which memory is measured."""

    @property
    def newest(self) -> list[UUID]:
        """Return the jobs in view."""
        return [UUID(int=self.jobs - n) for n in range(min(VISIBLE, self.jobs))]

    @contextmanager
    def on_glass(self) -> Iterator[Glass]:
        """Run the terminal UI."""
        environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environ |= {
            "CORTEX_DSN": self.dsn,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_CONFIG_HOME": str(self.folder),  # ignores the user's key bindings
        }
        command = module_command("cortex", "tui", "--as", "bench")
        with Glass(command, environ=environ, folder=self.folder) as glass:
            yield glass

    @contextmanager
    def on_jobs(self) -> Iterator[Glass]:
        """Run the terminal UI and open the jobs."""
        with self.on_glass() as glass:
            glass.until(has_figures, what="the figures")
            glass.until(cursor_on(self.jobs), keys="2", what="the jobs")
            pause(SETTLED_S)
            yield glass

    def load(self, *, per_s: float = 0, batch: int = 1, is_notified: bool = False) -> Load:
        """Change the jobs in view continuously."""
        return Load(self.dsn, self.newest, per_s=per_s, batch=batch, is_notified=is_notified)


def pause(seconds: float) -> None:
    """Wait during a measurement."""
    threading.Event().wait(seconds)


def fill(dsn: str, jobs: int) -> None:
    profile = Profile(dsn=dsn, role=None, connections_max=1)
    run(profile, lambda db: bench_jobs.fill(db, jobs))
    run_alone(lambda: scratch.settle(dsn))


# --- expected states of the screen


def cursor_on(number: int) -> Probe:
    """Return a probe for the cursor on the row of a job."""
    digits = UUID(int=number).hex[-6:]
    return lambda lines: any(line.startswith(BAR) and digits in line[:12] for line in lines)


def has_figures(lines: Sequence[str]) -> bool:
    """Whether the first screen shows its figures."""
    return "LIVE" in lines[0] and "reading" not in lines[1] and lines[1].strip() != ""


def at_cursor(glass: Glass) -> int:
    """Return the number of the job under the cursor."""
    rows = (_CURSOR.match(line) for line in glass.text.split("\n"))
    (found,) = [int(row["job"], 16) for row in rows if row]
    return found


# --- the parts


def start(place: Place) -> Iterator[Bar]:
    """Measure a cold start; only the database and the file cache are warm."""
    first_s, live_s = [], []
    for _ in range(STARTS):
        with place.on_glass() as glass:
            painted = glass.until(lambda lines: "cortex" in lines[0], what="the top bar")
            first_s.append(painted - glass.began)
            live_s.append(glass.until(has_figures, what="the figures") - glass.began)
    under = f"{STARTS} starts, their median"
    yield Bar("first paint", statistics.median(first_s), "s", below=1.0, under=under)
    yield Bar("first live figures", statistics.median(live_s), "s", below=1.5, under=under)


def lists(place: Place) -> Iterator[Bar]:
    """Open, page, go to the end, filter: the slowest of each."""
    opened, ends, filtered = [], [], []
    for _ in range(STARTS):
        with place.on_glass() as glass:
            glass.until(has_figures, what="the figures")
            pause(SETTLED_S)
            opened.append(glass.timed("2", cursor_on(place.jobs), what="the jobs"))
    with place.on_jobs() as glass:
        paged = list(_paged(glass, place))
        for _ in range(ROUNDS):
            for key, number in (("g", place.jobs), ("G", 1)):
                pause(SETTLED_S / 2)
                ends.append(glass.timed(key, cursor_on(number), what=f"the job after {key}"))
        for text, first in _filters(place.jobs):
            filtered.append(_filtered(glass, place, text, first))
    among = f"{place.jobs:,} jobs, the slowest of"
    yield Bar("list: open", max(opened), "s", below=0.3, under=f"{among} {len(opened)}")
    yield Bar("list: page down", max(paged), "s", below=0.3, under=f"{among} {len(paged)}")
    yield Bar("list: to either end", max(ends), "s", below=0.3, under=f"{among} {len(ends)}")
    yield Bar("list: filter", max(filtered), "s", below=0.3, under=f"{among} {len(filtered)}")


def _paged(glass: Glass, place: Place) -> Iterator[float]:
    """Yield the time of each half page."""
    yield glass.timed("\x04", _not(cursor_on(place.jobs)), what="half a page below")
    half = place.jobs - at_cursor(glass)
    for number in range(place.jobs - 2 * half, max(0, place.jobs - PAGES * half), -half):
        pause(BETWEEN_KEYS_S)
        yield glass.timed("\x04", cursor_on(number), what=f"job {number}")


def _filters(jobs: int) -> list[tuple[str, int]]:
    """Return filters, and the newest matching job of each."""
    ended = jobs - bench_jobs.RUNNING
    return [
        ("status:failed", ended - ended % 1000),
        ("agent:agent-7", jobs - (jobs - 6) % bench_jobs.AGENTS),
        ("status:cancelled agent:agent-2", ended - (ended - 1) % 1000),
    ]


def _not(probe: Probe) -> Probe:
    return lambda lines: any(line.startswith(BAR) for line in lines) and not probe(lines)


def _filtered(glass: Glass, place: Place, text: str, first: int) -> float:
    """Return the seconds from Enter to the first matching job; then remove the filter."""
    _type_filter(glass, text)
    pause(SETTLED_S / 2)
    took_s = glass.timed("\r", cursor_on(first), what=f"jobs that match {text}")
    _type_filter(glass, "")
    glass.until(cursor_on(place.jobs), keys="\r", what="all jobs again")
    return took_s


def _type_filter(glass: Glass, text: str) -> None:
    """Type the filter key by key, over a previous one."""
    glass.until(_is_written, keys="/", what="the filter")
    pause(BETWEEN_KEYS_S)  # painted before it takes keys
    before = glass.text.split("\n")[1].removeprefix(FILTER_HEAD.rstrip()).strip()
    steps = [("\x7f", before[:end]) for end in reversed(range(len(before)))]
    steps += [(sign, text[:end]) for end, sign in enumerate(text, 1)]
    for key, typed in steps:
        shown = (FILTER_HEAD + typed).rstrip()
        glass.until(_first_is(shown), keys=key, what=f"{typed!r} in the filter")


def _is_written(lines: Sequence[str]) -> bool:
    """Whether the filter is being edited: otherwise the number of jobs stands at its right."""
    return not any(text in lines[1] for text in ("jobs", "reading", "first"))


def _first_is(shown: str) -> Probe:
    return lambda lines: lines[1].rstrip() == shown


def idle(place: Place) -> Iterator[Bar]:
    """Measure each numbered screen while no key is pressed and nothing happens."""
    observed: list[tuple[str, float, float]] = []
    before = _background(place)
    with place.on_jobs() as glass:
        for key, screen in SCREENS.items():
            glass.until(_is_at(screen), keys=key, what=screen)
            pause(SETTLED_S)
            with place.load() as load:
                share = _cpu_share(glass, place.seconds)
            observed.append((screen, share, load.others_per_s))
    alone = min(before, _background(place))
    for screen, share, others in observed:
        # The database contains only jobs: other screens would cost more if they were full.
        room = "" if screen in FILLED else ", empty"
        under = f"{screen}{room}, {place.seconds:g} s"
        yield Bar("processor, idle", share, "%", below=1, under=under)
        yield Bar("statements a second, idle", others - alone, "", most=4, under=under)


def _is_at(screen: str) -> Probe:
    return lambda lines: f"> {screen}" in lines[0]


def changes(place: Place) -> Iterator[Bar]:
    """Measure the delay from commit to paint; each change is a transaction of its own.

    A change counts as painted when it, or a later one, is painted. The delay starts when this
    process learns of the commit, about a millisecond after it.

    The first moments do not count: a screen without changes polls every half second and speeds up
    with the first change it finds.
    """
    painted: list[tuple[str, int, float]] = []

    def note(lines: Sequence[str], at: float) -> None:
        marks = (_MARK.search(line) for line in lines)
        painted.extend((mark["job"], int(mark["number"]), at) for mark in marks if mark)

    before = _background(place, per_s=CHANGES_PER_S)
    with place.on_jobs() as glass:
        with place.load(per_s=CHANGES_PER_S):
            pause(SETTLED_S)
        glass.on_paint = note
        with place.load(per_s=CHANGES_PER_S) as load:
            pause(place.seconds)
        pause(SETTLED_S)
    took_s = list(_until_painted(load, painted))
    alone = min(before, _background(place, per_s=CHANGES_PER_S))
    under = f"{load.per_s:,.0f} changes/s, {len(took_s):,} in all"
    of = load.per_s / CHANGES_PER_S
    yield Bar("commit → painted, p95", quantile(took_s, 0.95), "s", below=0.25, under=under, of=of)
    yield Bar("commit → painted, p99", quantile(took_s, 0.99), "s", below=0.5, under=under, of=of)
    others = load.others_per_s - alone
    yield Bar("statements a second, changes", others, "", most=4, under=under, of=of)


def _background(place: Place, *, per_s: float = 0) -> float:
    """Return the transactions per second that the server itself makes (its clean-up).

    They come in bursts; the quieter of two measurements, before and after, is subtracted.
    """
    with place.load(per_s=per_s) as load:
        pause(place.seconds)
    return load.others_per_s


def _until_painted(load: Load, painted: Sequence[tuple[str, int, float]]) -> Iterator[float]:
    """Yield the seconds from each commit until it, or a later one of its job, was painted."""
    shown: dict[str, list[tuple[int, float]]] = {}
    for job, number, at in painted:
        shown.setdefault(job, []).append((number, at))
    for number, job_id, at in load.changes:
        of_job = shown.get(job_id.hex[-6:], [])
        seen_at = next((when for later, when in of_job if later >= number), None)
        if seen_at is None:
            raise TimedOutError(f"change {number} of job {job_id} was never painted")
        yield max(0.0, seen_at - at)


def events(place: Place) -> Iterator[Bar]:
    """Change rows in view, each with a notification; measure processor and key latency."""
    with place.on_jobs() as glass:
        with place.load(per_s=EVENTS_PER_S, batch=EVENTS_BATCH, is_notified=True) as load:
            pause(SETTLED_S)
            share = _cpu_share(glass, place.seconds)
            keys_s = list(_keys(glass, place))
    under, of = f"{load.per_s:,.0f} events/s", load.per_s / EVENTS_PER_S
    lasted = f"{under}, {place.seconds:g} s"
    yield Bar("processor, events", share, "%", below=10, under=lasted, of=of)
    under += f", {len(keys_s)} keys"
    yield Bar("key → painted, p95", quantile(keys_s, 0.95), "s", below=0.05, under=under, of=of)
    yield Bar("key → painted, longest", max(keys_s), "s", below=0.1, under=under, of=of)


def _keys(glass: Glass, place: Place) -> Iterator[float]:
    """Move the cursor down and up again; yield how long each key took to show."""
    for number in range(max(2, round(place.seconds / BETWEEN_KEYS_S))):
        key, wanted = ("k", place.jobs) if number % 2 else ("j", place.jobs - 1)
        # At irregular intervals, so that keys do not align with periodic work.
        pause(BETWEEN_KEYS_S * (0.5 + number * GOLDEN % 1))
        yield glass.timed(key, cursor_on(wanted), what=f"the cursor on job {wanted}")


def tokens(place: Place) -> Iterator[Bar]:
    """Watch a job whose model streams at a fixed rate."""
    log = place.folder / "children.log"
    seconds = place.seconds + STREAM_MORE_S
    with scripted_model(log, "tools") as base_url:
        environ = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "scripted"}
        with pod(place.dsn, log, **environ):
            job_id, share = _stream(place, seconds)
    (took_s,) = run(Profile(dsn=place.dsn), lambda db: scratch.model_durations(db, [job_id]))
    per_s = TOKENS_PER_S * seconds / took_s
    under, of = f"{per_s:,.0f} tokens/s, {place.seconds:g} s", per_s / TOKENS_PER_S
    yield Bar("processor, tokens", share, "%", below=15, under=under, of=of)


def _stream(place: Place, seconds: float) -> tuple[UUID, float]:
    """Watch a job while its model streams; return the job and the share of a core."""
    profile = Profile(dsn=place.dsn)
    with place.on_jobs() as glass:
        (job_id,) = run(
            profile,
            lambda db: streams.submit(db, count=1, chunks_per_s=TOKENS_PER_S, seconds=seconds),
        )
        digits = job_id.hex[-6:]
        glass.until(
            lambda lines: any(digits in line for line in lines), keys=".", what="the new job"
        )
        glass.until(cursor_on(job_id.int), keys="g", what="the cursor on the new job")
        glass.until(lambda lines: any("tok/s" in line for line in lines), keys="\r", what="words")
        share = _cpu_share(glass, place.seconds)
    with open_session(profile) as call:
        while call(jobs.counts, [job_id]).get(JobStatus.COMPLETED) is None:
            call.pause(LOOK_S)
    return job_id, share


def memory(place: Place) -> Iterator[Bar]:
    """Send as many events as a long session has, as fast as possible; the first half warms up."""
    with place.on_jobs() as glass:
        first_mb, _ = _after(glass, place, place.events // 2)
        last_mb, per_s = _after(glass, place, place.events // 2)
    under = f"{place.events:,} events, {per_s:,.0f} a second"
    yield Bar("memory", last_mb, "MiB", below=150, under=under)
    yield Bar("memory, second half", last_mb - first_mb, "MiB", below=5, under=under)


def _after(glass: Glass, place: Place, count: int) -> tuple[float, float]:
    """Return the memory used after `count` events, and the events per second."""
    with place.load(per_s=MANY_PER_S, batch=MANY_BATCH, is_notified=True) as load:
        while load.count < count:
            load.check()
            pause(LOOK_S)
    pause(SETTLED_S)
    return glass.process.memory_info().rss / MB, load.per_s


def _cpu_share(glass: Glass, seconds: float) -> float:
    """Return the processor time used, in percent of a core."""

    def taken_s() -> float:
        times = glass.process.cpu_times()
        return times.user + times.system

    before, began = taken_s(), time.perf_counter()
    pause(seconds)
    return 100 * (taken_s() - before) / (time.perf_counter() - began)


PARTS: Final[Mapping[str, Callable[[Place], Iterator[Bar]]]] = {
    part.__name__: part for part in (start, lists, idle, changes, events, memory, tokens)
}
