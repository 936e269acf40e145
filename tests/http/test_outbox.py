"""`/v1/outbox` and `/v1/subscriptions`."""

import random
from typing import Final
from uuid import UUID

from cortex.domain.messages.message import failed
from cortex.domain.messages.subscription import Subscription
from cortex.postgres.database import Database
from cortex.store.background import outbox, subscriptions
from tests.support.records.rows import new_id
from tests.support.servers.http_server import HttpServer

HOOK = Subscription(
    name="a",
    topic="order.*",
    channel="webhook",
    config={"url": "https://a.example/hook", "secrets": ["env:A_SECRET"]},
)


async def fill(db: Database) -> None:
    """Three messages to one subscription, the first of them under way, and one to nobody."""
    await subscriptions.put(db, HOOK, by="ana", reason="")
    for number in range(3):
        await outbox.publish(db, "order.paid", {"number": number})
    await outbox.publish(db, "invoice.sent", {})
    await outbox.claim(db, pod_id=new_id(), most={"a": 1})


def test_messages_and_subscriptions_are_listed(server: HttpServer) -> None:
    server.store(fill)
    token = server.token("viewer")
    first, second = server.get("/v1/outbox?limit=2", token=token).json["messages"]
    assert (first["topic"], first["subscription"]) == ("invoice.sent", None)
    assert (first["status"], second["payload"]) == ("SENT", {"number": 2})
    assert second["channel"] == "webhook"
    rest = server.get(f"/v1/outbox?before={second['seq']}", token=token).json["messages"]
    assert [row["payload"]["number"] for row in rest] == [1, 0]
    way = "/v1/outbox?status=PROCESSING&topic=order.*"
    sending = server.get(way, token=token).json["messages"]
    assert [row["payload"]["number"] for row in sending] == [0]
    (row,) = server.get("/v1/subscriptions", token=token).json["subscriptions"]
    assert (row["name"], row["pending"]) == ("a", 2)
    assert row["config"]["secrets"] == ["env:A_SECRET"]


WHY: Final = {"reason": "the receiver is back"}


async def fail(db: Database) -> list[UUID]:
    """Two messages that failed, and one that waits; the oldest first."""
    pod = new_id()
    await subscriptions.put(db, HOOK, by="ana", reason="")
    ids = [await outbox.publish(db, "order.paid", {"number": number}) for number in range(3)]
    claimed = (await outbox.claim(db, pod_id=pod, most={"a": 2})).messages
    gone = failed(1, "answered with status 410", is_final=True, rng=random.Random(1))
    await outbox.record(db, pod_id=pod, outcomes=[(each, gone) for each in claimed])
    return ids


def test_a_message_is_retried_once_and_discarded(server: HttpServer) -> None:
    first, second, waiting = server.store(fail)
    way, token = f"/v1/outbox/{first}", server.token("operator")
    assert server.post(f"{way}/retry", token=server.token("viewer"), json_body=WHY).status == 403
    for _ in range(2):
        again = server.post(
            f"{way}/retry", token=token, json_body=WHY, headers={"Idempotency-Key": "retry-1"}
        )
        assert (again.status, again.json) == (200, {"count": 1})
    (row,) = server.get(way, token=token).json["messages"]
    assert (row["status"], row["attempts"]) == ("PENDING", 0)
    refused = server.post(f"{way}/retry", token=token, json_body=WHY)
    assert (refused.status, "is PENDING, not FAILED" in refused.json["detail"]) == (409, True)
    for name in (first, second, waiting):
        assert server.post(f"/v1/outbox/{name}/discard", token=token, json_body=WHY).json == {
            "count": 1
        }
    for path in (way, f"{way}/retry", f"{way}/discard"):
        gone = (
            server.get(path, token=token)
            if path == way
            else server.post(path, token=token, json_body=WHY)
        )
        assert gone.status == 404
    assert server.post(f"{way}/retry", token=token, json_body={}).status == 422


def test_messages_are_changed_by_filter(server: HttpServer) -> None:
    server.store(fail)
    token = server.token("operator")
    unchosen = server.post("/v1/outbox/retry", token=token, json_body=WHY)
    assert (unchosen.status, unchosen.json["hint"]) == (
        400,
        "give subscription, topic, status, since or older",
    )
    counted = {"topic": "order.*", "status": "FAILED", "since": "1h", "is_dry_run": True} | WHY
    total = server.post("/v1/outbox/retry", token=token, json_body=counted).json["count"]
    old = {"status": "FAILED", "older": "1h"} | WHY
    assert server.post("/v1/outbox/retry", token=token, json_body=old).json == {"count": 0}
    sent = server.post("/v1/outbox/retry", token=token, json_body={"status": "SENT"} | WHY)
    assert (sent.status, sent.json["detail"]) == (400, "status is SENT, not FAILED or PENDING")
    one = {"subscription": "a", "limit": 1} | WHY
    assert total >= 1
    assert server.post("/v1/outbox/retry", token=token, json_body=one).json == {"count": 1}
    other = {"topic": "invoice.*"} | WHY
    assert server.post("/v1/outbox/discard", token=token, json_body=other).json == {"count": 0}
    nobody = {"subscription": "nobody"} | WHY
    unknown = server.post("/v1/outbox/retry", token=token, json_body=nobody)
    assert (unknown.status, unknown.json["detail"]) == (
        404,
        "subscription 'nobody' does not exist",
    )
    all_of_them = {"topic": "order.*"} | WHY
    assert server.post("/v1/outbox/discard", token=token, json_body=all_of_them).json == {
        "count": 3
    }
