"""Jobs that wait for signals on pods that are killed: each signal is received once, in order."""

import json
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    job_row,
    move_clock,
    steps,
    submit,
    until_status,
)
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.signal_app")
COUNT = 3
SEND = "SELECT cortex.send_signal('item', to_jsonb($2::int), job => $1)"


def until_waiting(pods: Pods, job_id: UUID, waiting_on: str) -> None:
    def waits() -> bool:
        row = job_row(pods.dsn, job_id)
        return bool(row["waiting_on"] == waiting_on and row["worker_job_id"] is None)

    eventually(waits, what=f"the job waits for {waiting_on}")


def until_received(pods: Pods, job_id: UUID, count: int) -> None:
    taken = "SELECT FROM cortex.signal WHERE taken_by = $1"
    eventually(lambda: len(sql(pods.dsn, taken, job_id)) == count, what=f"{count} are received")


def received(pods: Pods, job_id: UUID) -> list[object]:
    row = until_status(pods.dsn, job_id, "COMPLETED")
    found: list[object] = row["result"]
    return found


@pytest.mark.smoke("A signal is received once, in the order of arrival", case="after_take:1")
@pytest.mark.parametrize(
    "point",
    [
        "before_take:2",
        "after_take:1",
        "before_suspend:1",
        "after_suspend:1",
        "before_waits:3",
        "after_waits:1",
    ],
)
def test_killed_pods_leave_each_signal_received_once_in_order(pods: Pods, point: str) -> None:
    job_id = submit(pods.dsn, "collects", {"count": COUNT})
    first = pods.launch(*APP, crash_at=point)

    def waits_or_is_dead() -> bool:
        return not first.is_alive or job_row(pods.dsn, job_id)["waiting_on"] == "signal:item"

    eventually(waits_or_is_dead, what="it waits")
    for number in range(COUNT):
        sql(pods.dsn, SEND, job_id, number)
    eventually(lambda: not first.is_alive, what="the first pod dies")
    pods.start(*APP)
    assert received(pods, job_id) == [0, 1, 2]
    assert [key for *_, key in steps(pods.dsn, job_id)] == ["item", "item#2", "item#3"]
    taken = "SELECT taken_step FROM cortex.signal WHERE taken_by = $1 ORDER BY seq"
    found = [row["taken_step"] for row in sql(pods.dsn, taken, job_id)]
    assert found == ["item", "item#2", "item#3"]
    assert not sql(pods.dsn, "SELECT FROM cortex.job_wait")
    assert_one_truth(pods.dsn)


def test_a_signal_wakes_a_job_in_a_process_of_its_own(pods: Pods) -> None:
    pods.start(*APP, isolated_slots=1)
    job_id = submit(pods.dsn, "collects_apart", {"count": 2})
    for number in range(2):
        until_waiting(pods, job_id, "signal:item")
        sql(pods.dsn, SEND, job_id, number)
        until_received(pods, job_id, number + 1)
    assert received(pods, job_id) == [0, 1]
    keys = [key for *_, key in steps(pods.dsn, job_id)]
    assert sorted(keys) == ["item", "item until", "item#2", "item#2 until"]


def test_the_time_of_a_wait_goes_on_without_pods(pods: Pods) -> None:
    first = pods.start(*APP)
    late, early = (
        submit(pods.dsn, "expects", {"key": f"order-{number}", "timeout": 3_600})
        for number in range(2)
    )
    for job_id in (late, early):
        until_waiting(pods, job_id, "signal:paid")
    fits = run_cli("preflight", *APP, "--json", dsn=pods.dsn, folder=pods.folder)
    assert (fits.exit_code, fits.document["jobs"]) == (0, 2), fits.stdout
    assert first.stop() == 0
    sql(pods.dsn, "SELECT cortex.send_signal('paid', '\"now\"', key => 'order-1')")
    move_clock(pods.dsn, 3_601)
    pods.start(*APP)
    assert received(pods, late) == ["nothing", "nothing"]
    assert received(pods, early) == ["now", "now"], "it was there in time"
    ended = sql(pods.dsn, "SELECT output FROM cortex.job_step WHERE key = 'paid' ORDER BY job_id")
    outputs = [json.loads(row["output"]) for row in ended]
    assert [sorted(each) for each in outputs] == [["timed_out"], ["sent_at", "signal", "value"]]
