"""The job types `send_notification` and `approval_notify`, and the tool of agents."""

from typing import Any

import attrs
import orjson
import pytest
from structlog.testing import capture_logs

from cortex.agent.tools import BUILT_IN
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import CortexError, TransientError
from cortex.domain.failure import Failure, FailureClass
from cortex.durable.context import Context
from cortex.jobs.approval_notify import approval_notify
from cortex.jobs.send_notification import NotificationResult, send_notification
from tests.support.records.channels import ChannelList
from tests.support.records.factories import (
    ClosedBreakers,
    FactList,
    LedgerDesk,
    Record,
    a_claim,
    a_context,
)

BUSY = Failure(cls=FailureClass.TRANSIENT_APP, code="busy", message="busy", retry_after_s=7.0)
GONE = Failure(cls=FailureClass.PERMANENT, code="gone", message="gone")


class Job:
    """A job whose attempts share one record, one set of channels and its id."""

    def __init__(self, **failures: list[Failure | None]) -> None:
        self.record, self.channels, self.facts = Record(), ChannelList(failures), FactList()
        self.breakers = ClosedBreakers()
        self.claim = a_claim(type="send_notification", max_retries=5)

    def context(self, **claim: Any) -> Context:
        return a_context(
            self.record,
            attrs.evolve(self.claim, **claim),
            channels=self.channels,
            facts=self.facts,
            breakers=self.breakers,
        )

    async def run(self, *, retry_count: int = 0, waits_count: int = 0) -> NotificationResult:
        context = self.context(retry_count=retry_count, waits_count=waits_count)
        result: NotificationResult = await send_notification(
            context, "the disk is full", title="disk", data={"n": 1}
        )
        return result


async def test_every_matching_subscription_gets_one_message_under_one_id() -> None:
    job = Job(mail=[], page=[])
    with capture_logs() as lines:
        result = await job.run()
    assert (result.sent, result.failed, result.is_degraded) == (["mail", "page"], {}, False)
    (_, first), (_, second) = job.channels.sent
    assert attrs.evolve(first, trace=second.trace) == second
    assert (str(first.id), first.topic) == (result.message_id, "notification.info")
    assert first.payload == {
        "text": "the disk is full",
        "title": "disk",
        "data": {"n": 1},
        "job": str(job.claim.lease.job_id),
        "tenant": "default",
        "from": f"job {job.claim.lease.job_id}",
    }
    assert sorted(job.breakers.admissions) == ["notify:mail", "notify:page"]
    assert lines == []


async def test_a_channel_that_fails_is_tried_again_and_holds_up_no_other() -> None:
    job = Job(mail=[BUSY], page=[])
    with pytest.raises(TransientError) as caught:
        await job.run()
    assert caught.value.retry_after_s == 7.0
    result = await job.run(retry_count=1)
    assert (result.sent, result.is_degraded) == (["mail", "page"], False)
    assert sorted(name for name, _ in job.channels.sent) == ["mail", "mail", "page"]
    assert len({message.id for _, message in job.channels.sent}) == 1


@pytest.mark.parametrize("failure, retry_count", [(BUSY, 5), (GONE, 0)])
async def test_undeliverable_notification_is_logged_and_degrades_the_job(
    failure: Failure, retry_count: int
) -> None:
    job = Job(mail=[failure], page=[])
    with capture_logs() as lines:
        result = await job.run(retry_count=retry_count)
    assert (result.sent, result.is_degraded) == (["page"], True)
    assert result.failed == {"mail": failure.message}
    assert result.reason == f"mail: {failure.message}"
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("warning", "notification not delivered")
    assert (line["title"], line["text"], line["data"]) == ("disk", "the disk is full", {"n": 1})
    ((_, fact, resolution),) = job.facts.failures
    assert (fact.message, resolution) == (result.reason, "its content was written to the log")


async def test_a_channel_that_refuses_its_credentials_is_a_fact_of_that_channel() -> None:
    refused = attrs.evolve(GONE, code="authentication", message="mail answered with status 401")
    job = Job(mail=[refused])
    assert (await job.run()).failed == {"mail": refused.message}
    found = [(fact.source, fact.code) for _, fact, _ in job.facts.failures]
    assert found == [("notify:mail", "authentication"), (None, "not_notified")]


async def test_without_a_subscription_the_content_is_logged() -> None:
    with capture_logs() as lines:
        result = await Job().run()
    assert (result.sent, result.is_degraded) == ([], True)
    assert result.reason == "no subscription matches its topic, tenant and risk"
    assert lines[0]["text"] == "the disk is full"


async def test_an_open_breaker_is_waited_for_twice() -> None:
    job = Job(mail=[])
    job.breakers.suspended = Suspended("notify:mail", "breaker notify:mail is open", delay_s=60)
    for waits_count in (0, 1):
        with pytest.raises(Suspended):
            await job.run(waits_count=waits_count)
    result = await job.run(waits_count=2)
    assert result.failed == {"mail": "breaker notify:mail is open"}
    assert job.channels.sent == []


@pytest.mark.parametrize(
    "given, problem",
    [
        ({"text": ""}, "text has 0 characters"),
        ({"text": "x" * 4001}, "text has 4001 characters"),
        ({"text": "x", "title": " "}, "title has 1 characters"),
        ({"text": "x", "topic": "job.failed"}, "one of the runtime's own"),
        ({"text": "x", "topic": "No Topic"}, "is not valid"),
        ({"text": "x", "data": {"a": "b" * 20_000}}, "data has more than"),
    ],
)
async def test_nonsense_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(CortexError, match=problem):
        await send_notification(Job(mail=[]).context(), **given)


async def test_a_request_is_reminded_of_under_the_id_of_the_job() -> None:
    job = Job(mail=[])
    await approval_notify(job.context(), "7f3c")
    result = await approval_notify(job.context(), "7f3c")
    assert (result.notified, result.is_degraded) == (["mail"], False)
    assert len(job.channels.reminded) == 1, "the second attempt finds the step"
    job = Job()
    with capture_logs() as lines:
        assert (await approval_notify(job.context(), "7f3c")).is_degraded
    assert lines[0]["log_level"] == "warning"


async def test_an_agent_notifies_by_a_job_of_its_own_which_it_does_not_wait_for() -> None:
    channels, ledger = ChannelList(), LedgerDesk()
    context = a_context(tools=Toolbox(BUILT_IN), channels=channels, gateway=ledger)
    given = {"text": "late", "topic": "invoice.late", "risk": "HIGH"}
    result = await context.tool("1", "send_notification", given)
    ((job_id, payload),) = channels.notified.items()
    assert result == {"job": str(job_id)}
    assert job_id == ledger.intents[0].id, "called again, it is the same job"
    assert orjson.loads(payload) == given
