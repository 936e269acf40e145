"""The job type `webhook_dispatch`: signed, with the same id on every repetition."""

import base64
from typing import Any

import pytest
import trio

from cortex.domain.errors import ForbiddenError, InvalidValueError
from cortex.http_client.webhooks import is_authentic
from cortex.jobs.webhook_dispatch import webhook_dispatch
from tests.support.eventually import WITHIN_S
from tests.support.knowing import forget_secrets
from tests.support.records.factories import LedgerDesk, Record, TrioClock, a_claim, a_context
from tests.support.servers.web_server import WebServer, open_server

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    forget_secrets(monkeypatch)
    server = await open_server(nursery)
    host = f"127.0.0.1:{server.port}"
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", host)
    monkeypatch.setenv("CORTEX_HTTP_SECRETS", f"env:HOOK@http://{host},env:OLD@http://{host}")
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("OLD", OTHER)
    monkeypatch.setenv("ELSEWHERE", SECRET)
    return server


async def run(server: WebServer, gateway: LedgerDesk, **given: Any) -> Any:
    context = a_context(Record(), a_claim(type="webhook_dispatch"), gateway=gateway)
    defaults = {"url": server.url(), "payload": {"a": "ü"}, "secret": "env:HOOK"}
    with trio.fail_after(WITHIN_S):
        return await webhook_dispatch(context, **defaults | given)


def received(server: WebServer) -> dict[str, str]:
    lines = server.asked[0].partition("\r\n\r\n")[0].splitlines()[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def test_receiver_can_verify_the_signature(server: WebServer) -> None:
    gateway = LedgerDesk()
    await run(server, gateway, secret=["env:HOOK", "env:OLD"])
    headers = received(server)
    at = int((await TrioClock().now()).timestamp())
    body = '{"a":"ü"}'.encode()
    for secret in (SECRET, OTHER):
        assert is_authentic(headers, body, now=at, secrets=[secret])
    assert headers["webhook-id"] == f"msg_{gateway.intents[0].id}"
    assert headers["content-type"] == "application/json"


async def test_webhook_is_sent_again_under_its_id_after_a_death(server: WebServer) -> None:
    gateway = LedgerDesk(verdicts=["recheck"])
    await run(server, gateway, message_id="order-7")
    assert received(server)["webhook-id"] == "order-7"


async def test_secret_for_another_host_signs_nothing(server: WebServer) -> None:
    with pytest.raises(ForbiddenError, match="env:ELSEWHERE may not be sent"):
        await run(server, LedgerDesk(), secret="env:ELSEWHERE")
    assert server.asked == []


@pytest.mark.parametrize(
    "given",
    [{"secret": []}, {"secret": SECRET}, {"message_id": "a\r\nb"}, {"message_id": ""}],
)
async def test_nonsense_is_refused(server: WebServer, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        await run(server, LedgerDesk(), **given)
    assert SECRET not in str(caught.value)
    assert server.asked == []
