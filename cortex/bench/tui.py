"""The terminal UI as somebody sees it: `cortex tui` on a terminal, its keys, and a real Postgres.

Each part measures some bars, on one database full of jobs. All is seen from outside: what stands on
the terminal and when, what the process takes, and how many transactions the database saw: each
statement that looks is one.
"""

import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import attrs

from cortex.bench import jobs as bench_jobs
from cortex.bench import streams
from cortex.bench.glass import Glass, Probe
from cortex.bench.processes import pod, scripted_model
from cortex.bench.tui_bars import Bar, quantile
from cortex.bench.tui_load import Load
from cortex.domain.errors import TimedOutError
from cortex.domain.job import JobStatus
from cortex.postgres import scratch
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session, run, run_alone
from cortex.store import jobs

BAR: Final = "▌"
"""Stands before the row that the cursor is on."""
VISIBLE: Final = 30
"""The newest jobs, all of them in sight: those that change."""
STARTS: Final = 3
PAGES: Final = 40
ROUNDS: Final = 3
BETWEEN_KEYS_S: Final = 0.1
"""As quick as a key that is held down."""
SETTLED_S: Final = 1.5
"""Once what was opened has been read and painted."""
CHANGES_PER_S: Final = 200
EVENTS_PER_S: Final = 2_000
EVENTS_BATCH: Final = 20
TOKENS_PER_S: Final = 200
MANY_PER_S: Final = 20_000
"""Quick enough for a million within a minute."""
MANY_BATCH: Final = 200
STREAM_MORE_S: Final = 6.0
"""Until somebody has found the job and looks at it."""
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
"""What each key shows, in the top bar, too."""
FILLED: Final = frozenset({"pulse", "jobs"})
"""Those that show what a measurement's database has."""
_CURSOR: Final = re.compile(rf"{BAR}[ *]…(?P<job>[0-9a-f]{{6}})")
_MARK: Final = re.compile(r"…(?P<job>[0-9a-f]{6}) .* (?P<number>\d+) mark ")
MB: Final = 2**20


@attrs.frozen(kw_only=True)
class Place:
    """Where a part measures, and for how long."""

    dsn: str
    folder: Path
    jobs: int
    """So many are in the database; their ids are their numbers."""
    seconds: float
    """Of each thing that goes on."""
    events: int
    """After which the memory is looked at."""

    @property
    def newest(self) -> list[UUID]:
        """The jobs in sight."""
        return [UUID(int=self.jobs - n) for n in range(min(VISIBLE, self.jobs))]

    @contextmanager
    def on_glass(self) -> Iterator[Glass]:
        """Run the terminal UI."""
        environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environ |= {
            "CORTEX_DSN": self.dsn,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "XDG_CONFIG_HOME": str(self.folder),  # no keys of the user's own
        }
        command = [sys.executable, "-m", "cortex", "tui", "--as", "bench"]
        with Glass(command, environ=environ, folder=self.folder) as glass:
            yield glass

    @contextmanager
    def on_jobs(self) -> Iterator[Glass]:
        """Run the terminal UI, and go to the jobs."""
        with self.on_glass() as glass:
            glass.until(has_figures, what="the figures")
            glass.until(cursor_on(self.jobs), keys="2", what="the jobs")
            pause(SETTLED_S)
            yield glass

    def load(self, *, per_s: float = 0, batch: int = 1, is_told: bool = False) -> Load:
        """Let the jobs in sight go on."""
        return Load(self.dsn, self.newest, per_s=per_s, batch=batch, is_told=is_told)


def pause(seconds: float) -> None:
    """Wait while something is measured."""
    threading.Event().wait(seconds)


def fill(dsn: str, jobs: int) -> None:
    """Fill an empty database."""
    profile = Profile(dsn=dsn, role=None, connections_max=1)
    run(profile, lambda db: bench_jobs.fill(db, jobs))
    run_alone(lambda: scratch.settle(dsn))


# --- what is waited for


