"""Themes are readable on every background, and at rest."""

import pytest
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from textual.widgets import Input, TextArea

from cortex_tui.palette import BY_COLORS
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession

LEAST = 4.5
"""The contrast of text, as WCAG 2 has it for level AA."""
SIGNS = ("pend", "run", "appr", "retry", "done", "fail")
BLINKS = "cursor_blink"
NO_TEXT = ("line",)
"""Rules and arrows beside words."""
OWN = [(colors, theme) for colors in ("truecolor", "256") for theme in ("dark", "light")]


def luminance(of: ColorTriplet) -> float:
    parts = [part / 255 for part in of]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(each * part for each, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def written(color: Color | str | None, colors: str) -> ColorTriplet:
    """Return what Textual writes to a terminal with this many colours."""
    assert color is not None
    given = Color.parse(color) if isinstance(color, str) else color
    if colors == "256":
        given = given.downgrade(ColorSystem.EIGHT_BIT)
    return given.get_truecolor()


@pytest.mark.parametrize("colors,theme", OWN)
def test_every_word_can_be_read_on_every_ground(colors: str, theme: str) -> None:
    palette = BY_COLORS[colors][theme]
    grounds = {
        "ground": palette.theme.background,
        "bar": palette["bar"].bgcolor,
        "cursor": palette["cursor"].bgcolor,
    }
    faint = [
        f"{name} on {ground}: {of:.2f}"
        for name, style in palette.styles.items()
        if style.color is not None and name not in NO_TEXT
        for ground, under in grounds.items()
        if (of := contrast(written(style.color, colors), written(under, colors))) < LEAST
    ]
    assert faint == []


@pytest.mark.parametrize("colors,theme", OWN)
def test_states_and_backgrounds_have_distinct_colours(colors: str, theme: str) -> None:
    palette = BY_COLORS[colors][theme]
    signs = [written(palette[name].color, colors) for name in SIGNS]
    assert len(set(signs)) == len(SIGNS)
    grounds = [palette.theme.background, palette["bar"].bgcolor, palette["cursor"].bgcolor]
    assert len({written(each, colors) for each in grounds}) == len(grounds)


def test_sixteen_colour_palette_uses_only_terminal_colours() -> None:
    (palette,) = BY_COLORS["standard"].values()
    colors = [style.color for style in palette.styles.values() if style.color is not None]
    assert all(each.is_default or (each.number is not None and each.number < 8) for each in colors)
    assert all(style.bgcolor is None for style in palette.styles.values())


@on_asyncio
async def test_text_fields_do_not_blink(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        for keys, kind in (("2/", Input), ("\x1b:", Input), ("\x1b3", TextArea)):
            await seat.press(*["escape" if key == "\x1b" else key for key in keys])
            await seat.settle()
            fields = list(seat.app.screen.query(kind))
            assert fields
            assert not any(getattr(each, BLINKS) for each in fields)


@on_asyncio
async def test_sixteen_colour_terminal_offers_no_theme(sit: OpenSession) -> None:
    async with sit() as seat:
        seat.app.session.colors = "standard"
        await seat.press("t")
        assert "16 colours" in seat.text
        assert seat.app.session.theme == "dark"
