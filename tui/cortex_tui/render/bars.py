"""The top bar and the footer of every screen."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import attrs
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from cortex.domain.safe import safe
from cortex.store.screen_head import Head
from cortex.view.cells import Cell
from cortex.view.phrases import age
from cortex_tui.key import GROUPS, Key
from cortex_tui.key_table import KeyTable, shown
from cortex_tui.link import Link
from cortex_tui.palette import Palette
from cortex_tui.render.table import fit
from cortex_tui.render.waits import NOTHING_WAITS, count, wait_cells, waits_briefly

ROUNDED_MS: Final = 10
"""Rounding, so that the figure does not flicker at each poll."""
SECONDS_MAX: Final = 1000
"""The longest silence shown in seconds: there is no room for more digits."""
GAP: Final = "   "
KEPT: Final = 64
"""Unchanged bars are not laid out again."""
ENDING_CELLS: Final = 12
"""The last part of a long path may be truncated to this width: it may be text from a job."""


@attrs.frozen(kw_only=True)
class TopView:
    path: Sequence[str]
    """The place, the screen, and what is open on it."""
    head: Head | None
    now: datetime
    """By the database's clock."""
    is_read_only: bool
    is_muted: bool
    """Whether the bell is muted."""
    link: Cell
    has_lost_pod: bool = False
    """The pod that was started with the app has ended."""


def link_cell(link: Link, now: float) -> Cell:
    """Return the latency of the database, or the length of its silence, at a fixed width."""
    if link.is_stale(now):
        silent_s = link.silent_s(now)
        since = f"{silent_s:.0f}s" if silent_s < SECONDS_MAX else age(silent_s)
        text, style = f"STALE {since}", "alarm"
    elif link.took_ms is None:
        text, style = "…", "dim"
    else:
        rounded = max(1, round(link.took_ms / ROUNDED_MS)) * ROUNDED_MS
        text, style = f"LIVE {rounded} ms", "done"
    return Cell(fit(text, 11, right=True), style)


def top_bar(view: TopView, palette: Palette, width: int) -> Strip:
    """Return the top line of a screen: the path left, alerts right."""
    cells = [
        (tuple(_first(view, is_short=is_short)), tuple(_more(view, is_short=is_short)))
        for is_short in (False, True)
    ]
    return _laid_out(tuple(view.path), (*cells, view.link), palette, width)


Parts = tuple[tuple[Cell, ...], tuple[Cell, ...]]
"""The cells that always stay, and the optional ones."""
Content = tuple[Parts, Parts, Cell]
"""In long words, in short words, and the link."""


@lru_cache(KEPT)
def _laid_out(path: Sequence[str], content: Content, palette: Palette, width: int) -> Strip:
    way, right = _chosen(path, content, width)
    bar = palette["bar"]
    segments = [Segment(fit(way, max(0, _room(right, width))), bar + palette["bold"])]
    for each in right:
        segments += [Segment(GAP, bar), Segment(each.text, bar + palette[each.style])]
    line = Strip([*segments, Segment(" ", bar)])
    return line.adjust_cell_length(width, bar).apply_style(_ground(palette))


def _chosen(path: Sequence[str], content: Content, width: int) -> tuple[str, Sequence[Cell]]:
    """Choose what fits: the path, and the cells at the right.

    As the line narrows, words become short, then the path loses its beginning, then pods, dead
    letters and breakers leave. The current place, the open requests and the link always stay.
    """
    long, (first, more), link = content
    paths = _paths(path)
    ways = [([*long[0], *long[1]], paths[:1])]
    ways += [([*first, *more[:count]], paths) for count in range(len(more), -1, -1)]
    for parts, fitting in ways:
        right = [*parts, link]
        for way, least in fitting:
            if least <= _room(right, width):
                return way, right
    return "", [*first, link]


def _paths(path: Sequence[str]) -> Sequence[tuple[str, int]]:
    """Return ever shorter forms of a path, each with the cells that it needs at least."""
    place, *more = (safe(part) for part in path)
    ways = [[f"cortex {place}", *more], [place, *more], [place, *more[-1:]], more[-1:] or [place]]
    return [
        (f" {' > '.join(way)}", 1 + cell_len(" > ".join([*way[:-1], way[-1][:ENDING_CELLS]])))
        for way in ways
    ]


def _room(right: Sequence[Cell], width: int) -> int:
    """Return the cells left for the path."""
    return width - sum(cell_len(each.text) + len(GAP) for each in right) - 1


def _ground(palette: Palette) -> Style:
    return Style(bgcolor=palette["bar"].bgcolor)