def cursor_on(number: int) -> Probe:
    """Wait for the cursor on the row of a job."""
    digits = UUID(int=number).hex[-6:]
    return lambda lines: any(line.startswith(BAR) and digits in line[:12] for line in lines)


def has_figures(lines: Sequence[str]) -> bool:
    """Whether the first screen shows what was read."""
    return "LIVE" in lines[0] and "reading" not in lines[1] and lines[1].strip() != ""


def at_cursor(glass: Glass) -> int:
    """Return the number of the job that the cursor is on."""
    rows = (_CURSOR.match(line) for line in glass.text.split("\n"))
    (found,) = [int(row["job"], 16) for row in rows if row]
    return found


# --- the parts


def start(place: Place) -> Iterator[Bar]:
    """Nothing is warm but the database and the files."""
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
    """Open, page, to the end, filter: the slowest of each."""
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
                ends.append(glass.timed(key, cursor_on(number), what=f"what {key} shows"))
        for text, first in _filters(place.jobs):
            filtered.append(_filtered(glass, place, text, first))
    among = f"{place.jobs:,} jobs, the slowest of"
    yield Bar("list: open", max(opened), "s", below=0.3, under=f"{among} {len(opened)}")
    yield Bar("list: page down", max(paged), "s", below=0.3, under=f"{among} {len(paged)}")
    yield Bar("list: to either end", max(ends), "s", below=0.3, under=f"{among} {len(ends)}")
    yield Bar("list: filter", max(filtered), "s", below=0.3, under=f"{among} {len(filtered)}")


def _paged(glass: Glass, place: Place) -> Iterator[float]:
    """Yield how long each half page took."""
    yield glass.timed("\x04", _not(cursor_on(place.jobs)), what="half a page below")
    half = place.jobs - at_cursor(glass)
    for number in range(place.jobs - 2 * half, max(0, place.jobs - PAGES * half), -half):
        pause(BETWEEN_KEYS_S)
        yield glass.timed("\x04", cursor_on(number), what=f"job {number}")


def _filters(jobs: int) -> list[tuple[str, int]]:
    """Return filters, and the newest job that fits each."""
    ended = jobs - bench_jobs.RUNNING
    return [
        ("status:failed", ended - ended % 1000),
        ("agent:agent-7", jobs - (jobs - 6) % bench_jobs.AGENTS),
        ("status:cancelled agent:agent-2", ended - (ended - 1) % 1000),
    ]


def _not(probe: Probe) -> Probe:
    return lambda lines: any(line.startswith(BAR) for line in lines) and not probe(lines)


def _filtered(glass: Glass, place: Place, text: str, first: int) -> float:
    """Return the seconds from Enter to the first job that fits; then take the filter away."""
    _type_filter(glass, text)
    pause(SETTLED_S / 2)
    took_s = glass.timed("\r", cursor_on(first), what=f"jobs that fit {text}")
    _type_filter(glass, "")
    glass.until(cursor_on(place.jobs), keys="\r", what="all jobs again")
    return took_s


def _type_filter(glass: Glass, text: str) -> None:
    """Type it sign by sign, as people do, where another one may stand."""
    glass.until(_is_written, keys="/", what="the filter")
    pause(BETWEEN_KEYS_S)  # it is painted before it takes keys
    before = glass.text.split("\n")[1].removeprefix(FILTER_HEAD.rstrip()).strip()
    steps = [("\x7f", before[:end]) for end in reversed(range(len(before)))]
    steps += [(sign, text[:end]) for end, sign in enumerate(text, 1)]
    for key, typed in steps:
        shown = (FILTER_HEAD + typed).rstrip()
        glass.until(_first_is(shown), keys=key, what=f"{typed!r} in the filter")


def _is_written(lines: Sequence[str]) -> bool:
    """Whether the filter is written: else how many jobs there are stands at its right."""
    return not any(told in lines[1] for told in ("jobs", "reading", "first"))


