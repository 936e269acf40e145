"""Finds files by pattern."""

import fnmatch
import os
from collections.abc import Iterator

import attrs

from cortex.agent.tools.tool import ToolContext, tool
from cortex.agent.workspace.jail import open_folder, parts_of
from cortex.domain.errors import InvalidValueError

LISTED_DEFAULT = 1_000
LISTED_MAX = 10_000
# A bound on the work: a pattern that matches nothing must not walk a whole disk.
VISITED_MAX = 200_000
# Each level costs a descriptor and a frame during the walk.
DEPTH_MAX = 64
SKIPPED = frozenset({".git"})
# Generated folders that would crowd out people's files: by a marker file, or by name.
FOREIGN_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
FOREIGN_NAMES = frozenset({"node_modules", "__pycache__"})
UNLISTED = frozenset({"__pycache__"})
LEFT_OUT_MAX = 20
WILDCARDS = frozenset("*?[")


@attrs.frozen
class Listing:
    """Paths relative to the folder, in order; `truncated` if there may be more.

    `left_out`: folders of caches and installed packages that wildcards did not search, the first
    20.
    """

    paths: list[str]
    truncated: bool
    left_out: list[str]


@tool(timeout=60, local=True)
def list_files(context: ToolContext, pattern: str = "**/*", limit: int = LISTED_DEFAULT) -> Listing:
    """List files and folders below the working folder, each folder's own entries first.

    Folders end with "/", symlinks with "@"; symlinks are not followed. What is inside .git, or
    more than 64 folders deep, is left out; so is what is inside caches, virtual environments and
    node_modules, unless the pattern names that folder: `left_out` lists them. If `truncated` is
    true there are more: use a narrower pattern.

    Args:
        pattern: A glob, where ** stands for any number of folders: "*" is the top level, "**/*.py"
            all Python files. The path of a folder lists everything below it.
        limit: The most paths to return, at most 10000.
    """
    if limit < 1:
        raise InvalidValueError(f"list_files: limit {limit}", hint="a number from 1 to 10000")
    wanted = parts_of(pattern)
    fixed = 0
    while fixed < len(wanted) and not WILDCARDS & set(wanted[fixed]):
        fixed += 1
    base, rest = wanted[:fixed], wanted[fixed:] or ("**", "*")
    paths: list[str] = []
    left_out: list[tuple[str, ...]] = []
    is_cut = False
    with open_folder(context.folder, base) as folder:
        for visited, (path, mark) in enumerate(_walk(folder, left_out)):
            if len(paths) >= min(limit, LISTED_MAX) or visited >= VISITED_MAX:
                is_cut = True
                break
            if _matches(path, rest):
                paths.append(_printable("/".join((*base, *path))) + mark)
    left_out_paths = [
        _printable("/".join((*base, *path))) + "/" for path in left_out[:LEFT_OUT_MAX]
    ]
    return Listing(paths=paths, truncated=is_cut, left_out=left_out_paths)


def _walk(folder: int, left_out: list[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each entry's path below `folder`, and its mark; skipped folders go to `left_out`."""
    for top, folders, files, here in os.fwalk(dir_fd=folder):
        outer = tuple(part for part in top.split("/") if part not in ("", "."))
        if outer and (outer[-1] in FOREIGN_NAMES or not FOREIGN_MARKS.isdisjoint(files)):
            folders.clear()
            if outer[-1] not in UNLISTED:
                left_out.append(outer)
            continue
        folders[:] = sorted(each for each in folders if each not in SKIPPED)
        links = {each for each in (*folders, *files) if _is_link(each, here)}
        for name in sorted((*folders, *files)):
            mark = "@" if name in links else "/" if name in folders else ""
            yield (*outer, name), mark
        if len(outer) >= DEPTH_MAX:
            folders.clear()


def _is_link(name: str, folder: int) -> bool:
    try:
        os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _matches(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Match part by part, keeping all places in the pattern that are still possible."""
    places = _past_stars({0}, pattern)
    for part in path:
        moved = set()
        for place in places:
            if place < len(pattern) and pattern[place] == "**":
                moved.add(place)
            elif place < len(pattern) and fnmatch.fnmatchcase(part, pattern[place]):
                moved.add(place + 1)
        places = _past_stars(moved, pattern)
    return len(pattern) in places


def _past_stars(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Return the places also reached when each `**` matches no folder at all."""
    reached = set()
    for place in places:
        reached.add(place)
        while place < len(pattern) and pattern[place] == "**":
            place += 1  # noqa: PLW2901 - walks on from where it stands
            reached.add(place)
    return reached


def _printable(path: str) -> str:
    """Decode a file name: names are bytes; what is not UTF-8 in them becomes U+FFFD."""
    return os.fsencode(path).decode(errors="replace")
