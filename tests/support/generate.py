"""Writes every file that is made from the code: `python -m tests.support.generate [NAME…]`.

Without a name all are made: `reference` (docs/reference), `man` (manual pages and completion),
`schema` (sql/schema.sql and its tables in the docs), `dashboard` (for Grafana) and `frozen` (names
that programs read). A test compares each with the code.
"""

import sys
from collections.abc import Callable
from typing import Final

from tests.support import dashboard, frozen, man_pages, reference_pages, schema_page

PARTS: Final[dict[str, Callable[[], None]]] = {
    "reference": reference_pages.main,
    "man": man_pages.main,
    "schema": schema_page.main,
    "dashboard": dashboard.main,
    "frozen": frozen.main,
}


def main(names: list[str]) -> None:
    """Make the named parts. Exits with 1 if one is unknown."""
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"unknown: {', '.join(unknown)}; known: {', '.join(PARTS)}")
    for name in names or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