def _first_is(shown: str) -> Probe:
    return lambda lines: lines[1].rstrip() == shown


def idle(place: Place) -> Iterator[Bar]:
    """Nobody presses a key and nothing happens: on each screen that has a number."""
    seen: list[tuple[str, float, float]] = []
    before = _background(place)
    with place.on_jobs() as glass:
        for key, screen in SCREENS.items():
            glass.until(_is_at(screen), keys=key, what=screen)
            pause(SETTLED_S)
            with place.load() as load:
                share = _cpu_share(glass, place.seconds)
            seen.append((screen, share, load.others_per_s))
    alone = min(before, _background(place))
    for screen, share, others in seen:
        # There are only jobs in the database: a screen full of anything else costs more.
        room = "" if screen in FILLED else ", empty"
        under = f"{screen}{room}, {place.seconds:g} s"
        yield Bar("processor, idle", share, "%", below=1, under=under)
        yield Bar("statements a second, idle", others - alone, "", most=4, under=under)


def _is_at(screen: str) -> Probe:
    return lambda lines: f"> {screen}" in lines[0]


def changes(place: Place) -> Iterator[Bar]:
    """Each change is a transaction of its own; it counts when it, or a later one, is painted.

    From the moment when its commit is known here: about a millisecond after it.

    Those of the first moments do not count: a screen on which nothing changed looks every half
    second, and takes up its pace with the first change that it finds.
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
    """Return how many transactions a second the server makes by itself meanwhile: its clean-up.

    That comes in bursts: looked at before and after, the quieter one is what may be left out.
    """
    with place.load(per_s=per_s) as load:
        pause(place.seconds)
    return load.others_per_s


def _until_painted(load: Load, painted: Sequence[tuple[str, int, float]]) -> Iterator[float]:
    """Yield the seconds from each commit to its painting, or that of a later one of its job."""
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
    """Rows in sight change, each with a notification: what it costs, and what keys feel of it."""
    with place.on_jobs() as glass:
        with place.load(per_s=EVENTS_PER_S, batch=EVENTS_BATCH, is_told=True) as load:
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
        # At odd times, so that it does not keep step with what comes at even ones.
        pause(BETWEEN_KEYS_S * (0.5 + number * GOLDEN % 1))
        yield glass.timed(key, cursor_on(wanted), what=f"the cursor on job {wanted}")


def tokens(place: Place) -> Iterator[Bar]:
    """A pod runs a job whose model says so much; somebody looks at that job."""
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
    """Look at a job while its model speaks; return the job, and the share of a core."""
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
    """As many events as a long sitting has, as quick as they come; half of them to warm up."""
    with place.on_jobs() as glass:
        first_mb, _ = _after(glass, place, place.events // 2)
        last_mb, per_s = _after(glass, place, place.events // 2)
    under = f"{place.events:,} events, {per_s:,.0f} a second"
    yield Bar("memory", last_mb, "MiB", below=150, under=under)
    yield Bar("memory, second half", last_mb - first_mb, "MiB", below=5, under=under)


def _after(glass: Glass, place: Place, count: int) -> tuple[float, float]:
    """Return the memory that it has after so many events, and how many a second there were."""
    with place.load(per_s=MANY_PER_S, batch=MANY_BATCH, is_told=True) as load:
        while load.count < count:
            load.check()
            pause(LOOK_S)
    pause(SETTLED_S)
    return glass.process.memory_info().rss / MB, load.per_s


def _cpu_share(glass: Glass, seconds: float) -> float:
    """Return how much of a core it takes, in percent."""

    def taken_s() -> float:
        times = glass.process.cpu_times()
        return times.user + times.system

    before, began = taken_s(), time.perf_counter()
    pause(seconds)
    return 100 * (taken_s() - before) / (time.perf_counter() - began)


PARTS: Final[Mapping[str, Callable[[Place], Iterator[Bar]]]] = {
    part.__name__: part for part in (start, lists, idle, changes, events, memory, tokens)
}
