"""People are notified of an approval by real pods, although one dies while it does so."""

import base64
import json
from itertools import groupby

import pytest

from tests.support.eventually import eventually
from tests.support.people import me
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import submit, until_status
from tests.support.servers.postgres import sql
from tests.support.servers.webhook_thread import receiving_in_a_thread

APP = "tests.support.apps.approval_app"
SUBSCRIBE = """
    INSERT INTO cortex.subscription (name, topic, channel, config, changed_by)
    VALUES ('ops', 'approval.requested', 'webhook', $1, 'test'),
           ('people', 'notification.*', 'webhook', $1, 'test')
"""
NOTIFY = """
    SELECT cortex.submit_job('send_notification', '{"text": "late", "title": "import"}') AS id
"""
HALF_TIME = "UPDATE cortex.approval SET remind_at = cortex.now()"


@pytest.mark.smoke("People who are asked are notified, and not after the decision")
def test_a_request_its_reminder_and_its_end_arrive_although_the_pod_is_killed(pods: Pods) -> None:
    pods.environment["CORTEX_HTTP_ALLOW"] = "127.0.0.0/8"
    pods.environment["HOOK"] = "whsec_" + base64.b64encode(bytes(32)).decode()
    pods.environment["CORTEX_PUBLIC_URL"] = "https://cortex.example.org/"
    with receiving_in_a_thread() as (url, received):
        sql(pods.dsn, SUBSCRIBE, json.dumps({"url": url, "secrets": ["env:HOOK"]}))
        (notified,) = sql(pods.dsn, NOTIFY)  # no pod has registered yet
        asking = submit(pods.dsn, "ship", {"count": 7})

        pods.environment["CORTEX_CRASH_AT"] = "after_message_sent:1"
        doomed = pods.launch("--app", APP)
        eventually(lambda: doomed.process.poll() is not None, what="the pod is dead")
        del pods.environment["CORTEX_CRASH_AT"]
        sql(pods.dsn, HALF_TIME)
        pods.start("--app", APP)
        until_status(pods.dsn, notified["id"], "COMPLETED")
        eventually(lambda: "approval.reminder" in received.topics, what="people are reminded")
        (approval,) = sql(pods.dsn, "SELECT id::text, expires_at FROM cortex.approval")
        by = ("approve", approval["id"], "--yes", "--as", "ana", "--reason", "checked")
        assert run_cli("approvals", *by, dsn=pods.dsn, folder=pods.folder).exit_code == 0
        until_status(pods.dsn, asking, "COMPLETED")
        eventually(lambda: "approval.decided" in received.topics, what="its end is announced")

    about = [each for each in received.bodies if each["key"] == approval["id"]]
    assert [topic for topic, _ in groupby(each["type"] for each in about)] == [
        "approval.requested",
        "approval.reminder",
        "approval.decided",
    ]
    ids = {(each["type"], each["id"]) for each in about}
    assert len(ids) == 3, "what was sent twice has the same id"
    data = about[0]["data"]
    assert data["link"] == f"https://cortex.example.org/approvals/{approval['id']}"
    assert (data["call"], data["risk"], data["people"]) == ("ship(count=7)", "MED", 1)
    assert data["who"].startswith("one person with the role approver")
    assert {"arguments", "asked", "token"}.isdisjoint(data)
    (reminder,) = {each["data"]["stage"] for each in about if each["type"] == "approval.reminder"}
    assert reminder == "50 %"
    assert about[-1]["data"]["decided_by"] == me("ana")

    (row,) = sql(pods.dsn, "SELECT result FROM cortex.job WHERE id = $1", notified["id"])
    result = json.loads(row["result"])
    assert (result["sent"], result["is_degraded"]) == (["people"], False)
    infos = [each for each in received.bodies if each["type"] == "notification.info"]
    # Maybe twice: its pod may have been killed between the sending and its record.
    assert {(each["data"]["title"], each["id"]) for each in infos} == {
        ("import", result["message_id"])
    }
