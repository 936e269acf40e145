"""Every screen equals its grid kept in `grids`, and stands still.

To draw the grids anew: `python -m tests.support.terminal.tui_grids`, for all of them, or
`python -m tests.support.terminal.tui_grids jobs job.light`. Read the differences before you commit.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import pytest

from tests.support.hostile import treacherous
from tests.support.terminal.tui import FakeBackend, ManualClock, on_asyncio, sitting
from tests.support.terminal.tui_grids import (
    COLOURS,
    KEPT,
    NAMES,
    ROOT,
    SIZES,
    draw,
    paint,
    path_of,
    resize,
)
from tests.support.terminal.tui_scenes import FILLS, SCENES, speak

BARS = "▏▎▍▌▋▊▉█▒░─▁▂▃▄▅▆▇"
LONGER_S = 20.0
"""Many figures get another digit, and nothing is overdue yet."""
SETTLED_S = 4.0
"""After this long a screen of another size has read all that it shows."""
COMMAND = "python -m tests.support.terminal.tui_grids"


def unequal(drawn: Mapping[str, str]) -> Iterator[str]:
    """Yield the difference of each picture from the one that is kept."""
    for name, text in drawn.items():
        kept = path_of(name).read_text("utf-8") if path_of(name).exists() else ""
        output = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), f"kept {name}", "drawn", n=0, lineterm=""
        )
        if lines := list(output):
            yield "\n".join([*lines, f"if that is wanted: {COMMAND}"])


@pytest.mark.parametrize("screen", SCENES)
@pytest.mark.parametrize("fill", FILLS)
@on_asyncio
async def test_screen_matches_its_kept_grid(fill: str, screen: str) -> None:
    sizes = (SIZES[0], SIZES[-1]) if fill == "hostile" else SIZES[:1]
    found = await draw(fill, screen, sizes)
    if fill in KEPT:
        assert "\n".join(unequal({f"{fill}/{screen}": found[0]})) == ""
    for (columns, lines), text in zip(sizes, found, strict=True):
        shown = text.removesuffix("\n").split("\n")
        assert len(shown) == lines
        assert [line for line in shown if len(line) > columns] == []
        assert treacherous(text) == []


@pytest.mark.parametrize("name", COLOURS)
@on_asyncio
async def test_a_screen_has_the_colours_that_it_had(name: str) -> None:
    assert "\n".join(unequal({f"colour/{name}": await paint(name)})) == ""


def test_every_kept_grid_has_a_screen() -> None:
    kept = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()}
    assert kept == {f"{name}.txt" for name in NAMES}


@pytest.mark.parametrize("screen", ["jobs", "job", "approvals", "pods"])
@on_asyncio
async def test_resized_screen_equals_a_fresh_start(screen: str) -> None:
    (started,) = await draw("typical", screen, SIZES[1:2])
    _, resized = await draw("typical", screen, SIZES[:2])
    assert _without_time(started) == _without_time(resized)


def _without_time(text: str) -> str:
    """Leave out the parts that show how much time has passed."""
    return re.sub(rf"[{BARS} ]+| tok/s|≈|·", " ", re.sub(r"\d+", "0", text))


# --- nothing jumps


@pytest.mark.parametrize(
    "screen, sizes",
    [
        *((screen, (SIZES[0], SIZES[-1])) for screen in SCENES if screen != "job"),
        *(("job", (size,)) for size in (SIZES[0], SIZES[-1])),  # its stream would run on
    ],
)
@on_asyncio
async def test_only_figures_change_with_time(screen: str, sizes: Sequence[tuple[int, int]]) -> None:
    cluster = FakeBackend(ManualClock())
    FILLS["typical"](cluster)
    scene = SCENES[screen]
    async with sitting(cluster, size=sizes[0], first=scene.first) as seat:
        await scene.enter(seat)
        speak(cluster)
        for size in sizes:
            if size != sizes[0]:
                await resize(seat, size)
                await seat.pass_time(SETTLED_S)
            await resize(seat, size)
            before = seat.lines
            await seat.pass_time(1)
            assert list(_changed(before, seat.lines)) == [], size
        before = seat.lines
        seat.clock.move(LONGER_S)
        await seat.pass_time(2)
        assert screen == "job" or list(_jumped(before, seat.lines)) == []  # its axis may grow


def _changed(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the cells that are other than before and hold neither a figure nor a bar."""
    for old, new in zip(before, after, strict=True):
        cells = zip_longest(old, new, fillvalue=" ")
        for at, (one, other) in enumerate(cells):
            if one != other and not (_ticks(one) and _ticks(other)):
                yield f"cell {at}: {one!r} {other!r} in {old!r} {new!r}"


def _ticks(sign: str) -> bool:
    return sign.isdigit() or sign in f"{BARS} "


def _jumped(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the words that moved within their line."""
    for old, new in zip(before, after, strict=True):
        was, stands = (
            {found[0]: found.start() for found in re.finditer("[a-z]{3,}", line)}
            for line in (old, new)
        )
        for word in was.keys() & stands.keys():
            if was[word] != stands[word]:
                yield f"{word}: {old!r} {new!r}"
