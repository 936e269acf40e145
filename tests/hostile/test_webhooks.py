"""A receiver of `webhook_dispatch` cannot lead a signed message elsewhere."""

import base64
from typing import Any

import pytest
import trio

from cortex.domain.classification import failure_of
from cortex.domain.errors import CortexError
from cortex.domain.failure import FailureClass
from cortex.jobs.webhook_dispatch import webhook_dispatch
from tests.support.eventually import WITHIN_S
from tests.support.knowing import forget_secrets
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context
from tests.support.servers.web_server import WebServer, open_server

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
STATUSES = (300, 301, 302, 303, 304, 305, 307, 308, 399)


@pytest.fixture
async def servers(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> tuple[WebServer, WebServer]:
    """The receiver, and a server that the operator permits as well."""
    forget_secrets(monkeypatch)
    receiver, elsewhere = await open_server(nursery), await open_server(nursery)
    hosts = [f"127.0.0.1:{each.port}" for each in (receiver, elsewhere)]
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", ",".join(hosts))
    monkeypatch.setenv("CORTEX_HTTP_SECRETS", ",".join(f"env:HOOK@http://{each}" for each in hosts))
    monkeypatch.setenv("HOOK", SECRET)
    return receiver, elsewhere


async def refused(receiver: WebServer) -> CortexError:
    context: Any = a_context(Record(), a_claim(type="webhook_dispatch"), gateway=LedgerDesk())
    with trio.fail_after(WITHIN_S), pytest.raises(CortexError) as caught:
        await webhook_dispatch(context, receiver.url(), {"a": 1}, "env:HOOK")
    return caught.value


@pytest.mark.parametrize("status", STATUSES)
async def test_a_redirect_fails_and_is_not_followed(
    servers: tuple[WebServer, WebServer], status: int
) -> None:
    receiver, elsewhere = servers
    location = elsewhere.url("/secret-path?token=hunter2")
    receiver.reply = (
        f"HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    error = await refused(receiver)
    failure = failure_of(error)
    assert (len(receiver.asked), elsewhere.asked) == (1, [])
    assert f"answered with status {status}" in failure.message
    assert failure.cls is FailureClass.PERMANENT
    assert "hunter2" not in failure.message


@pytest.mark.parametrize(
    "location, shown",
    [
        ("/other", "it points to http://127.0.0.1:"),
        ("//user:hunter2@evil.example/x", "it points to http://evil.example, and"),
        ("http://[::1", "it points to an unusable URL"),
        ("file:///etc/passwd", "it points to an unusable URL"),
        ("http://xn--\x1b[2J/", ""),  # no header at all for the library
    ],
)
async def test_the_reason_names_the_server_that_it_points_to(
    servers: tuple[WebServer, WebServer], location: str, shown: str
) -> None:
    receiver, _ = servers
    receiver.reply = (
        f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    error = await refused(receiver)
    assert shown in error.message
    assert "hunter2" not in error.message
    assert error.message.isprintable()
    assert len(receiver.asked) == 1
