"""Every kind of step, every way to end, every handler: the job ends, and its pod never does."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final
from uuid import UUID

import pytest

from tests.support.apps.ways_to_end_app import KINDS
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, end_of_pod, run_cli
from tests.support.records.rows import assert_one_truth
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.ways_to_end_app")
LIMIT_S: Final = 3
"""Of the job."""
WAITS: Final = "WAITING_FOR_APPROVAL"
EFFECTS: Final = ("effect", "sync_effect")
ISOLATED: Final = "isolated "
PLACES: Final = (*KINDS, f"{ISOLATED}step", f"{ISOLATED}sync_step", f"{ISOLATED}effect")
Cell = tuple[str, str, str]
"""The kind of step, the way to end, and what the handler does."""


@pytest.fixture
def silent_server() -> Iterator[str]:
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
    if kind == "approval" and way != "cancelled":
        return WAITS  # which takes none of the job's time
    if way == "cancelled":
        return "CANCELLED"
    if way == "limit":
        return "FAILED"
    if kind in EFFECTS:
        return WAITS  # a person has to find out whether it was applied
    if kind == "model_call" and way == "own":
        return "RETRY"  # for the breaker that its time-outs have opened
    # What an async function raises for the interpreter is no Exception that a handler catches.
    is_caught = handler == "catches" and (way == "own" or kind in ("sync_step", "tool"))
    return "COMPLETED" if is_caught else "FAILED"


def begun(cell: Cell) -> str:
    kind, _, handler = cell
    return WAITS if kind == "approval" and handler != "swallows" else "RUNNING"


def taken_over(cell: Cell) -> str:
    """Return the status in a pod that does not know whether an effect was applied."""
    kind, _, handler = cell
    asks = kind.removeprefix(ISOLATED) in ("approval", *EFFECTS)
    return WAITS if asks and handler != "swallows" else "RUNNING"


def others(dsn: str, ids: dict[UUID, Cell], status: Callable[[Cell], str]) -> dict[Cell, str]:
    """Return the jobs in other states than `status` expects."""
    now = statuses(dsn, ids)
    return {cell: now[cell] for cell in ids.values() if now[cell] != status(cell)}


def become(dsn: str, ids: dict[UUID, Cell], status: Callable[[Cell], str], *, what: str) -> None:
    try:
        eventually(lambda: not others(dsn, ids, status), what=what)
    except pytest.fail.Exception as failed:
        failed.add_note(f"others: {others(dsn, ids, status)}")
        raise


def test_every_way_to_end_ends_the_job_and_never_the_pod(pods: Pods, silent_server: str) -> None:
    pods.environment |= {
        "ANTHROPIC_BASE_URL": silent_server,
        "ANTHROPIC_API_KEY": "test-key-0000",
        "SILENT_URL": silent_server,
        "CORTEX_HTTP_ALLOW": "127.0.0.1/32",
    }
    pod = pods.start(*APP, slots=300, isolated_slots=20, **end_of_pod(1.0))
    ways, handlers = ("own", "limit", "cancelled", "raises"), ("lets through", "catches")
    cells = list(product(PLACES, ways, handlers))
    ids = begin(pods.dsn, [cell for cell in cells if cell[:2] != ("sleep", "raises")])
    named = {job_id: cell for job_id, cell in ids.items() if cell[1] == "cancelled"}
    become(pods.dsn, named, begun, what="they run")
    words = ("jobs", "cancel", *map(str, named), "--yes", "--reason", "enough")
    assert run_cli(*words, dsn=pods.dsn, folder=pods.folder).exit_code == 0
    eventually(lambda: "RUNNING" not in statuses(pods.dsn, ids).values(), what="all have ended")
    assert statuses(pods.dsn, ids) == {cell: expected(cell) for cell in ids.values()}
    assert_one_truth(pods.dsn)
    check_those_left(pods, pod)


def check_those_left(pods: Pods, pod: Pod) -> None:
    """Drain their pod, then kill the next one, then abort the one that has taken over."""
    places = [place for place in PLACES if place != "model_call"]  # whose breaker is open
    left = begin(pods.dsn, list(product(places, ("drain",), ("lets through", "swallows"))))
    become(pods.dsn, left, begun, what="the others run")
    in_effect = {id_ for id_, (kind, *_) in left.items() if kind.removeprefix(ISOLATED) in EFFECTS}
    # A job runs once it is claimed; the next pod asks people only about an effect that has begun.
    eventually(lambda: with_effects(pods.dsn) >= in_effect, what="their effects have begun")
    assert pod.is_alive
    pod.signal(signal.SIGTERM)
    assert pod.exit_code() == 0
    open_ids = {job_id for job_id, cell in left.items() if begun(cell) == "RUNNING"}
    assert handed_back(pods.dsn) == open_ids

    killed = pods.start(*APP, slots=300, isolated_slots=20)
    become(pods.dsn, left, taken_over, what="the next pod runs them")
    aborted = pods.start(*APP, slots=300, isolated_slots=20, **end_of_pod(60.0))
    killed.kill()
    open_ids = {job_id for job_id, cell in left.items() if taken_over(cell) == "RUNNING"}
    query = "SELECT count(*) AS n FROM cortex_worker.task WHERE locked_by = $1"
    own = sql(pods.dsn, "SELECT id FROM cortex.pod WHERE name = $1", aborted.name)[0]["id"]
    eventually(lambda: sql(pods.dsn, query, own)[0]["n"] == len(open_ids), what="taken over")
    assert not others(pods.dsn, left, taken_over)
    aborted.signal(signal.SIGTERM)
    drains = "SELECT state::text AS state FROM cortex.pod WHERE id = $1"
    eventually(lambda: sql(pods.dsn, drains, own)[0]["state"] == "DRAINING", what="it drains")
    aborted.signal(signal.SIGTERM)
    assert aborted.exit_code() == 128 + signal.SIGTERM
    assert handed_back(pods.dsn) == open_ids
    assert_one_truth(pods.dsn)


def with_effects(dsn: str) -> set[UUID]:
    return {row["job_id"] for row in sql(dsn, "SELECT job_id FROM cortex.effect")}


def handed_back(dsn: str) -> set[UUID]:
    query = "SELECT job_id FROM cortex_worker.task WHERE state = 'READY'"
    return {row["job_id"] for row in sql(dsn, query)}
