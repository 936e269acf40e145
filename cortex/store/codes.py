"""Codes of pods: immutable, so that pods and attempts can name the code that they ran."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import attrs
import orjson

from cortex.domain.argument_check import SAYS_NOTHING, CodeArguments
from cortex.postgres.database import Database
from cortex.store.rows import row_of, rows_of

NAMED: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords of JSON Schema whose keys are names."""
VALUES: Final = frozenset({"const", "enum", "required"})
"""Keywords whose content is data."""


@attrs.frozen(kw_only=True)
class Code:
    """The code that a pod runs."""

    version: str
    """What people see: the operator's word for it, or a digest of its sources."""
    arguments: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """JSON Schema of the arguments of each job type."""
    tools: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """JSON Schema of the input of each tool."""
    packages: tuple[str, ...] = ()
    """The installed packages with their versions, sorted."""

    @property
    def digest(self) -> bytes:
        """Return what distinguishes this code from others.

        Covers everything for which code may hand a job back, so that the same code never claims it
        again, and mended code does. It is the same each time this code starts: the values of
        defaults, which may be the time or an address in memory, do not count.
        """
        content = {
            "version": self.version,
            "arguments": {name: _lasting(schema) for name, schema in self.arguments.items()},
            "tools": {name: _lasting(schema) for name, schema in self.tools.items()},
            "packages": self.packages,
        }
        return sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).digest()


@attrs.frozen(kw_only=True)
class ServedType:
    """What the database knows of a job type, and the pods that serve it."""

    is_served: bool
    """Ready pods have it."""
    timeout_s: int | None
    """Its default; None: it is neither built in, nor has a pod ever had it."""
    others: tuple[str, ...]
    """All types, for suggestions, where this one is none of them."""
    codes: tuple[CodeArguments, ...]
    """What the codes of ready pods take, the newest one first."""


@attrs.frozen(kw_only=True)
class ListedType:
    type: str
    is_live: bool
    """A ready pod runs it."""
    codes: tuple[CodeArguments, ...]
    """What the codes of ready pods take, the newest one first."""


def _lasting(schema: Any) -> Any:
    """Return a schema without what refuses no value, at any depth."""
    if isinstance(schema, list):
        return [_lasting(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        keyword: {name: _lasting(each) for name, each in value.items()}
        if keyword in NAMED and isinstance(value, Mapping)
        else value
        if keyword in VALUES
        else _lasting(value)
        for keyword, value in schema.items()
        if keyword not in SAYS_NOTHING
    }


async def ensure(db: Database, code: Code) -> int:
    """Store a code unless it exists; return its id."""
    types = list(code.arguments)
    schemas = [orjson.dumps(code.arguments[name]).decode() for name in types]
    (row,) = await db.fetch("pods.ensure_code", code.digest, code.version, types, schemas)
    return int(row["id"])


async def served(db: Database, job_type: str, *, is_exact: bool) -> ServedType:
    """Return which pods serve a job type, and the arguments that they take.

    `is_exact` leaves out pods that have died in the last seconds, which takes a read of all locks.
    """
    (row,) = await db.fetch("pods.served", job_type, is_exact)
    return row_of(ServedType, row)


async def types(db: Database) -> list[ListedType]:
    """Return all job types that pods have registered, or that are built in."""
    return rows_of(ListedType, await db.fetch("pods.types"))
