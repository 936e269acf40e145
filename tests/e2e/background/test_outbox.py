"""Messages of real pods to a real receiver: pods die while they send, and none is lost."""

import base64
import json
from collections import Counter

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.servers.postgres import sql
from tests.support.servers.webhook_thread import receiving_in_a_thread

SUBSCRIBE = """
    INSERT INTO cortex.subscription (name, topic, channel, config, changed_by)
    VALUES ('a', 'order.*', 'webhook', $1, 'test')
"""
PUBLISH = """
    SELECT cortex.publish('order.paid', jsonb_build_object('n', n), 'k' || n % 20)::text AS id
    FROM generate_series(1, $1) n
"""
MESSAGES = 120


@pytest.mark.smoke("A message is sent at least once, under one id", case="after_message_sent")
@pytest.mark.parametrize(
    "point", ["after_outbox_claim", "after_message_sent", "after_outbox_record"]
)
def test_pod_killed_while_sending_loses_no_message(pods: Pods, point: str) -> None:
    """A message is sent twice at most by a death, and under the same id; each key in order."""
    pods.environment["CORTEX_HTTP_ALLOW"] = "127.0.0.0/8"
    pods.environment["HOOK"] = "whsec_" + base64.b64encode(bytes(32)).decode()
    with receiving_in_a_thread() as (url, received):
        config = json.dumps({"url": url, "secrets": ["env:HOOK"]})
        sql(pods.dsn, SUBSCRIBE, config)
        published = {row["id"] for row in sql(pods.dsn, PUBLISH, MESSAGES)}
        pods.environment["CORTEX_CRASH_AT"] = f"{point}:2"
        doomed = pods.launch()
        eventually(lambda: doomed.process.poll() is not None, what="the pod is dead")
        del pods.environment["CORTEX_CRASH_AT"]
        pods.start()
        pending = "SELECT count(*) AS n FROM cortex.outbox WHERE status <> 'SENT'"
        eventually(lambda: sql(pods.dsn, pending)[0]["n"] == 0, what="all are sent")
    messages = [(each["id"], each["key"], each["data"]["n"]) for each in received.bodies]
    counts = Counter(message_id for message_id, _, _ in messages)
    assert set(counts) == published
    assert max(counts.values()) <= 2
    assert sum(counts.values()) - MESSAGES <= 50, "what the killed pod had claimed"
    first_seen: dict[str, list[int]] = {}
    for _, key, number in messages:
        numbers = first_seen.setdefault(key, [])
        if number not in numbers:
            numbers.append(number)
    assert all(numbers == sorted(numbers) for numbers in first_seen.values())
