"""Notifications of a request for approval: when it is made, while it waits, when it ends."""

from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.job import Suspend
from cortex.domain.messages.message import ATTEMPTS_MAX, failed
from cortex.domain.messages.subscription import Subscription
from cortex.runtime.maintenance.notifications import Notifications
from cortex.runtime.outbox.approval_text import with_link
from cortex.runtime.outbox.senders import default_text
from cortex.store import approvals, breakers, tasks
from cortex.store.background import outbox, subscriptions
from tests.support.records.approvals import a_request, a_verdict, suspension
from tests.support.records.factories import Bench
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import sql

BUDGET = TickBudget()
HOUR = 3600.0


async def subscribe(bench: Bench, name: str, topic: str, **more: Any) -> None:
    row = Subscription(**{"name": name, "topic": topic, "channel": "log"} | more)
    await bench.port(subscriptions.put, row, by="test", reason="")


async def ask(bench: Bench, **fields: Any) -> ApprovalRequest:
    request = a_request(**fields)
    (claim,) = await bench.claimed(1)
    waits: list[Suspend] = [suspension(claim, request)]
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=waits)
    return request


async def remind(bench: Bench) -> int:
    return (await Notifications(bench.port, rng=bench.rng).tick(BUDGET)).items


def announced(dsn: str, name: str = "ops") -> list[tuple[str, str | None]]:
    query = """SELECT topic, payload->>'stage' AS stage FROM cortex.outbox WHERE subscription = $1
               ORDER BY seq"""
    return [tuple(row) for row in sql(dsn, query, name)]


async def decide(bench: Bench, request: ApprovalRequest) -> None:
    await bench.port(approvals.decide, [a_verdict(request)])


async def test_a_request_is_reminded_of_twice_and_its_end_is_announced_once(
    bench: Bench, database: str
) -> None:
    await subscribe(bench, "ops", "approval.requested")
    await subscribe(bench, "ends", "approval.decided")
    asked = await ask(bench)
    assert await remind(bench) == 0
    for minutes in (31, 32, 55, 59):
        move_clock(database, minutes * 60)
        await remind(bench)
    await decide(bench, asked)
    assert announced(database) == [
        ("approval.requested", None),
        ("approval.reminder", "50 %"),
        ("approval.reminder", "90 %"),
        ("approval.decided", None),
    ]
    assert announced(database, "ends") == [("approval.decided", None)]
    assert sql(database, "SELECT count(*) AS n FROM cortex.approval_notice")[0]["n"] == 0
    keys = sql(database, "SELECT DISTINCT key FROM cortex.outbox")
    assert [row["key"] for row in keys] == [str(asked.id)], "in order"


@pytest.mark.smoke("People who are asked are notified, and not after the decision")
async def test_no_reminder_follows_a_decision_or_an_expiry(bench: Bench, database: str) -> None:
    await subscribe(bench, "ops", "approval.*")
    await decide(bench, await ask(bench))
    await ask(bench)
    move_clock(database, HOUR + 1)
    await remind(bench)
    await bench.port(approvals.expire)
    topics = [topic for topic, _ in announced(database)]
    assert sorted(topics) == [
        "approval.decided",
        "approval.expired",
        "approval.requested",
        "approval.requested",
    ]


async def test_after_an_outage_only_the_later_reminder_is_sent(bench: Bench, database: str) -> None:
    await subscribe(bench, "ops", "approval.requested")
    await ask(bench)
    move_clock(database, 0.95 * HOUR)
    assert [await remind(bench), await remind(bench)] == [1, 0]
    assert announced(database)[1:] == [("approval.reminder", "90 %")]


async def test_many_runners_at_once_remind_once(bench: Bench, database: str) -> None:
    await subscribe(bench, "ops", "approval.requested")
    for _ in range(5):
        await ask(bench)
    move_clock(database, 0.6 * HOUR)
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(remind, bench)
    await remind(bench)
    assert announced(database).count(("approval.reminder", "50 %")) == 5


async def test_the_call_is_on_one_line_without_all_of_its_arguments(
    bench: Bench, database: str
) -> None:
    await subscribe(bench, "ops", "approval.requested")
    long = "very long " * 100
    await ask(bench, tool="pay", key="3", arguments={"amount": 1240, "memo": long})
    (row,) = sql(database, "SELECT payload->>'call' AS call FROM cortex.outbox")
    assert row["call"].startswith("pay(amount=1240")
    assert len(row["call"]) < 200
    assert "arguments" not in row


@pytest.mark.parametrize(
    "given, receivers",
    [
        ({"min_risk": "MED"}, ["HIGH", "MED"]),
        ({"min_risk": "CRITICAL"}, []),
        ({"tenant": "acme"}, []),
        ({"tenant": "default"}, ["HIGH", "LOW", "MED"]),
    ],
)
async def test_a_subscription_selects_by_tenant_and_least_risk(
    bench: Bench, database: str, given: dict[str, Any], receivers: list[str]
) -> None:
    await subscribe(bench, "ops", "*", **given)
    for risk in ("LOW", "MED", "HIGH"):
        await ask(bench, risk=risk)
    await bench.port(outbox.publish, "order.paid", {}, tenant="other")
    rows = sql(
        database, "SELECT payload->>'risk' AS risk FROM cortex.outbox WHERE status = 'PENDING'"
    )
    assert sorted(row["risk"] for row in rows) == receivers


