"""The channels of a job in a process of its own, over the wire and back."""

from itertools import product
from typing import Any, cast

import orjson
import pytest

from cortex.domain.errors import ForbiddenError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Claim
from cortex.domain.messages.message import Message
from cortex.durable.attempt import Channels
from cortex.durable.calls import Caller
from cortex.runtime.isolation.forwarding import answer, remote
from cortex.runtime.isolation.wire import Channel
from tests.support.records.channels import ChannelList
from tests.support.records.factories import TrioClock, a_claim, services
from tests.support.records.rows import new_id

BUSY = Failure(cls=FailureClass.TRANSIENT_APP, code="busy", message="busy", retry_after_s=7.0)


class Line:
    """A channel whose other side is in this process, behind JSON."""

    def __init__(self, channels: ChannelList, claim: Claim) -> None:
        self.channels, self.claim = channels, claim

    async def call(self, path: str, /, **given: Any) -> Any:
        arrived = orjson.loads(orjson.dumps(given))
        result = await called(self.channels, self.claim, path, arrived)
        return orjson.loads(orjson.dumps(result))


async def called(channels: ChannelList, claim: Claim, path: str, given: dict[str, Any]) -> Any:
    return await answer(services(channels=channels), claim, path, given, caller=no_caller)


async def no_caller(_: object) -> Caller:
    raise AssertionError("channels have no caller")


def remote_channels(channels: ChannelList, claim: Claim) -> Channels:
    found: Channels = remote("channels", cast("Channel", Line(channels, claim)))
    return found


async def test_a_job_in_its_own_process_notifies_as_in_its_pod() -> None:
    channels, ids = ChannelList({"mail": [BUSY]}), [new_id(), new_id()]
    claim = a_claim(type="send_notification")
    remote = remote_channels(channels, claim)
    assert await remote.routes("a.b", tenant="acme", payload={"n": 1}) == ["mail"]
    now = await TrioClock().now()
    message = Message(id=new_id(), attempt=1, topic="a.b", payload={"n": [1]}, created_at=now)
    assert await remote.send("mail", message, limit_s=15.0) == BUSY
    assert await remote.send("mail", message, limit_s=15.0) is None
    assert channels.sent == [("mail", message)] * 2
    reminding = remote_channels(channels, a_claim(type="approval_notify"))
    reminder = await reminding.remind("7f3c", message_id=ids[0])
    assert (reminder.approval, reminder.notified) == ("7f3c", ["mail"])
    await remote.notify(claim, "{}", job_id=ids[1], traceparent=None)
    assert channels.reminded == [("7f3c", ids[0])]
    assert channels.notified == {ids[1]: "{}"}


@pytest.mark.parametrize(
    "job_type, method",
    [
        *product(("digest", "run_agent"), ("routes", "send", "remind")),
        *product(("approval_notify",), ("routes", "send")),
        ("send_notification", "remind"),
    ],
)
async def test_only_the_type_that_needs_a_channel_reaches_it(job_type: str, method: str) -> None:
    channels = ChannelList({"mail": []})
    with pytest.raises(ForbiddenError, match=f"type '{job_type}' may not call {method}"):
        await called(channels, a_claim(type=job_type), f"channels.{method}", {})
    assert (channels.sent, channels.reminded) == ([], [])


async def test_method_that_is_not_listed_is_not_called() -> None:
    with pytest.raises(KeyError):
        await called(ChannelList(), a_claim(), "channels.__init__", {"failures": {}})
