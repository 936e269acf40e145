"""Desktop notifications, as escape sequences that some terminals turn into them.

No terminal answers whether it does, so only those are asked that are known to; for all others, and
inside tmux, which drops sequences unless `allow-passthrough` is on, there is the bell.
"""

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from cortex.domain.safe import safe

TEXT_MAX: Final = 200
_ESC: Final = "\x1b"
_END: Final = f"{_ESC}\\"
_TITLE: Final = "cortex"


class Notify(StrEnum):
    """How the operator is called while the terminal is not in front."""

    OFF = "off"
    BELL = "bell"
    OSC = "osc"


class Dialect(StrEnum):
    """An operating system command that shows a notification."""

    KITTY = "99"
    TITLED = "777"
    PLAIN = "9"


_BY_TERM: Final = {
    "xterm-kitty": Dialect.KITTY,
    "xterm-ghostty": Dialect.TITLED,
    "foot": Dialect.TITLED,
    "rxvt-unicode": Dialect.TITLED,
    "wezterm": Dialect.TITLED,
}
"""Values of TERM; ssh passes it on."""
_BY_PROGRAM: Final = {
    "ghostty": Dialect.TITLED,
    "WezTerm": Dialect.TITLED,
    "WarpTerminal": Dialect.TITLED,
    "iTerm.app": Dialect.PLAIN,
    "iTerm2": Dialect.PLAIN,
}
"""Values of TERM_PROGRAM and LC_TERMINAL."""
_BY_VARIABLE: Final = {
    "KITTY_WINDOW_ID": Dialect.KITTY,
    "GHOSTTY_RESOURCES_DIR": Dialect.TITLED,
    "WEZTERM_PANE": Dialect.TITLED,
    "ITERM_SESSION_ID": Dialect.PLAIN,
}
"""Variables that stay set inside tmux, whose TERM and TERM_PROGRAM are its own."""


def dialect_of(environment: Mapping[str, str]) -> Dialect | None:
    """Return what the terminal understands; None: nothing is known."""
    if "STY" in environment:
        return None
    term = environment.get("TERM", "")
    for known, dialect in _BY_TERM.items():
        if term == known or term.startswith(f"{known}-"):
            return dialect
    for name in ("TERM_PROGRAM", "LC_TERMINAL"):
        if (found := _BY_PROGRAM.get(environment.get(name, ""))) is not None:
            return found
    return next((each for name, each in _BY_VARIABLE.items() if name in environment), None)


def sequence(text: str, environment: Mapping[str, str]) -> str:
    """Return the sequence that shows a text; "" for a terminal that is not known to have one."""
    # A semicolon would separate fields; what controls a terminal is made visible.
    body = safe(text)[:TEXT_MAX].replace(";", ",")
    match dialect_of(environment):
        case Dialect.KITTY:
            encoded = base64.b64encode(body.encode("utf-8", "replace")).decode()
            made = (
                f"{_ESC}]99;i={_TITLE}:d=0:o=unfocused;{_TITLE}{_END}"
                f"{_ESC}]99;i={_TITLE}:d=1:p=body:e=1;{encoded}{_END}"
            )
        case Dialect.TITLED:
            made = f"{_ESC}]777;notify;{_TITLE};{body}{_END}"
        case Dialect.PLAIN:
            made = f"{_ESC}]9;{_TITLE}: {body}{_END}"
        case _:
            return ""
    return passed_through(made) if is_in_tmux(environment) else made


def is_in_tmux(environment: Mapping[str, str]) -> bool:
    return "TMUX" in environment


def passed_through(made: str) -> str:
    """Wrap a sequence so that tmux hands it to the terminal around it."""
    return f"{_ESC}Ptmux;{made.replace(_ESC, _ESC * 2)}{_END}"
