"""A database that a test has used, made as good as new: a tenth of what a new one costs the server.

Only rows, sequences and the clock are put back. A database in which anything else has changed (its
schema, its settings, what the planner knows) is recognised by its catalogs and not used again.
"""

from collections.abc import Sequence
from typing import Final

import asyncpg
from attrs import frozen

from tests.support.servers.kept_sql import KeptConnections

CATALOGS: Final = (
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_constraint",
    "pg_extension",
    "pg_index",
    "pg_namespace",
    "pg_policy",
    "pg_proc",
    "pg_statistic",
    "pg_trigger",
    "pg_type",
)

_CLOCK: Final = "cortex.now()"
"""A function that tests replace; it is put back like a row."""
_OTHERS: Final = """
    SELECT count(*), sum(reltuples)::bigint FROM pg_class
    UNION ALL SELECT count(*), 0 FROM pg_db_role_setting
        JOIN pg_database d ON d.oid = setdatabase WHERE d.datname = current_database()
"""


def _rows_of(catalog: str) -> str:
    but = f"WHERE oid <> '{_CLOCK}'::regprocedure" if catalog == "pg_proc" else ""
    # A number of a transaction as its distance from the first, which costs a fifth of its text.
    return f"SELECT count(*), max(age('3'::xid) - age(xmin))::bigint FROM {catalog} {but}"  # noqa: S608 -- our own names


_STATE: Final = " UNION ALL ".join([*map(_rows_of, CATALOGS), _OTHERS])
_END_OTHERS: Final = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity a
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND NOT (
        pid = ANY ($1::int[]) AND state = 'idle'
        AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND locktype = 'advisory')
    )
"""
_TABLES: Final = """
    SELECT c.oid::regclass::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname ^@ 'cortex' ORDER BY 1
"""
_USED: Final = """
    SELECT array_agg(name) FROM unnest($1::text[]) AS name
    WHERE pg_relation_size(name::regclass) > 0
"""
_NOW: Final = """
    SELECT pg_get_functiondef(oid) AS text, proacl::text AS grants
    FROM pg_proc WHERE oid = $1::text::regprocedure
"""
_COLUMNS: Final = """
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS names FROM pg_attribute
    WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_SEQUENCES: Final = """
    SELECT format('%I.%I', schemaname, sequencename) AS name,
        coalesce(last_value, start_value) AS value, last_value IS NOT NULL AS is_called
    FROM pg_sequences
"""


@frozen
class CleanState:
    """State of a new database: all that come from one template are the same."""

    catalogs: list[tuple[int, int]]
    clock: asyncpg.Record
    tables: list[str]
    filled: dict[str, str]
    """Rows of the tables that have any, as a document."""
    columns: dict[str, str]
    """Of these tables, as a list in SQL."""
    sequences: str
    """A statement that puts them back."""

    @classmethod
    def of(cls, fresh: KeptConnections) -> "CleanState":
        """Read it from a database that nobody has used."""
        tables = [row["name"] for row in fresh.fetch(_TABLES, ())]
        filled = {name: rows for name in tables if (rows := _rows(fresh, name)) is not None}
        columns = {name: fresh.fetch(_COLUMNS, (name,))[0]["names"] for name in filled}
        values = ", ".join(
            f"setval('{row['name']}', {row['value']}, {row['is_called']})"
            for row in fresh.fetch(_SEQUENCES, ())
        )
        (clock,) = fresh.fetch(_NOW, (_CLOCK,))
        return cls(_catalogs(fresh), clock, tables, filled, columns, f"PERFORM {values};")

    def restore(self, used: KeptConnections, *, kept: Sequence[int] = ()) -> bool:
        """End its sessions and put everything back; false if that is not possible.

        Of the `kept` processes of sessions, those stay that do nothing and hold no lock.
        """
        used.fetch(_END_OTHERS, (kept,))
        (clock,) = used.fetch(_NOW, (_CLOCK,))
        if _catalogs(used) != self.catalogs or clock["grants"] != self.clock["grants"]:
            return False
        if clock["text"] != self.clock["text"]:
            used.fetch(self.clock["text"], ())
        ((names,),) = used.fetch(_USED, (self.tables,))
        changed = {each for each, rows in self.filled.items() if _rows(used, each) != rows}
        lines = [
            "PERFORM set_config('session_replication_role', 'replica', true);",
            *(f"DELETE FROM {name};" for name in names if name not in self.filled.keys() - changed),  # noqa: S608
            *(self._refilled(name) for name in changed),
            self.sequences,
        ]
        used.fetch("\n".join(["DO $clean$ BEGIN", *lines, "END $clean$"]), ())
        return True

    def _refilled(self, table: str) -> str:
        names = self.columns[table]
        return (
            f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} "  # noqa: S608
            f"FROM jsonb_populate_recordset(NULL::{table}, $rows${self.filled[table]}$rows$);"
        )


def _catalogs(database: KeptConnections) -> list[tuple[int, int]]:
    return [tuple(row) for row in database.fetch(_STATE, ())]


def _rows(database: KeptConnections, table: str) -> str | None:
    query = f"SELECT jsonb_agg(r ORDER BY r)::text AS rows FROM {table} t, to_jsonb(t) AS r"  # noqa: S608
    ((rows,),) = database.fetch(query, ())
    found: str | None = rows
    return found
