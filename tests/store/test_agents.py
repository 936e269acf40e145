"""Agents: named series of immutable versions."""

import asyncio
from typing import Any

import pytest

from cortex.domain.errors import NotFoundError, RejectedError
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import Session
from cortex.store import specs
from cortex.store.specs import SpecKind
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

SPEC: dict[str, Any] = {"model": "m", "tools": ["a", "b"], "limits": {"max_steps": 3}}


def apply(store: Session, name: str = "researcher", **changes: Any) -> tuple[int, bool]:
    return store(
        specs.apply, SpecKind.AGENT, new_id=new_id(), name=name, spec=SPEC | changes, by="ana"
    )


def test_a_version_is_made_exactly_when_something_changed(store: Session) -> None:
    assert apply(store) == (1, True)
    assert apply(store) == (1, False)
    reordered = dict(reversed(SPEC.items()))
    again = store(
        specs.apply, SpecKind.AGENT, new_id=new_id(), name="researcher", spec=reordered, by="bob"
    )
    assert again == (1, False)
    assert apply(store, model="n") == (2, True)
    assert apply(store) == (3, True)  # going back is a change, too
    assert apply(store, "other") == (1, True)


def test_versions_are_read_as_they_were_applied(store: Session) -> None:
    agent_id = new_id()
    for model in ("m", "n"):
        spec = SPEC | {"model": model}
        store(specs.apply, SpecKind.AGENT, new_id=agent_id, name="researcher", spec=spec, by="ana")
    assert [store(specs.spec, SpecKind.AGENT, agent_id, v)["model"] for v in (1, 2)] == ["m", "n"]
    assert [row.version for row in store(specs.versions, SpecKind.AGENT, "researcher")] == [2, 1]
    (first,) = store(specs.versions, SpecKind.AGENT, "researcher", version=1)
    assert (first.spec, first.applied_by) == (SPEC, "ana")


def test_missing_agent_or_version_is_named(store: Session) -> None:
    apply(store)
    with pytest.raises(NotFoundError, match="'nobody' does not exist"):
        store(specs.versions, SpecKind.AGENT, "nobody")
    with pytest.raises(NotFoundError, match="'researcher' version 2 does not exist"):
        store(specs.versions, SpecKind.AGENT, "researcher", version=2)
    with pytest.raises(NotFoundError, match="has no version 9"):
        store(specs.spec, SpecKind.AGENT, new_id(), 9)
    with pytest.raises(RejectedError):
        apply(store, "no name!")


def test_pages_go_by_name(store: Session) -> None:
    for name in ("c", "a", "b"):
        apply(store, name)
    apply(store, "b", model="n")
    listed = store(specs.page, SpecKind.AGENT)
    assert [(row.name, row.version, row.spec["model"]) for row in listed] == [
        ("a", 1, "m"),
        ("b", 2, "n"),
        ("c", 1, "m"),
    ]
    assert [row.name for row in store(specs.page, SpecKind.AGENT, after="a", limit=1)] == ["b"]


def test_applying_the_same_from_many_places_at_once_makes_one_version(database: str) -> None:
    async def apply_at_once() -> list[tuple[int, bool]]:
        stores = [await open_database(Profile(dsn=database), rng=seeded_random()) for _ in range(6)]
        made: list[tuple[int, bool]] = []
        for turn in range(8):
            spec = SPEC | {"turn": turn}
            made += await asyncio.gather(
                *(
                    specs.apply(
                        db, SpecKind.AGENT, new_id=new_id(), name="researcher", spec=spec, by="ana"
                    )
                    for db in stores
                )
            )
        for each in stores:
            await each.close()
        return made

    made = run_asyncio(apply_at_once)
    assert sum(is_new for _, is_new in made) == 8
    assert {version for version, _ in made} == set(range(1, 9))
    rows = sql(database, "SELECT version FROM cortex.agent_version ORDER BY version")
    assert [row["version"] for row in rows] == list(range(1, 9))
