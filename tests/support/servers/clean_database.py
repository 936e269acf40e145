"""A database that a test has used, made as good as new: a tenth of what a new one costs the server.

Only rows and sequences are put back. A database in which anything else has changed (its schema, its
settings, what the planner knows) is recognised by its catalogs and not used again.
"""

from typing import Final

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

_OTHERS: Final = """
    SELECT count(*), sum(reltuples)::bigint FROM pg_class
    UNION ALL SELECT count(*), 0 FROM pg_db_role_setting
        JOIN pg_database d ON d.oid = setdatabase WHERE d.datname = current_database()
"""
_STATE: Final = " UNION ALL ".join(
    [*(f"SELECT count(*), max(xmin::text::bigint) FROM {each}" for each in CATALOGS), _OTHERS]  # noqa: S608 -- our own names
)
_END_OTHERS: Final = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES: Final = """
    SELECT c.oid::regclass::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname ^@ 'cortex' ORDER BY 1
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
    script: str
    """Puts rows and sequences back."""

    @classmethod
    def of(cls, fresh: KeptConnections) -> "CleanState":
        """Read it from a database that nobody has used."""
        tables = [row["name"] for row in fresh.fetch(_TABLES, ())]
        lines = ["PERFORM set_config('session_replication_role', 'replica', true);"]
        lines += [_emptied(name) for name in tables]
        lines += [_refilled(fresh, name) for name in tables]
        lines += [
            f"PERFORM setval('{row['name']}', {row['value']}, {row['is_called']});"
            for row in fresh.fetch(_SEQUENCES, ())
        ]
        text = "\n".join(lines)
        script = f"DO $clean$ DECLARE n bigint; BEGIN\n{text}\nEND $clean$"
        return cls(_catalogs(fresh), script)

    def restore(self, used: KeptConnections) -> bool:
        """End its sessions and put everything back; false if that is not possible."""
        used.fetch(_END_OTHERS, ())
        if _catalogs(used) != self.catalogs:
            return False
        used.fetch(self.script, ())
        return True


def _catalogs(database: KeptConnections) -> list[tuple[int, int]]:
    return [tuple(row) for row in database.fetch(_STATE, ())]


def _emptied(table: str) -> str:
    return f"IF pg_relation_size('{table}') > 0 THEN DELETE FROM {table}; END IF;"  # noqa: S608


def _refilled(fresh: KeptConnections, table: str) -> str:
    query = f"SELECT jsonb_agg(to_jsonb(t))::text AS rows FROM {table} t"  # noqa: S608
    (rows,) = (row["rows"] for row in fresh.fetch(query, ()))
    if rows is None:
        return ""
    (columns,) = (row["names"] for row in fresh.fetch(_COLUMNS, (table,)))
    return (
        f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} "  # noqa: S608
        f"FROM jsonb_populate_recordset(NULL::{table}, $rows${rows}$rows$);"
    )
