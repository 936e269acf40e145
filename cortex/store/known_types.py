"""What the driver need not ask the server: array types that are the same in every Postgres.

The driver knows Postgres's own types by heart, but of their arrays only two. For the others each
new connection asks the catalog, by a recursive query that takes the server longer than most of
ours do, and by two round trips that turn compilation off and on again around it.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

ARRAYS: Final = {
    199: ("json", 114),
    1000: ("bool", 16),
    1001: ("bytea", 17),
    1005: ("int2", 21),
    1007: ("int4", 23),
    1016: ("int8", 20),
    1022: ("float8", 701),
    1182: ("date", 1082),
    1185: ("timestamptz", 1184),
    1187: ("interval", 1186),
    1231: ("numeric", 1700),
    2951: ("uuid", 2950),
    3807: ("jsonb", 3802),
}
"""By the array's oid: name and oid of what is in it. Oids below 10,000 are for good."""


class NoStatement(NamedTuple):
    """In place of the one that would have asked; a name, as it has displaced no unnamed one."""

    name: str = "none"


def split(oids: Iterable[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """What the driver would be told of the known ones, and those that have to be asked for."""
    asked = list(oids)
    return [_told(oid) for oid in asked if oid in ARRAYS], [
        oid for oid in asked if oid not in ARRAYS
    ]


def _told(oid: int) -> dict[str, Any]:
    name, element = ARRAYS[oid]
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": b",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "depth": 0,
        "basetype_name": None,
        "elemtype_name": name,
        "range_subtype_name": None,
    }