def _first(view: TopView, *, is_short: bool) -> Iterator[Cell]:
    """Yield the cells that always stay."""
    if view.has_lost_pod:
        yield Cell("pod ENDED", "alarm")
    if view.is_read_only:
        yield Cell("read-only", "warn")
    if view.head is not None:
        if view.head.is_unsafe:
            yield Cell("unsafe", "alarm")
        if not view.head.waits:
            yield Cell("✓ 0" if is_short else NOTHING_WAITS, "dim")
        yield from (waits_briefly if is_short else wait_cells)(view.head, view.now)
        if view.head.is_frozen:
            yield Cell("FROZEN", "alarm")
        if view.head.is_paused:
            yield Cell("PAUSED", "alarm")
        elif view.head.pauses:
            yield Cell(f"{count(view.head.pauses)} paused", "warn")
        if _is_all(view.head):
            yield _dead(view.head)


def _more(view: TopView, *, is_short: bool) -> Iterator[Cell]:
    """Yield the optional cells; the first to leave comes last."""
    if view.is_muted:
        yield Cell("muted", "dim")
    head = view.head
    if head is None:
        return
    if head.breakers:
        word = "breaker" if head.breakers == 1 else "breakers"
        text = f"{count(head.breakers)} open" if is_short else f"{count(head.breakers)} {word} OPEN"
        yield Cell(text, "alarm")
    if head.stranded:
        does = "waits" if head.stranded == 1 else "wait"
        noun = "job" if head.stranded == 1 else "jobs"
        text = "for code" if is_short else f"{noun} {does} for code"
        yield Cell(f"{count(head.stranded)} {text}", "alarm")
    if not _is_all(head):
        yield _dead(head)
    pods = f"pods {count(head.pods_ready)}/{count(head.pods_living)}"
    is_well = 0 < head.pods_living == head.pods_ready
    yield Cell(pods, "dim" if is_well else "warn")


def _is_all(head: Head) -> bool:
    """Whether only dead letters wait: then their cell always stays."""
    return 0 < head.dead == head.waits


def _dead(head: Head) -> Cell:
    return Cell(f"dead {count(head.dead)}", "warn" if head.dead else "dim")


# --- the footer

SECTION: Final = "│ "
FOOT_GAP: Final = 2
"""Cells behind a label; those of the last one may be cut."""


@lru_cache(KEPT)
def footer(keys: KeyTable, screen: str, palette: Palette, width: int, *, may_act: bool) -> Strip:
    """Return the footer: what the keys do; acting keys are grey while they are disabled.

    If not all fit, movement leaves first, then the last keys of the longest section.
    """
    bar = palette["bar"]
    segments = [Segment(" ", bar)]
    for section in _fitting(keys, screen, width):
        if len(segments) > 1:
            segments.append(Segment(SECTION, bar + palette["line"]))
        for key in section:
            is_grey = key.is_acting and not may_act
            names = _names(keys, key)
            segments.append(Segment(names, bar + palette["dim" if is_grey else "accent"]))
            segments.append(Segment(f" {key.label}  ", bar + palette["dim" if is_grey else ""]))
    return Strip(segments).adjust_cell_length(width, bar).apply_style(_ground(palette))


def plain_footer(keys: Sequence[tuple[str, str]], palette: Palette, width: int) -> Strip:
    bar = palette["bar"]
    segments = [Segment(" ", bar)]
    for key, label in keys:
        segments.append(Segment(key, bar + palette["accent"]))
        segments.append(Segment(f" {label}  ", bar))
    return Strip(segments).adjust_cell_length(width, bar).apply_style(_ground(palette))


def _fitting(keys: KeyTable, screen: str, width: int) -> Sequence[Sequence[Key]]:
    """Return the keys that fit, whole: movement leaves first, then the last acting keys.

    The first keys of the last section, which show all keys and commands, always stay.
    """
    move, act, app = (
        [key for key in keys.of(screen) if key.in_footer and key.group in groups]
        for groups in (("move", "look"), ("act",), ("app",))
    )
    cells = {key.id: cell_len(f"{_names(keys, key)} {key.label}  ") for key in (*move, *act, *app)}
    while True:
        sections = [section for section in (move, act, app) if section]
        taken = sum(cells[key.id] for section in sections for key in section)
        over = 1 + taken + len(SECTION) * (len(sections) - 1) - FOOT_GAP - width
        leaving = ((move, 1), (act, 1), (app, 2), (act, 0), (app, 1))
        longer = [section for section, least in leaving if section[least:]]
        if over <= 0 or not longer:
            return sections
        longer[0].pop(0 if longer[0] is move else -1)


def _names(keys: KeyTable, key: Key) -> str:
    other = "" if key.pair is None else f"/{shown(keys.named(key.pair).keys[0])}"
    return shown(key.keys[0]) + other


def help_lines(keys: KeyTable, screen: str) -> Iterator[tuple[str, str, str]]:
    """Yield the group, keys and label of every key on a screen."""
    for key in keys.of(screen):
        yield GROUPS[key.group], "  ".join(shown(each) for each in key.keys), key.help
