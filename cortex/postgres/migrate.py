"""Migrations: numbered files of `sql/migrations`, forward only, applied once, in order.

Safe when many pods start at once: those with migrations to apply queue at a lock, and all but the
first find nothing left to do. A pod with nothing to apply does not wait. A schema that is
newer than this code, or was made by other files, is refused and not changed.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import attrs

from cortex.domain.errors import SchemaError
from cortex.postgres.database import Profile, Record
from cortex.postgres.errors import of_statement
from cortex.postgres.queries import SQL_DIR, sql

BOUND_S = 120.0
"""For all migrations together, including the wait for another pod's."""
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@attrs.frozen(kw_only=True)
class Migration:
    """One numbered SQL file."""

    version: int
    name: str
    text: str = attrs.field(repr=False)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the file: a landed migration is never edited."""
        return hashlib.sha256(self.text.encode()).digest()


def migrations(folder: Path = SQL_DIR / "migrations") -> list[Migration]:
    """Return the migrations in order; their numbers are 1, 2, 3 … without gaps."""
    result: list[Migration] = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None or int(match[1]) != len(result) + 1:
            raise SchemaError(f"migration {path.name!r} is out of order")
        result.append(Migration(version=int(match[1]), name=match[2], text=path.read_text("utf-8")))
    return result


async def migrate(dsn: str, *, files: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the schema up to date; return the migrations that were applied now.

    Needs the right to create schemas, and roles unless `cortex_runtime` exists already. Raises
    `SchemaError` for a schema that is newer than this code or was made by other files.
    """
    wanted = migrations() if files is None else files
    connection = await Profile(dsn=dsn, role=None).connect()
    watchdog = asyncio.get_running_loop().call_later(BOUND_S, connection.terminate)
    try:
        is_begun = await connection.fetchval(sql("migrations.is_begun"))
        if is_begun:
            applied = await connection.fetch(sql("migrations.applied"))
            if not _pending(wanted, applied):
                return []
        async with connection.transaction():
            # Waiting for another pod's migration may take as long as that migration takes.
            await connection.execute(sql("migrations.patience"))
            if not is_begun:
                await connection.execute(sql("migrations.lock"))
                await connection.execute(sql("migrations.ensure_table"))
            await connection.execute(sql("migrations.lock_table"))
            applied = await connection.fetch(sql("migrations.applied"))
            pending = _pending(wanted, applied)
            for migration in pending:
                await connection.execute(migration.text)
                await connection.execute(
                    sql("migrations.note"), migration.version, migration.name, migration.digest
                )
        return pending
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise of_statement(error) from error
    finally:
        watchdog.cancel()
        connection.terminate()


async def check(dsn: str) -> None:
    """Raise `SchemaError` unless the schema is exactly the one of this code."""
    connection = await Profile(dsn=dsn, role=None).connect()
    try:
        applied = await connection.fetch(sql("migrations.applied"))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise of_statement(error) from error
    finally:
        connection.terminate()
    check_applied(applied)


def check_applied(applied: Sequence[Record]) -> None:
    """Raise `SchemaError` unless these are exactly the migrations of this code."""
    pending = _pending(migrations(), applied)
    if pending:
        raise SchemaError(
            f"the schema is at version {len(applied)}, this code needs {pending[-1].version}",
            hint="run: cortex migrate",
        )


def _pending(wanted: Sequence[Migration], applied: Sequence[Record]) -> list[Migration]:
    if applied and applied[0]["name"] != wanted[0].name:
        first = applied[0]["name"]
        raise SchemaError(
            "the database is from before the first release of Cortex: its first migration is "
            f"{first!r}, not {wanted[0].name!r}",
            hint="nothing was changed: name an empty database with --dsn or a new --data folder",
        )
    newest = max((row["version"] for row in applied), default=0)
    if newest > len(wanted):
        raise SchemaError(
            f"the database's schema is at version {newest}, this Cortex knows up to {len(wanted)}",
            hint="upgrade Cortex on this machine; an old pod must not run on a newer schema",
        )
    digests = {row["version"]: row["digest"] for row in applied}
    for migration in wanted[:newest]:
        if digests.get(migration.version) != migration.digest:
            raise SchemaError(
                f"migration {migration.version} ({migration.name}) is not the one that was applied",
                hint="a landed migration is never edited: restore the file",
            )
    return list(wanted[newest:])
