"""Renders values as HTML: everything is escaped, and invisible characters are marked.

Invariants: no script, style or address comes from a value; nothing is loaded from elsewhere.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from cortex.domain.safe import safe
from cortex.http.page.assets import url_of
from cortex.view.approval_facts import DENY_REASONS, RISK_WORDS, countdown

CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HIDDEN: Final = re.compile("(⟦U\\+[0-9A-F]{4,6}⟧)")


def page(
    template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> Response:
    """Return a page; text in `values` needs no escaping."""
    text = _environment.get_template(template).render(values)
    given = {"Content-Security-Policy": CSP, **(headers or {})}
    return HTMLResponse(text, status, given)


def message(title: str, text: str, *, status: int, **values: Any) -> Response:
    return page("message.html", status=status, title=title, text=text, **values)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Split a text at invisible characters; the flag marks pieces that are invisible."""
    pieces = _HIDDEN.split(safe(text, newline="\n"))
    return [(piece, number % 2 == 1) for number, piece in enumerate(pieces) if piece]


def _instant(at: datetime, now: datetime) -> str:
    """Return an instant in UTC: the time of day, with its date unless it is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M:%S}Z" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}Z"


def _machine(at: datetime) -> str:
    """Return an instant in machine-readable form."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _make_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(pieces=_pieces, instant=_instant, machine=_machine, countdown=countdown)
    made.globals.update(asset=url_of, deny_reasons=DENY_REASONS, risk_words=RISK_WORDS)
    return made


_environment: Final = _make_environment()
