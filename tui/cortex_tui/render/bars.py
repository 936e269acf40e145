"""The top bar and the footer of every screen."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from cortex.domain.cells import Cell
from cortex.domain.safe import safe
from cortex.store.operator import COUNT_MAX, Head
from cortex_tui.key_table import KeyTable, shown
from cortex_tui.keys import GROUPS, Key
from cortex_tui.link import Link
from cortex_tui.palette import Palette
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown

ROUNDED_MS: Final = 10
"""A figure that changes with each look would only flicker."""
GAP: Final = "   "


@attrs.frozen(kw_only=True)
class TopView:
    """What the top bar tells."""

    path: Sequence[str]
    """Where one is: the place, the screen, what is open."""
    head: Head | None
    now: datetime
    """By the database's clock."""
    is_read_only: bool
    link: Cell
    has_lost_pod: bool = False
    """The pod that was started with the app has ended."""


def link_cell(link: Link, now: float) -> Cell:
    """Say how quick the database is, or since when it is silent; always of one width."""
    if link.is_stale(now):
        text, style = f"STALE {link.silent_s(now):.0f}s", "alarm"
    elif link.took_ms is None:
        text, style = "…", "dim"
    else:
        rounded = max(1, round(link.took_ms / ROUNDED_MS)) * ROUNDED_MS
        text, style = f"LIVE {rounded} ms", "done"
    return Cell(fit(text, 11, right=True), style)


def top_bar(view: TopView, palette: Palette, width: int) -> Strip:
    """Return the first line of a screen: the path left, what waits for people right."""
    path = safe(f" cortex {' > '.join(view.path)}")
    right = [*_parts(view, is_short=False), view.link]
    if _room(right, width) < cell_len(path):
        right = [*_parts(view, is_short=True), view.link]
    room = _room(right, width)
    bar = palette["bar"]
    segments = [Segment(fit(path, max(0, room)), bar + palette["bold"])]
    for each in right:
        segments += [Segment(GAP, bar), Segment(each.text, bar + palette[each.style])]
    line = Strip([*segments, Segment(" ", bar)])
    return line.adjust_cell_length(width, bar).apply_style(_ground(palette))


def _room(right: Sequence[Cell], width: int) -> int:
    """Return the cells that are left for the path."""
    return width - sum(cell_len(each.text) + len(GAP) for each in right) - 1


def _ground(palette: Palette) -> Style:
    return Style(bgcolor=palette["bar"].bgcolor)


def _parts(view: TopView, *, is_short: bool) -> Iterator[Cell]:
    if view.has_lost_pod:
        yield Cell("pod ENDED", "alarm")
    if view.is_read_only:
        yield Cell("read-only", "warn")
    head = view.head
    if head is None:
        return
    yield _approvals(head, view.now, is_short=is_short)
    if head.is_frozen:
        yield Cell("FROZEN", "alarm")
    if head.breakers:
        word = "breaker" if head.breakers == 1 else "breakers"
        yield Cell(
            f"{_count(head.breakers)} open" if is_short else f"{_count(head.breakers)} {word} OPEN",
            "alarm",
        )
    yield Cell(f"dead {_count(head.dead)}", "warn" if head.dead else "dim")
    pods = f"pods {_count(head.pods_ready)}/{_count(head.pods_living)}"
    is_well = 0 < head.pods_living == head.pods_ready
    yield Cell(pods, "dim" if is_well else "warn")


def _approvals(head: Head, now: datetime, *, is_short: bool) -> Cell:
    if not head.approvals or head.first_expiry is None:
        return Cell("◆ 0" if is_short else "◆ no approvals", "dim")
    left = countdown((head.first_expiry - now).total_seconds())
    if is_short:
        return Cell(f"◆ {_count(head.approvals)} in {left}", "appr")
    word = "approval" if head.approvals == 1 else "approvals"
    return Cell(f"◆ {_count(head.approvals)} {word}, first in {left}", "appr")


def _count(number: int) -> str:
    return f"{number:,}" if number < COUNT_MAX else f"{COUNT_MAX:,}+"


# --- the footer


def footer(keys: KeyTable, screen: str, palette: Palette, width: int, *, may_act: bool) -> Strip:
    """Return the last line of a screen: what the keys do; acting ones are grey when they cannot."""
    bar = palette["bar"]
    segments = [Segment(" ", bar)]
    sections = [
        [key for key in keys.of(screen) if key.in_footer and key.group in groups]
        for groups in (("move", "look"), ("act",), ("app",))
    ]
    for section in sections:
        if not section:
            continue
        if len(segments) > 1:
            segments.append(Segment("│ ", bar + palette["line"]))
        for key in section:
            is_grey = key.is_acting and not may_act
            names = _names(keys, key)
            segments.append(Segment(names, bar + palette["dim" if is_grey else "accent"]))
            segments.append(Segment(f" {key.label}  ", bar + palette["dim" if is_grey else ""]))
    return Strip(segments).adjust_cell_length(width, bar).apply_style(_ground(palette))


def _names(keys: KeyTable, key: Key) -> str:
    other = "" if key.pair is None else f"/{shown(keys.named(key.pair).keys[0])}"
    return shown(key.keys[0]) + other


def help_lines(keys: KeyTable, screen: str) -> Iterator[tuple[str, str, str]]:
    """Yield group, keys and what they do: all keys of a screen."""
    for key in keys.of(screen):
        yield GROUPS[key.group], "  ".join(shown(each) for each in key.keys), key.help
