"""Messages that the runtime announces, as the database holds them."""

import json
from collections.abc import Iterator
from typing import Any

from cortex.domain.messages.payload_keys import PAYLOAD_KEYS, topics_without
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
    messages = [(row["topic"], row["key"], json.loads(row["payload"])) for row in rows]
    for topic, _, payload in messages:
        keys = set(_keys(payload)) if topic in PAYLOAD_KEYS else set()
        strange = [key for key in sorted(keys) if topics_without(key, [topic])]
        assert not strange, f"templates of {topic} may not name {strange}: payload_keys.py"
    return messages


def _keys(payload: dict[str, Any], holder: str = "") -> Iterator[str]:
    for name, value in payload.items():
        yield holder + name
        if isinstance(value, dict):
            yield from _keys(value, f"{holder}{name}.")
