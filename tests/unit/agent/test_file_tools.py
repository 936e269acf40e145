"""list_files, read_file and write_file: their results, and no path leads out of the folder."""

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.tools.list_files import list_files
from cortex.agent.tools.read_file import READ_BYTES_MAX, read_file
from cortex.agent.tools.tool import ToolContext
from cortex.agent.tools.write_file import write_file
from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
    RejectedError,
)
from tests.support.eventually import WITHIN_S

SECRET = "the secret outside"


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@contextlib.contextmanager
def a_folder_with_ways_out() -> Iterator[ToolContext]:
    """A workspace with symlinks out of it, and a secret file beside it."""
    with TemporaryDirectory() as name:
        outside, workspace = Path(name) / "outside", Path(name) / "workspace"
        (workspace / "inner" / "deep").mkdir(parents=True)
        outside.mkdir()
        (outside / "secret").write_text(SECRET)
        (workspace / "file").write_text("inside")
        (workspace / "inner" / "secret").symlink_to(outside / "secret")
        (workspace / "link").symlink_to(outside)
        (workspace / "inner" / "up").symlink_to("..")
        (workspace / "loop").symlink_to("loop")
        yield ToolContext(job_id=UUID(int=1), attempt=1, call_id="c", workspace=workspace)


PARTS = [
    "..",
    ".",
    "",
    "inner",
    "deep",
    "file",
    "link",
    "up",
    "secret",
    "loop",
    "outside",
    "new",
    "*",
]
PARTS += ["**", "etc", "passwd", "a\0b", "\ud800", "~", "x" * 300]
paths = st.lists(st.sampled_from(PARTS), max_size=6).map("/".join)


@given(paths)
def test_no_path_reads_lists_or_writes_outside(path: str) -> None:
    with a_folder_with_ways_out() as context:
        outside = context.workspace.parent / "outside"
        for tool, given in (
            (read_file, {"path": path}),
            (list_files, {"pattern": path}),
            (write_file, {"path": path, "content": "written"}),
        ):
            with contextlib.suppress(CortexError):
                assert SECRET not in str(trio.run(tool.call, context, given))
        assert names(outside) == ["secret"]
        assert (outside / "secret").read_text() == SECRET
        assert names(outside.parent) == ["outside", "workspace"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x",
        "inner/../../x",
        "link/secret",
        "inner/secret",
        "loop",
        "inner/up/file",
    ],
)
def test_each_way_out_is_named(path: str) -> None:
    with a_folder_with_ways_out() as context:
        for tool, given in ((read_file, {}), (write_file, {"content": ""})):
            with pytest.raises(ForbiddenError, match=r"absolute|leaves the folder|is a symlink"):
                trio.run(tool.call, context, {"path": path, **given})