# --- the next channel


async def fail(bench: Bench, name: str) -> list[UUID]:
    """Let every message of a subscription fail for good; return their ids."""
    claimed = await bench.port(outbox.claim, pod_id=bench.pod.id, most={name: 50})
    spent = failed(ATTEMPTS_MAX, "refused", is_final=True, rng=bench.rng)
    await bench.port(
        outbox.record,
        pod_id=bench.pod.id,
        outcomes=[(message, spent) for message in claimed.messages],
    )
    return [message.id for message in claimed.messages]


async def chain(bench: Bench) -> None:
    await subscribe(bench, "mail", "x.y")
    await subscribe(bench, "page", "x.y", fallback="mail")
    await subscribe(bench, "ops", "approval.requested", fallback="page")


async def test_failed_message_moves_to_the_fallback_under_its_id(
    bench: Bench, database: str
) -> None:
    await chain(bench)
    approval = await ask(bench)
    (first,) = await fail(bench, "ops")
    assert await fail(bench, "page") == [first]
    (message,) = (await bench.port(outbox.claim, pod_id=bench.pod.id, most={"mail": 9})).messages
    assert (message.id, message.escalated_from, message.attempt) == (first, "page", 1)
    await decide(bench, approval)
    decided = "SELECT subscription FROM cortex.outbox WHERE topic = 'approval.decided' ORDER BY 1"
    assert [row["subscription"] for row in sql(database, decided)] == ["mail", "ops", "page"]


async def test_a_request_that_was_decided_escalates_no_more(bench: Bench, database: str) -> None:
    await chain(bench)
    await decide(bench, await ask(bench))
    await fail(bench, "ops")
    assert announced(database, "page") == []


async def test_fallbacks_in_a_circle_end(bench: Bench, database: str) -> None:
    await subscribe(bench, "b", "x.y")
    await subscribe(bench, "a", "order.*", fallback="b")
    sql(database, "UPDATE cortex.subscription SET fallback = 'a' WHERE name = 'b'")
    await bench.port(outbox.publish, "order.paid", {})
    assert len(await fail(bench, "a")) == 1
    assert len(await fail(bench, "b")) == 1
    assert await fail(bench, "a") == []


async def test_messages_for_a_channel_that_is_down_do_not_wait_for_it(
    bench: Bench, database: str
) -> None:
    await subscribe(bench, "mail", "x.y")
    await subscribe(bench, "page", "order.*", fallback="mail")
    await subscribe(bench, "alone", "order.*")
    await bench.port(outbox.publish, "order.paid", {})
    for name in ("page", "alone"):
        await bench.port(breakers.force_open, f"notify:{name}", for_s=HOUR, by="ana", reason="down")
    assert await bench.port(outbox.give_up, limit=9) == 0
    move_clock(database, 121)
    assert await bench.port(outbox.give_up, limit=9) == 1
    rows = sql(database, "SELECT subscription, status FROM cortex.outbox ORDER BY subscription")
    assert [tuple(row) for row in rows] == [
        ("alone", "PENDING"),
        ("mail", "PENDING"),
        ("page", "FAILED"),
    ]


# --- one request, by hand


async def test_a_reminder_by_hand_is_sent_once_for_each_id(bench: Bench, database: str) -> None:
    await subscribe(bench, "ops", "approval.requested")
    approval, message = await ask(bench), new_id()
    for _ in range(2):
        done = await bench.port(approvals.remind_one, approval.id, message_id=message)
        assert (done.status, done.receivers) == ("PENDING", ("ops",))
    assert announced(database)[1:] == [("approval.reminder", "requested")]
    await decide(bench, approval)
    done = await bench.port(approvals.remind_one, approval.id, message_id=new_id())
    assert (done.status, done.receivers) == ("APPROVED", ())


# --- what people read


async def test_approval_message_names_deciders_links_and_expiry(
    bench: Bench, database: str
) -> None:
    await subscribe(bench, "ops", "approval.*")
    request = await ask(bench, risk="CRITICAL")
    claimed = await bench.port(outbox.claim, pod_id=bench.pod.id, most={"ops": 9})
    (asked,) = claimed.messages
    message = with_link(asked, "https://cortex.example.org")
    assert message.payload["link"] == f"https://cortex.example.org/approvals/{request.id}"
    text = default_text(message)
    for part in (
        "CRITICAL: refund waits for a decision",
        'call: refund(amount=12.4, customer="cus_88")',
        "effect: money out (cannot be undone)",
        "who decides: 2 different people with the role approver, signed in",
        f"page: {message.payload['link']}",
        f"terminal: cortex approvals show {request.id}",
        "expires: 20",
    ):
        assert part in text
    reminder = attrs.evolve(asked, topic="approval.reminder")
    first_line = "CRITICAL: refund still waits for a decision (reminder)"
    assert default_text(reminder).splitlines()[0] == first_line
