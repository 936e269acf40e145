"""Every kind of step, every way to end, every handler: the job ends, and its pod never does."""

import json
import signal
import socket
from collections.abc import Iterator
from itertools import product
from typing import Final
from uuid import UUID

import pytest

from tests.support.apps.ways_to_end_app import KINDS
from tests.support.eventually import eventually
from tests.support.pods import Pods, end_of_pod, run_cli
from tests.support.records.rows import assert_one_truth
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.ways_to_end_app")
LIMIT_S: Final = 3
"""Of the job."""
EFFECTS: Final = ("effect", "sync_effect")
ISOLATED: Final = "isolated "
PLACES: Final = (*KINDS, f"{ISOLATED}step", f"{ISOLATED}sync_step", f"{ISOLATED}effect")
Cell = tuple[str, str, str]
"""The kind of step, the way to end, and what the handler does."""


@pytest.fixture
def silent_model() -> Iterator[str]:
    """Accepts connections and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def begin(dsn: str, cells: list[Cell]) -> dict[UUID, Cell]:
    """Submit a job for each cell."""
    ids = {}
    for kind, way, handler in cells:
        payload = {"kind": kind.removeprefix(ISOLATED), "way": way, "handler": handler}
        type_ = "ends_isolated" if kind.startswith(ISOLATED) else "ends"
        limit_s = LIMIT_S if way == "limit" else 60
        query = "SELECT cortex.submit_job($1, $2::jsonb, timeout_s => $3) AS id"
        (row,) = sql(dsn, query, type_, json.dumps(payload), limit_s)
        ids[row["id"]] = kind, way, handler
    return ids


def statuses(dsn: str, ids: dict[UUID, Cell]) -> dict[Cell, str]:
    rows = sql(dsn, "SELECT id, status::text AS status FROM cortex.job")
    return {ids[row["id"]]: row["status"] for row in rows if row["id"] in ids}


def expected(cell: Cell) -> str:
    kind, way, handler = cell
    kind = kind.removeprefix(ISOLATED)
    if way == "cancelled":
        return "CANCELLED"
    if way == "limit":
        return "FAILED"
    if kind in EFFECTS:
        return "WAITING_FOR_APPROVAL"  # a person has to find out whether it was applied
    if kind == "model_call" and way == "own":
        return "RETRY"  # for the breaker that its time-outs have opened
    # What an async function raises for the interpreter is no Exception that a handler catches.
    is_caught = handler == "catches" and (way == "own" or kind in ("sync_step", "tool"))
    return "COMPLETED" if is_caught else "FAILED"


def test_every_way_to_end_ends_the_job_and_never_the_pod(pods: Pods, silent_model: str) -> None:
    pods.environment |= {"ANTHROPIC_BASE_URL": silent_model, "ANTHROPIC_API_KEY": "test-key-0000"}
    pod = pods.start(*APP, slots=300, isolated_slots=20, **end_of_pod(1.0))
    ways, handlers = ("own", "limit", "cancelled", "raises"), ("lets through", "catches")
    cells = list(product(PLACES, ways, handlers))
    ids = begin(pods.dsn, [cell for cell in cells if cell[:2] != ("sleep", "raises")])
    named = [job_id for job_id, (_, way, _) in ids.items() if way == "cancelled"]
    running = "SELECT count(*) AS n FROM cortex.job WHERE status = 'RUNNING' AND id = ANY ($1)"
    eventually(lambda: sql(pods.dsn, running, named)[0]["n"] == len(named), what="they run")
    words = ("jobs", "cancel", *map(str, named), "--yes", "--reason", "enough")
    assert run_cli(*words, dsn=pods.dsn, folder=pods.folder).exit_code == 0
    eventually(lambda: "RUNNING" not in statuses(pods.dsn, ids).values(), what="all have ended")
    assert statuses(pods.dsn, ids) == {cell: expected(cell) for cell in ids.values()}
    assert_one_truth(pods.dsn)

    places = [place for place in PLACES if place != "model_call"]  # whose breaker is open
    left = begin(pods.dsn, list(product(places, ("drain",), ("lets through", "swallows"))))
    eventually(lambda: set(statuses(pods.dsn, left).values()) == {"RUNNING"}, what="the others run")
    assert pod.is_alive
    pod.signal(signal.SIGTERM)
    assert pod.exit_code() == 0
    query = "SELECT job_id FROM cortex_worker.task WHERE state = 'READY'"
    assert {row["job_id"] for row in sql(pods.dsn, query)} == left.keys(), "all were handed back"
    assert_one_truth(pods.dsn)
