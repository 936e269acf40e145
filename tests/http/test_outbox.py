"""`/v1/outbox` and `/v1/subscriptions`."""

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
