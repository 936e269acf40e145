"""Named SQL: every statement of the runtime is in `sql/queries/<aggregate>.sql`.

A query is addressed as `<file>.<name>`, e.g. `tasks.claim`. Its head comment describes its effect,
its parameters with their units, and its locks. Text that several queries of one file have in common
stands there once, as a `fragment`: `{name}` in a query is replaced with it.
"""

import re
from functools import cache
from pathlib import Path

_PACKAGED = Path(__file__).parent.parent / "sql"
_CHECKOUT = Path(__file__).parent.parent.parent / "sql"
SQL_DIR = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""In the wheel the folder is inside the package; in a checkout it is beside it."""

_HEAD = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"\A(?:--.*\n)*")
_USE = re.compile(r"\{(\w+)\}")


@cache
def _aggregate(name: str) -> dict[str, str]:
    parts = _HEAD.split((SQL_DIR / "queries" / f"{name}.sql").read_text("utf-8"))
    blocks = list(zip(parts[1::3], parts[2::3], map(str.strip, parts[3::3]), strict=True))
    fragments = {each: _COMMENT.sub("", body) for kind, each, body in blocks if kind == "fragment"}
    return {
        each: _USE.sub(lambda use: fragments[use[1]], body)
        for kind, each, body in blocks
        if kind == "name"
    }


@cache
def sql(query: str) -> str:
    """Return the text of a named query. Raises `KeyError` for an unknown name or fragment."""
    aggregate, _, name = query.partition(".")
    return _aggregate(aggregate)[name]
