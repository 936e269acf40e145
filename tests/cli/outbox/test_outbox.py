"""`cortex subscriptions` and `cortex outbox`: files with their errors, lists, changes by people."""

import random

import pytest

from cortex.domain.messages.message import SENT, failed
from cortex.domain.messages.subscription import Subscription
from cortex.store import facts
from cortex.store.background import outbox, subscriptions
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.records.rows import new_id

WHY = ("--reason", "a test")
FILE = """
subscriptions:
  - name: ops
    topic: job.failed
    filter: {tenant: acme}
    channel: slack
    url: env:SLACK_URL
    template: "{payload.job} failed: {payload.error.message|no message}"
  - name: audit
    topic: "*"
    channel: log
"""
WRONG = {
    "unknown key 'urll'": "{name: a, topic: x.y, channel: webhook, urll: 'https://a.b'}",
    "secrets is missing": "{name: a, topic: x.y, channel: webhook, url: 'https://a.b/c'}",
    "not the place of a secret": (
        "{name: a, topic: x.y, channel: webhook, url: 'https://a.b', secrets: whsec_AAAA}"
    ),
    "no topic matches 'job.fail'": "{name: a, topic: job.fail, channel: log}",
    "is no place of a message": "{name: a, topic: x.y, channel: log, template: '{payload}'}",
    "stdin:1: subscription a: template: no message of job.failed has {payload.tpye}": (
        "{name: a, topic: job.failed, channel: log, template: '{payload.tpye|x}'}"
    ),
    "no message of job.failed has {payload.error.mesage}": (
        "{name: a, topic: job.failed, channel: log, template: '{payload.error.mesage}'}"
    ),
    "messages of job.completed have no {payload.error.message}": (
        "{name: a, topic: job.*, channel: log, template: '{payload.error.message}'}"
    ),
    "messages of approval.requested have no {payload.stage}": (
        "{name: a, topic: approval.reminder, channel: log, template: '{payload.stage}'}"
    ),
    "a single {": "{name: a, topic: x.y, channel: log, template: 'a { b'}",
    "channel is 'pager'": "{name: a, topic: x.y, channel: pager}",
    "channel is \"['log']\"": "{name: a, topic: x.y, channel: [log]}",
    "topic is '5', not a text": "{name: a, topic: 5, channel: log}",
    "topic is missing": "{name: a, channel: log}",
    "handlers are declared in code": "{name: a, topic: x.y, channel: handler}",
    "url is a secret": "{name: a, topic: x.y, channel: slack, url: 'https://h.example/T0/whsec_'}",
    "not a URL": (
        "{name: a, topic: x.y, channel: webhook, secrets: env:S, url: 'ftp://u:whsec_1@a.b'}"
    ),
    "contains a password": (
        "{name: a, topic: x.y, channel: webhook, secrets: env:S, url: 'https://u:whsec_1@a.b'}"
    ),
    "url has a secret in 'api_key'": (
        "{name: a, topic: x.y, channel: webhook, secrets: env:S, url: 'https://a.b?api_key=whsec_1'}"
    ),
    "server is 'a b'": (
        "{name: a, topic: x.y, channel: email, server: a b, sender: a@b.c, to: a@b.c}"
    ),
    "stdin:1: subscription a: min_risk is 'huge'": (
        "{name: a, topic: approval.*, channel: log, min_risk: huge}"
    ),
    "no message of job.* names a risk": "{name: a, topic: job.*, channel: log, min_risk: MED}",
    "tenant is '[1]'": "{name: a, topic: x.y, channel: log, tenant: [1]}",
    "stdin:1: subscription a: fallback 'b' does not exist": (
        "{name: a, topic: x.y, channel: log, fallback: b}"
    ),
    "attempts is '17'": "{name: a, topic: x.y, channel: log, attempts: 17}",
    "timeout_s is '0'": "{name: a, topic: x.y, channel: log, timeout_s: 0}",
    "fallback is the subscription itself": "{name: a, topic: x.y, channel: log, fallback: a}",
    "stdin:1: subscription a: its fallbacks lead back: a → b → a": (
        "{name: a, topic: x.y, channel: log, fallback: b}, "
        "{name: b, topic: x.y, channel: log, fallback: a}"
    ),
}


