"""The login of pods in the embedded Postgres: it has the rights of pods, and no others.

Commands connect as the owner. So what runs in a pod, with the address that the pod has, decides
nothing and makes no tokens. The socket is open to all programs of the server's user, though: on a
machine of one user the walls are those of the operating system.
"""

from typing import Final

import asyncpg

from cortex.postgres.database import Profile
from cortex.postgres.errors import of_statement
from cortex.postgres.queries import sql

OWNER: Final = "postgres"
POD: Final = "cortex_pod"


async def make_pod_login(dsn: str) -> str:
    """Create the login unless it exists; return the address for it.

    Takes the owner's address of a migrated database.
    """
    connection = await Profile(dsn=dsn, role=None).connect()
    try:
        await connection.execute(sql("sessions.make_pod_login"))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise of_statement(error) from error
    finally:
        connection.terminate()
    return dsn.replace(f"://{OWNER}@", f"://{POD}@", 1)
