"""Every screen as text: `python -m tests.support.terminal.tui_grids`.

The command draws all anew, at the smallest size, and writes `tests/tui/grids/FILL/SCREEN.txt`, and
the colours of some screens into `tests/tui/grids/colour/NAME.txt`, see `painted`; names of screens
or of pictures of colours as arguments draw those alone. `tests/tui/test_grids.py` compares them.
Each run draws the same: time is moved by hand, and ids are counted.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style

from cortex_tui.palette import PALETTES, Palette
from tests.support.servers.postgres import run_asyncio
from tests.support.terminal.tui import FakeBackend, ManualClock, Seat, sitting
from tests.support.terminal.tui_scenes import FILLS, SCENES, speak

SIZES: Final = ((80, 24), (120, 40), (200, 60))
ROOT: Final = Path(__file__).parents[2] / "tui" / "grids"
SETTLE_MAX: Final = 50
"""How often the screen may differ from just before, although no time passes."""


def path_of(name: str) -> Path:
    """Return where a picture is kept."""
    return ROOT / f"{name}.txt"


async def resize(seat: Seat, size: tuple[int, int]) -> None:
    """Give the terminal another size, and let everything be laid out; no time passes."""
    await seat.pilot.resize_terminal(*size)
    before: list[str] = []
    for _ in range(SETTLE_MAX):
        await seat.settle()
        if seat.lines == before:
            return
        before = seat.lines
    raise AssertionError("the screen does not come to rest")


async def draw(fill: str, screen: str, sizes: Sequence[tuple[int, int]] = SIZES[:1]) -> list[str]:
    """Return what a screen shows, in one sitting, size after size."""
    cluster = FakeBackend(ManualClock())
    FILLS[fill](cluster)
    scene = SCENES[screen]
    found = []
    async with sitting(cluster, size=sizes[0], first=scene.first) as seat:
        await scene.enter(seat)
        speak(cluster)
        for size in sizes:
            await resize(seat, size)
            await seat.pass_time(1)  # for what a wider screen wants to know
            await resize(seat, size)
            found.append(seat.text + "\n")
    return found


# --- colours

COLOURS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    **{screen: (screen, {}) for screen in SCENES if screen != "help"},
    "jobs.light": ("jobs", {"theme": "light"}),
    "job.light": ("job", {"theme": "light"}),
    "jobs.ansi": ("jobs", {"theme": "ansi"}),
    "approving.ansi": ("approving", {"theme": "ansi"}),
    "jobs.ascii": ("jobs", {"is_ascii": True, "theme": "ansi"}),
    "jobs.read-only": ("jobs", {"is_read_only": True}),
    "jobs.stale": ("jobs", {}),
}
"""By name: the screen, and how the sitting is."""
COLOUR_SIZE: Final = (100, 24)
STALE_S: Final = 12.0
LETTERS: Final = {
    "dim": "d",
    "accent": "a",
    "run": "r",
    "appr": "p",
    "retry": "w",
    "done": "g",
    "fail": "f",
    "line": "l",
}
"""By the word of a palette; what has none of these colours is plain."""
GROUNDS: Final = {"ground": " ", "bar": "=", "cursor": "#"}


async def paint(name: str) -> str:
    """Return a usual screen with its colours, in the notation of `painted`."""
    screen, options = COLOURS[name]
    cluster = FakeBackend(ManualClock())
    FILLS["typical"](cluster)
    scene = SCENES[screen]
    async with sitting(cluster, size=COLOUR_SIZE, first=scene.first, **options) as seat:
        await scene.enter(seat)
        speak(cluster)
        await resize(seat, COLOUR_SIZE)
        if name.endswith(".stale"):
            cluster.down()
            await seat.pass_time(STALE_S)
        update: Any = seat.app.screen._compositor.render_update(full=True)
        lines = [[segment for part in line for segment in part] for line in update.strips]
        return painted(lines, PALETTES[seat.app.session.theme])


def painted(drawn: Sequence[Sequence[Segment]], palette: Palette) -> str:
    """Return each line, below it a letter for the colour of each cell, and a sign for its ground.

    Letters are those of `LETTERS`, a capital for bold, `.` for plain text; grounds those of
    `GROUNDS`, `!` for reversed. An empty line of letters or signs is left out. Raises `KeyError`
    for a colour that is not the palette's.
    """
    letters = {_color(palette[word]): letter for word, letter in LETTERS.items()}
    grounds = {_ground(palette[word]): sign for word, sign in reversed(GROUNDS.items())}
    lines: list[str] = []
    for line in drawn:
        text = above = below = ""
        for segment in line:
            cells = segment.cell_length
            style = segment.style or Style()
            text += segment.text
            letter = _letter(style, letters)
            above += "".join(" " if c == " " else letter for c in segment.text.ljust(cells))[:cells]
            below += ("!" if style.reverse else grounds[_ground(style)]) * cells
        lines += [text.rstrip(), *(each.rstrip() for each in (above, below) if each.strip(" ."))]
    return "\n".join(lines) + "\n"


def _letter(style: Style, letters: Mapping[object, str]) -> str:
    letter = "d" if style.dim else letters.get(_color(style), ".")
    if letter == "." and style.bold:
        return "B"
    return letter.upper() if style.bold else letter


def _color(style: Style) -> object:
    """Return the key of a text colour; None: the terminal's own."""
    color = style.color
    if color is None or color.is_default:
        return "dim" if style.dim else None
    return color.triplet or color.name


def _ground(style: Style) -> object:
    color = style.bgcolor
    return None if color is None or color.is_default else color.triplet or color.name


KEPT: Final = ("typical", "hostile")
NAMES: Final = (
    *(f"{fill}/{screen}" for fill in KEPT for screen in SCENES),
    *(f"colour/{name}" for name in COLOURS),
)
"""Over all pictures."""


async def _all(only: Sequence[str]) -> None:
    found: dict[str, str] = {}
    for screen in SCENES:
        if not only or screen in only:
            for fill in KEPT:
                found[f"{fill}/{screen}"] = (await draw(fill, screen))[0]
    for name in COLOURS:
        if not only or name in only:
            found[f"colour/{name}"] = await paint(name)
    if not only:
        for path in ROOT.rglob("*.txt"):
            path.unlink()
    for name, text in found.items():
        path_of(name).parent.mkdir(parents=True, exist_ok=True)
        path_of(name).write_text(text, "utf-8")
    sys.stdout.write(f"{len(found)} pictures below {ROOT}\n")


if __name__ == "__main__":
    run_asyncio(lambda: _all(sys.argv[1:]))