def test_subscriptions_are_applied_listed_and_removed(cortex: Cortex, life: Life) -> None:
    done = cortex("subscriptions", "apply", "-", *WHY, "--as", "ana", "--json", stdin=FILE)
    rows = done.document["subscriptions"]
    assert [(row["name"], row["change"]) for row in rows] == [
        ("audit", "created"),
        ("ops", "created"),
    ]
    again = cortex("subscriptions", "apply", "-", "--json", stdin=FILE)
    assert {row["change"] for row in again.document["subscriptions"]} == {"unchanged"}
    changed = FILE.replace("job.failed", "job.*")
    again = cortex("subscriptions", "apply", "-", "--json", stdin=changed)
    assert [row["change"] for row in again.document["subscriptions"]] == ["unchanged", "updated"]
    listed = cortex("subscriptions", "ls", "--json").document["subscriptions"]
    row = {each["name"]: each for each in listed}["ops"]
    assert (row["topic"], row["filter"], row["channel"]) == ("job.*", {"tenant": "acme"}, "slack")
    assert (row["config"]["url"], row["pending"]) == ("env:SLACK_URL", 0)
    assert "audit" in cortex("subscriptions", "ls").out
    assert cortex("subscriptions", "rm", "ops", *WHY, "--yes").code == 0
    gone = cortex("subscriptions", "rm", "ops", *WHY, "--yes", "--json")
    assert (gone.code, gone.error["hint"]) == (3, "list them: cortex subscriptions ls")
    noted = life.call(facts.page, types=["lifecycle"], since_s=60, source="subscription:ops")
    assert [fact.subtype for fact in noted] == [
        "subscription_removed",
        "subscription_applied",
        "subscription_applied",
    ]


ROUTES = """
subscriptions:
  - {name: first, topic: "approval.*", tenant: acme, min_risk: med, channel: log, fallback: last}
  - {name: last, topic: notification.ops, channel: log}
  - name: other
    topic: approval.requested
    channel: log
    template: "{payload.stage|first}, or, as a fallback, {payload.error.code|none}"
"""


def test_routes_have_a_tenant_a_least_risk_and_a_fallback(cortex: Cortex) -> None:
    assert cortex("subscriptions", "apply", "-", stdin=ROUTES).code == 0
    first, *_ = cortex("subscriptions", "ls", "--json").document["subscriptions"]
    assert (first["tenant"], first["min_risk"], first["fallback"]) == ("acme", "MED", "last")
    kept = cortex("subscriptions", "rm", "last", *WHY, "--yes", "--json")
    assert (kept.code, kept.error["message"]) == (
        5,
        "subscription 'last' is the fallback of first",
    )


def test_a_wrong_value_is_named_with_its_line(cortex: Cortex) -> None:
    text = "subscriptions:\n  - name: a\n    topic: x.y\n    channel: log\n    level: loud\n"
    done = cortex("subscriptions", "apply", "-", "--json", stdin=text)
    assert done.error["message"].endswith(":5: subscription a: level is 'loud'")


def test_an_address_that_pods_refuse_is_named_with_its_setting(cortex: Cortex) -> None:
    rows = [
        "{name: a, topic: x.y, channel: webhook, secrets: env:S, url: 'http://127.0.0.1:9000/h'}",
        "{name: b, topic: x.y, channel: webhook, secrets: env:S, url: 'https://93.184.216.34/h'}",
        "{name: c, topic: x.y, channel: webhook, secrets: env:S, url: env:URL}",
        "{name: d, topic: x.y, channel: email, server: 10.0.0.7, sender: a@b.c, to: a@b.c}",
    ]
    text = f"subscriptions: [{', '.join(rows)}]"
    done = cortex("subscriptions", "apply", "-", stdin=text)
    refused = "is not a public address: pods refuse to send to it, unless their CORTEX_HTTP_ALLOW"
    assert (done.code, done.err.splitlines()[:2]) == (
        0,
        [
            f"subscription a: host '127.0.0.1' {refused} contains 127.0.0.1:9000",
            f"subscription d: host '10.0.0.7' {refused} contains 10.0.0.7:587",
        ],
    )
    allowed = {"CORTEX_HTTP_ALLOW": "127.0.0.1:9000,10.0.0.0/8"}
    again = cortex("subscriptions", "apply", "-", stdin=text, env=allowed)
    assert (again.code, "refuse" in again.err) == (0, False)


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_file_is_refused_with_its_problem(cortex: Cortex, problem: str) -> None:
    done = cortex(
        "subscriptions", "apply", "-", "--json", stdin=f"subscriptions: [{WRONG[problem]}]"
    )
    assert done.code == 2
    assert problem in done.error["message"]
    assert "whsec_" not in done.err, "what looks like a secret is not repeated"
    assert cortex("subscriptions", "ls", "--json").document["subscriptions"] == []


