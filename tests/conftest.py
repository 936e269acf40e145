"""Fixtures of the whole test suite: real Postgres databases and servers."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from cortex.domain import redaction
from cortex.postgres.database import Profile
from cortex.postgres.embedded.cluster import FileLock
from tests.support.gate.workers import worker_count
from tests.support.life import Life
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import SharedPostgres, make_home, make_run_dir, remove_servers
from tests.support.servers.private_postgres import PrivatePostgres, bindirs, copy_of_original

RUN_DIR = "CORTEX_TEST_RUN_DIR"  # the xdist workers inherit it
RUN_LOCK = pytest.StashKey[FileLock]()
WAITING = ("tests/e2e", "tests/tui/terminal", "tests/chaos")
"""Folders whose tests wait most of their time: first, so that others compute beside them."""
GC_THRESHOLDS = (20_000, 20, 50)  # Python's own cost a sixth of all CPU: imports live to the end


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    # As structlog would, but without a second of CPU for each traceback in colours.
    *first, _ = structlog.get_config()["processors"]
    shown = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*first, shown])
    if not _is_worker(config):
        run_dir, config.stash[RUN_LOCK] = make_run_dir()
        os.environ[RUN_DIR] = str(run_dir)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return worker_count(config.args, cores=os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def begins_late(item: pytest.Item) -> bool:
        return not item.nodeid.startswith(WAITING)

    items.sort(key=begins_late)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was absent, so that tests did not run; `-rs` would have a line for each of them."""
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(each.longrepr[2] for each in skipped if isinstance(each.longrepr, tuple))
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_worker(config):
        remove_servers(Path(os.environ.pop(RUN_DIR)))
        config.stash[RUN_LOCK].close()


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over the tests themselves: thousands, none ends soon."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked `postgres_versions` once for each Postgres at hand."""
    if metafunc.definition.get_closest_marker("postgres_versions"):
        metafunc.parametrize("bindir", bindirs(), ids=str, indirect=True)


@pytest.fixture(scope="session")
def run_dir() -> Path:
    """The directory of this run, which any system user may pass."""
    return Path(os.environ[RUN_DIR])


@pytest.fixture(scope="session")
def shared_postgres(run_dir: Path) -> Iterator[SharedPostgres]:
    """The run's server. No test may stop or reconfigure it: see `private_postgres`."""
    server = SharedPostgres(run_dir)
    yield server
    server.release()


@pytest.fixture
def database(shared_postgres: SharedPostgres) -> Iterator[str]:
    """The DSN of a database of the test's own with the current schema and no rows."""
    dsn = shared_postgres.lend()
    yield dsn
    shared_postgres.give_back(dsn)


@pytest.fixture(scope="module")
def shared_database(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A migrated database for all tests of a module."""
    dsn = shared_postgres.create_migrated()
    yield dsn
    shared_postgres.drop(dsn)


@pytest.fixture
def life(database: str) -> Iterator[Life]:
    """Acts of pods on the same database."""
    with kept_session(Profile(dsn=database)) as call:
        yield Life(call, database)


@pytest.fixture
def filled(shared_postgres: SharedPostgres) -> Iterator[Callable[..., str]]:
    """Makes a database of the test's own, with the current schema, that SQL scripts have filled."""
    made: list[str] = []

    def fill(*scripts: str) -> str:
        made.append(shared_postgres.create_filled(scripts))
        return made[-1]

    yield fill
    for dsn in made:
        shared_postgres.drop(dsn)


@pytest.fixture
def empty_database(shared_postgres: SharedPostgres) -> Iterator[str]:
    """The DSN of a database of the test's own without a schema."""
    dsn = shared_postgres.create_empty()
    yield dsn
    shared_postgres.drop(dsn)


@pytest.fixture
def bindir(request: pytest.FixtureRequest) -> Path:
    """The programs of the Postgres under test: the first one unless the test is marked."""
    chosen: Path = getattr(request, "param", None) or bindirs()[0]
    return chosen


@pytest.fixture
def private_postgres(run_dir: Path, bindir: Path) -> Iterator[PrivatePostgres]:
    """A running server of the test's own, without a schema, to be stopped and killed at will."""
    home = copy_of_original(run_dir, bindir=bindir)
    server = PrivatePostgres(home, bindir=bindir)
    server.start()
    yield server
    remove_servers(home)


@pytest.fixture
def server_home(run_dir: Path) -> Iterator[Path]:
    """An empty directory that a server's system user may pass, unlike `tmp_path`."""
    home = make_home(run_dir)
    yield home
    remove_servers(home)


def _is_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of xdist and not the process that a person started."""
    return hasattr(config, "workerinput")


@pytest.fixture(autouse=True)
def _no_secret_stays_known() -> Iterator[None]:
    """Forget the secrets that a test registered."""
    process = redaction._process
    values, patterns, known = dict(process._values), dict(process._patterns), process._known
    yield
    process._values, process._patterns, process._known = values, patterns, known
