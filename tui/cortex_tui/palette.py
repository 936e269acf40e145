"""The colours: a dark and a light theme, and the terminal's own colours.

Style names are the same in each; no state is shown by colour alone. Text has a contrast of at least
4.5 : 1 on every background that it can have.
"""

from collections.abc import Mapping
from typing import Final

import attrs
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import Theme


@attrs.frozen(kw_only=True, eq=False)
class Palette:
    """The colours of the app; one instance per theme, so that lines can be cached by it."""

    theme: Theme
    styles: Mapping[str, Style]

    def __getitem__(self, name: str) -> Style:
        """Return the style of a name; "" is plain."""
        return self.styles[name]

    def lit(self, line: Strip, name: str) -> Strip:
        """Return a line on the background of a style, such as "cursor".

        In reverse video the line loses its colours, because each would become a block.
        """
        ground = self[name]
        if not ground.reverse:
            return line.apply_style(ground)
        return Strip(
            [
                Segment(part.text, Style(reverse=True, bold=bool(part.style and part.style.bold)))
                for part in line
            ]
        )


def _palette(name: str, *, dark: bool, **c: str) -> Palette:
    """Build a palette of twelve colours."""
    theme = Theme(
        name=name,
        dark=dark,
        primary=c["accent"],
        secondary=c["run"],
        accent=c["accent"],
        warning=c["retry"],
        error=c["fail"],
        success=c["done"],
        foreground=c["text"],
        background=c["ground"],
        surface=c["ground"],
        panel=c["bar"],
        boost=c["bar"],
        variables={
            "border": c["line"],
            "border-blurred": c["line"],
            "block-cursor-background": c["cursor"],
            "block-cursor-foreground": c["text"],
            "input-selection-background": c["cursor"],
            "scrollbar": c["line"],
            "scrollbar-background": c["ground"],
            "scrollbar-corner-color": c["ground"],
        },
    )
    styles = {
        "": Style(color=c["text"]),
        "ground": Style(color=c["text"], bgcolor=c["ground"]),
        "dim": Style(color=c["dim"]),
        "bold": Style(color=c["text"], bold=True),
        "accent": Style(color=c["accent"]),
        "pend": Style(color=c["dim"]),
        "run": Style(color=c["run"]),
        "appr": Style(color=c["appr"], bold=True),
        "retry": Style(color=c["retry"]),
        "done": Style(color=c["done"]),
        "fail": Style(color=c["fail"]),
        "canc": Style(color=c["dim"]),
        "warn": Style(color=c["retry"]),
        "alarm": Style(color=c["fail"], bold=True),
        "cursor": Style(bgcolor=c["cursor"]),
        "bar": Style(color=c["text"], bgcolor=c["bar"]),
        "strip": Style(color=c["text"], bgcolor=c["cursor"]),
        "line": Style(color=c["line"]),
    }
    return Palette(theme=theme, styles=styles)


_DARK: Final = _palette(
    "cortex-dark",
    dark=True,
    ground="#12151b",
    bar="#1a1f28",
    cursor="#26324a",
    line="#2f3744",
    text="#d3d8e2",
    dim="#929db1",
    accent="#82aaff",
    run="#5fc3c9",
    appr="#c99bf0",
    retry="#e3b565",
    done="#8cc279",
    fail="#f0787c",
)
_LIGHT: Final = _palette(
    "cortex-light",
    dark=False,
    ground="#fbfaf7",
    bar="#efede6",
    cursor="#d9e4f5",
    line="#d5d2c8",
    text="#23272f",
    dim="#5c6370",
    accent="#2456b8",
    run="#0b6f78",
    appr="#7b3aa8",
    retry="#8a5a00",
    done="#33702a",
    fail="#b3262e",
)
# The nearest of 256 colours to those above are not readable on each other. The colours below map to
# exact colours of the 256, or to the nearest grey.
_DARK_256: Final = _palette(
    "cortex-dark-256",
    dark=True,
    ground="#121212",
    bar="#1c1c1c",
    cursor="#303030",
    line="#3a3a3a",
    text="#d7d7d7",
    dim="#a8a8a8",
    accent="#87afff",
    run="#5fd7d7",
    appr="#d7afff",
    retry="#d7af5f",
    done="#87d787",
    fail="#ff8787",
)
_LIGHT_256: Final = _palette(
    "cortex-light-256",
    dark=False,
    ground="#ffffff",
    bar="#f5f5f5",
    cursor="#d7d7ff",
    line="#d0d0d0",
    text="#262626",
    dim="#585858",
    accent="#005faf",
    run="#005f87",
    appr="#8700af",
    retry="#5f5f00",
    done="#005f00",
    fail="#af0000",
)


def _ansi() -> Palette:
    """The sixteen colours of the terminal's own theme."""
    default = "ansi_default"
    theme = Theme(
        name="cortex-ansi",
        ansi=True,
        dark=True,
        primary="ansi_blue",
        secondary="ansi_cyan",
        accent="ansi_blue",
        warning="ansi_yellow",
        error="ansi_red",
        success="ansi_green",
        foreground=default,
        background=default,
        surface=default,
        panel=default,
        boost=default,
        variables={
            "ansi-background": "ansi_black",
            "ansi-foreground": "ansi_white",
            "border-blurred": "ansi_black",
            "block-cursor-foreground": "ansi_black",
            "block-cursor-background": "ansi_white",
            "input-cursor-background": "ansi_black",
            "input-cursor-foreground": "ansi_bright_white",
            "input-cursor-text-style": "none",
            "input-selection-background": "ansi_bright_blue",
            "input-selection-foreground": "ansi_black",
            "screen-selection-background": "ansi_bright_blue",
            "screen-selection-foreground": "ansi_black",
        },
    )
    dim = Style(dim=True)
    styles = {
        "": Style(),
        "ground": Style(),
        "dim": dim,
        "bold": Style(bold=True),
        "accent": Style(color="blue"),
        "pend": dim,
        "run": Style(color="cyan"),
        "appr": Style(color="magenta", bold=True),
        "retry": Style(color="yellow"),
        "done": Style(color="green"),
        "fail": Style(color="red"),
        "canc": dim,
        "warn": Style(color="yellow"),
        "alarm": Style(color="red", bold=True),
        "cursor": Style(reverse=True),
        "bar": Style(bold=True),
        "strip": Style(reverse=True),
        "line": dim,
    }
    return Palette(theme=theme, styles=styles)


_ANSI: Final = _ansi()
PALETTES: Final[Mapping[str, Palette]] = {"dark": _DARK, "light": _LIGHT, "ansi": _ANSI}
BY_COLORS: Final[Mapping[str, Mapping[str, Palette]]] = {
    "truecolor": PALETTES,
    "256": {"dark": _DARK_256, "light": _LIGHT_256, "ansi": _ANSI},
    "standard": {"ansi": _ANSI},
}
"""By the number of colours, in rich's names. Sixteen colours look different on each terminal: most
of the app's colours would become one grey."""


def palette_of(theme: str, colors: str) -> Palette:
    """Return the palette of a theme, or the terminal's own colours if it has too few."""
    return BY_COLORS[colors].get(theme, _ANSI)
