"""Named SQL: every statement of the runtime is in `sql/queries/<aggregate>.sql`.

A query is addressed as `<file>.<name>`, e.g. `tasks.claim`. Its head comment describes its effect,
its parameters with their units, and its locks.
"""

import re
from functools import cache
from pathlib import Path

_PACKAGED = Path(__file__).parent.parent / "sql"
_CHECKOUT = Path(__file__).parent.parent.parent / "sql"
SQL_DIR = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""In the wheel the folder is inside the package; in a checkout it is beside it."""

_HEAD = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def _aggregate(name: str) -> dict[str, str]:
    parts = _HEAD.split((SQL_DIR / "queries" / f"{name}.sql").read_text("utf-8"))
    return {query: body.strip() for query, body in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def sql(query: str) -> str:
    """Return the text of a named query. Raises `KeyError` for an unknown name."""
    aggregate, _, name = query.partition(".")
    return _aggregate(aggregate)[name]