def test_a_test_message_is_sent_from_here(cortex: Cortex) -> None:
    cortex("subscriptions", "apply", "-", stdin=FILE)
    sent = cortex("subscriptions", "test", "audit", "--json")
    assert (sent.code, sent.document["outcome"]) == (0, "sent")
    failed_ = cortex("subscriptions", "test", "ops", "--json")
    assert failed_.code != 0
    assert "environment variable SLACK_URL is not set" in failed_.error["message"]
    assert cortex("subscriptions", "test", "none", "--json").code == 3


@pytest.fixture
def messages(life: Life) -> Life:
    """A message that was sent, one that failed, and two that wait."""
    pod = new_id()
    subscription = Subscription(name="a", topic="order.*", channel="log")
    life.call(subscriptions.put, subscription, by="ana", reason="")
    for number in range(4):
        life.call(outbox.publish, "order.paid", {"number": number}, key=f"k{number}")
    claimed = life.call(outbox.claim, pod_id=pod, most={"a": 2}).messages
    gone = failed(1, "127.0.0.1 answered with status 410", is_final=True, rng=random.Random(1))
    outcomes = list(zip(claimed, (SENT, gone), strict=True))
    life.call(outbox.record, pod_id=pod, outcomes=outcomes)
    life.call(outbox.publish, "invoice.sent", {})
    return life


def test_filter_with_an_unknown_name_is_refused(cortex: Cortex, messages: Life) -> None:
    assert cortex("outbox", "ls", "--subscription", "a", "--status", "processing").code == 0
    for command in (["ls"], ["retry", *WHY], ["discard", *WHY, "--yes"]):
        done = cortex("outbox", *command, "--subscription", "aa", "--json")
        assert (done.code, done.error["hint"]) == (3, "did you mean 'a'?")
        assert done.error["message"] == "subscription 'aa' does not exist"
        done = cortex("outbox", *command, "--topic", "job.fail", "--json")
        assert (done.code, done.error["hint"]) == (2, "did you mean job.failed?")
    done = cortex("outbox", "ls", "--before", "9" * 20, "--json")
    assert (done.code, "--before" in done.error["message"]) == (2, True)


def test_messages_are_listed_and_shown(cortex: Cortex, messages: Life) -> None:
    rows = cortex("outbox", "ls", "--json").document["messages"]
    assert [row["status"] for row in rows] == ["SENT", "PENDING", "PENDING", "FAILED", "SENT"]
    assert rows[0]["subscription"] is None
    (row,) = cortex("outbox", "ls", "--status", "failed", "--json").document["messages"]
    assert row["last_error"] == "127.0.0.1 answered with status 410"
    assert cortex("outbox", "ls", "--topic", "invoice.*", "--json").document["messages"] == rows[:1]
    page = cortex("outbox", "ls", "--limit", "2", "--before", str(rows[1]["seq"]), "--json")
    assert page.document["messages"] == rows[2:4]
    shown = cortex("outbox", "show", row["id"][-8:])
    assert "status 410" in shown.out
    assert "cortex outbox retry" in shown.out
    document = cortex("outbox", "show", row["id"], "--json").document["message"]
    assert document["payload"] == {"number": 1}
    assert [each["status"] for each in document["to"]] == ["FAILED"]
    assert cortex("outbox", "show", "ffffffff", "--json").code == 3


def test_messages_are_retried_and_discarded(cortex: Cortex, messages: Life) -> None:
    unchosen = cortex("outbox", "retry", *WHY, "--json")
    assert (unchosen.code, unchosen.error["message"]) == (2, "no message is chosen")
    filters = ("--subscription", "a", "--since", "1h")
    unasked = cortex("outbox", "retry", *filters, *WHY, "--json")
    assert (unasked.code, "add --yes" in unasked.error["hint"]) == (2, True)
    assert "retry 1 message (1 failed)" in unasked.error["message"]
    retried = cortex("outbox", "retry", *filters, *WHY, "--as", "ana", "--yes", "--json")
    assert retried.document["retried"] == 1
    assert cortex("outbox", "ls", "--status", "failed", "--json").document["messages"] == []
    discarded = cortex("outbox", "discard", "--topic", "order.*", *WHY, "--yes", "--json")
    assert discarded.document["discarded"] == 3
    left = cortex("outbox", "ls", "--json").document["messages"]
    assert {row["status"] for row in left} == {"SENT"}
