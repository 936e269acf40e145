"""Configurations of pods: immutable, so that a job keeps the one that it started with."""

from hashlib import sha256
from typing import Any

import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Database


async def ensure(db: Database, spec: dict[str, Any]) -> int:
    """Store a configuration unless it exists; return its id."""
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    row = await db.fetch_one("config.ensure", sha256(text).digest(), text.decode())
    if row is None:  # another pod stored it meanwhile, after this statement's snapshot
        row = await db.fetch_one("config.ensure", sha256(text).digest(), text.decode())
    if row is None:
        raise AssertionError("a configuration that exists cannot be missing")
    return int(row["id"])


async def spec(db: Database, config_id: int) -> dict[str, Any]:
    """Return a configuration as plain JSON. Raises `NotFoundError`."""
    row = await db.fetch_one("config.spec", config_id)
    if row is None:
        raise NotFoundError(f"configuration {config_id} does not exist")
    specification: dict[str, Any] = orjson.loads(row["spec"])
    return specification
