"""Messages that the runtime announces, as the database holds them."""

import json
from typing import Any

from tests.support.servers.postgres import sql


def subscribe(dsn: str, topic: str = "*") -> None:
    """Let messages of a topic be written, for a channel that nobody runs."""
    sql(
        dsn,
        "INSERT INTO cortex.subscription (name, topic, channel, changed_by) "
        "VALUES ('a', $1, 'log', 'test')",
        topic,
    )


def announced(dsn: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Topic, key and payload of all messages, in order."""
    rows = sql(dsn, "SELECT topic, key, payload FROM cortex.outbox ORDER BY seq")
    return [(row["topic"], row["key"], json.loads(row["payload"])) for row in rows]