async def test_folder_swapped_for_a_symlink_is_never_written_through(
    context: ToolContext, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = context.workspace / "place"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            shutil.rmtree(place, ignore_errors=True)
            with contextlib.suppress(FileExistsError):
                place.symlink_to(outside)
            with contextlib.suppress(IsADirectoryError, PermissionError):
                place.unlink()

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            with contextlib.suppress(CortexError):
                await write_file.call(context, {"path": "place/f", "content": "x"})
    finally:
        stop.set()
        swapping.join()
    assert names(outside) == []


async def test_file_swapped_for_a_symlink_is_never_read_through(
    context: ToolContext, tmp_path: Path
) -> None:
    outside, place = tmp_path / "outside", context.workspace / "place"
    outside.mkdir()
    (outside / "f").write_text(SECRET)
    (outside / "a secret name").touch()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            place.symlink_to(outside)
            place.unlink()
            place.mkdir()
            (place / "f").write_text("inside")
            (place / "f").unlink()
            (place / "f").symlink_to(outside / "f")
            shutil.rmtree(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = ""
    try:
        for _ in range(300):
            for tool, given_ in (
                (read_file, {"path": "place/f"}),
                (list_files, {"pattern": "place/*"}),
            ):
                with contextlib.suppress(CortexError):
                    seen += str(await tool.call(context, given_))
    finally:
        stop.set()
        swapping.join()
    assert SECRET not in seen
    assert "a secret name" not in seen


async def call(tool: Any, context: ToolContext, **given: object) -> Any:
    return await tool.call(context, given)


async def test_a_file_is_written_with_its_folders_and_read_back(context: ToolContext) -> None:
    written = await call(write_file, context, path="a/b/c.txt", content="grüezi\n")
    assert written == {"path": "a/b/c.txt", "bytes": 8}
    assert await call(read_file, context, path="a/b/c.txt") == "grüezi\n"


async def test_replacing_a_file_keeps_its_permissions(
    context: ToolContext,
) -> None:
    script = context.workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    await call(write_file, context, path="run.sh", content="new")
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert names(context.workspace) == ["run.sh"]


@pytest.mark.parametrize("path", ["x" * 256, "a/" * 65 + "f", "a/" * 3_000, "x/" * 1_000_000])
async def test_path_that_is_too_long_creates_nothing(context: ToolContext, path: str) -> None:
    for tool, given_ in ((read_file, {}), (write_file, {"content": "x"})):
        with pytest.raises(CortexError) as caught:
            await call(tool, context, path=path, **given_)
        assert len(caught.value.message) < 400
    assert names(context.workspace) == []


@pytest.mark.parametrize("path", [".git", ".git/config", "a/.git", "a/.GIT/hooks/post-checkout"])
async def test_model_cannot_write_files_of_git(context: ToolContext, path: str) -> None:
    """A file `.git` can lead to another repository, a configuration can name a program to run."""
    with pytest.raises(ForbiddenError, match="is git's own"):
        await call(write_file, context, path=path, content="gitdir: /elsewhere/.git\n")
    assert names(context.workspace) == []


async def test_a_hard_link_is_replaced_and_not_written_through(
    context: ToolContext, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside")
    (context.workspace / "f").hardlink_to(outside)
    await call(write_file, context, path="f", content="x")
    assert outside.read_text() == "outside"


async def test_failed_write_leaves_no_files(context: ToolContext) -> None:
    (context.workspace / "folder").mkdir()
    for path in ("folder", ".", ""):
        with pytest.raises(RejectedError, match="cannot be written"):
            await call(write_file, context, path=path, content="x")
    assert names(context.workspace) == ["folder"]
    assert names(context.workspace / "folder") == []


async def test_a_write_that_was_given_up_does_not_land(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disc hangs, the call is cancelled, another attempt writes, and the disc comes back."""
    target = context.workspace / "f"
    hanging, back, ended = threading.Event(), threading.Event(), threading.Event()
    fsync = os.fsync

    def hang(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        hanging.set()
        back.wait()
        fsync(file)

    def write() -> None:
        try:
            write_file.run(context, path="f", content="late")
        finally:
            ended.set()

    monkeypatch.setattr(os, "fsync", hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: trio.to_thread.run_sync(write, abandon_on_cancel=True))
        await trio.to_thread.run_sync(hanging.wait)
        nursery.cancel_scope.cancel()
    await call(write_file, context, path="f", content="newer")
    back.set()
    await trio.to_thread.run_sync(ended.wait)
    assert target.read_text() == "newer"
    assert names(context.workspace) == ["f"]


async def test_tools_read_from_the_folder_and_write_to_the_workspace(
    context: ToolContext, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "f").write_text("from the folder")
    apart = attrs.evolve(context, folder=folder)
    await call(write_file, apart, path="g", content="x")
    assert await call(read_file, apart, path="f") == "from the folder"
    assert (await call(list_files, apart))["paths"] == ["f"]
    assert names(context.workspace) == ["g"]


@given(
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50),
    limit=st.integers(1, 7),
)
def test_the_pieces_of_a_file_make_the_whole(text: str, limit: int) -> None:
    with a_folder_with_ways_out() as context:
        path = context.workspace / "file"
        path.write_bytes(text.encode())
        pieces: list[str] = []
        offset: int | None = 0
        while offset is not None:
            piece = trio.run(
                read_file.call, context, {"path": "file", "offset": offset, "limit": limit}
            )
            assert isinstance(piece, str)
            body, mark, following = piece.rpartition(": continue with offset=")
            offset = int(following.rstrip("]")) if mark else None
            pieces.append(body.rpartition("\n[… truncated")[0] if mark else piece)
        assert "".join(pieces) == text


async def test_long_file_is_truncated_with_the_next_offset(context: ToolContext) -> None:
    (context.workspace / "long").write_text("x" * (READ_BYTES_MAX + 5))
    text = await call(read_file, context, path="long", limit=10 * READ_BYTES_MAX)
    assert text == "x" * READ_BYTES_MAX + (
        "\n[… truncated at byte 262144 of 262149: continue with offset=262144]"
    )
    assert await call(read_file, context, path="long", offset=262144) == "xxxxx"
    with pytest.raises(InvalidValueError, match="262149 bytes"):
        await call(read_file, context, path="long", offset=300_000)


async def test_non_text_file_is_refused_with_a_reason(context: ToolContext) -> None:
    os.mkfifo(context.workspace / "fifo")
    (context.workspace / "folder").mkdir()
    (context.workspace / "binary").write_bytes(b"\x7fELF\0\0")
    (context.workspace / "latin").write_bytes("grün".encode("latin-1"))
    for path, output in (
        ("fifo", "is not a file"),
        ("folder", "is not a file"),
        ("binary", "binary file of 6 bytes"),
        ("latin", "not UTF-8 text: see byte 2 of 4"),
        ("latin/x", "'latin' is not a folder"),
    ):
        with trio.fail_after(WITHIN_S), pytest.raises(RejectedError, match=output):
            await call(read_file, context, path=path)
    with pytest.raises(NotFoundError, match="'absent' does not exist"):
        await call(read_file, context, path="absent/file")


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("**/*", ["README.md", "docs@", "src/", "src/a.py", "src/deep/", "src/deep/b.py"]),
        ("*", ["README.md", "docs@", "src/"]),
        ("**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("src", ["src/a.py", "src/deep/", "src/deep/b.py"]),
        ("src/*.py", ["src/a.py"]),
        ("**/deep/**/b.py", ["src/deep/b.py"]),
        ("**/**/**/b.py", ["src/deep/b.py"]),
        ("*/deep", ["src/deep/"]),
        ("[!a-z]*", ["README.md"]),
        (".git", [".git/config"]),
        ("*.txt", []),
    ],
)
async def test_patterns_list_matching_paths(
    context: ToolContext, pattern: str, expected: list[str]
) -> None:
    workspace = context.workspace
    for path in ("README.md", "src/a.py", "src/deep/b.py", ".git/config"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).touch()
    (workspace / "docs").symlink_to("src")
    listing = await call(list_files, context, pattern=pattern)
    assert listing == {"paths": expected, "truncated": False, "left_out": []}


async def test_generated_folders_are_left_out_unless_named(context: ToolContext) -> None:
    """It is left out, with a note, unless it is asked for by name."""
    for path in (
        ".github/ci.yml",
        ".venv/CACHEDIR.TAG",
        ".venv/lib/trio.py",
        "cache/CACHEDIR.TAG",
        "env/pyvenv.cfg",
        "env/lib/attrs.py",
        "src/__pycache__/a.pyc",
        "src/a.py",
        "web/node_modules/left/pad.js",
    ):
        (context.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (context.workspace / path).touch()
    listing = await call(list_files, context)
    assert [each for each in listing["paths"] if not each.endswith("/")] == [
        ".github/ci.yml",
        "src/a.py",
    ]
    assert listing["left_out"] == [".venv/", "cache/", "env/", "web/node_modules/"]
    named = await call(list_files, context, pattern=".venv/**/*.py")
    assert named == {"paths": [".venv/lib/trio.py"], "truncated": False, "left_out": []}
    inside = await call(list_files, context, pattern="web/node_modules")
    assert inside["paths"] == ["web/node_modules/left/", "web/node_modules/left/pad.js"]


async def test_long_listing_is_marked_truncated(context: ToolContext) -> None:
    for number in range(4):
        (context.workspace / f"f{number}").touch()
    listing = await call(list_files, context, limit=3)
    assert listing == {"paths": ["f0", "f1", "f2"], "truncated": True, "left_out": []}
    assert not (await call(list_files, context, limit=4))["truncated"]


async def test_a_name_that_is_not_utf_8_is_still_text(context: ToolContext) -> None:
    (context.workspace / os.fsdecode(b"\xff")).touch()
    assert (await call(list_files, context))["paths"] == ["\ufffd"]
