"""E-mail by a real server: STARTTLS, its certificate, logins, refusals, and silence."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_string
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.domain.failure import Failure, FailureClass
from cortex.domain.messages.message import Message
from cortex.domain.messages.subscription import parse_subscription
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.runtime.outbox.senders import SenderParts, send_within
from tests.support.eventually import WITHIN_S
from tests.support.knowing import forget_secrets
from tests.support.servers.smtp_server import SmtpServer, serving_smtp

LOOPBACK = AllowedAddresses.parse("127.0.0.0/8,::1/128")
ID = UUID("019a0000-0000-7000-8000-000000000001")


@pytest.fixture
def smtp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmtpServer]:
    forget_secrets(monkeypatch)
    with serving_smtp(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        monkeypatch.setenv("SMTP_USER", "cortex")
        monkeypatch.setenv("SMTP_PASSWORD", "open sesame")
        yield server


async def send(
    smtp: SmtpServer, *, host: str = "localhost", send_s: float = 15.0, **more: Any
) -> Failure | None:
    config: dict[str, Any] = {
        "name": "mail",
        "topic": "*",
        "channel": "email",
        "server": f"{host}:{smtp.port}",
        "sender": "cortex@example.org",
        "to": ["ana@example.org", "li@example.org"],
        "user": "env:SMTP_USER",
        "password": "env:SMTP_PASSWORD",
    }
    parts = SenderParts(poster=Poster(LOOPBACK), allowed=LOOPBACK, unix_ms=lambda: 0, send_s=send_s)
    sender = parts.sender(parse_subscription(config | more, where=lambda _: "test"))
    assert sender is not None
    message = Message(
        id=ID,
        attempt=1,
        topic="order.late",
        payload={"order": "7"},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return await send_within(sender, message)


async def test_mail_is_encrypted_for_all_recipients_under_one_id(smtp: SmtpServer) -> None:
    assert (
        await send(smtp, subject="late: {payload.order}", template="order {payload.order}") is None
    )
    (mail,) = smtp.mails
    assert mail.was_encrypted
    assert (mail.sender, mail.to) == ("cortex@example.org", ["ana@example.org", "li@example.org"])
    assert mail.login == ("cortex", "open sesame")
    assert smtp.asked.index("STARTTLS") < smtp.asked.index("AUTH"), "no password in the clear"
    letter = message_from_string(mail.text)
    assert (letter["Subject"], letter["Message-ID"]) == ("late: 7", f"<{ID}@example.org>")
    assert str(letter.get_payload()).strip() == "order 7"


@pytest.mark.parametrize(
    "replies, cls, code",
    [
        ({"AUTH": "535 wrong password"}, FailureClass.PERMANENT, "authentication"),
        ({"AUTH": "454 not now"}, FailureClass.TRANSIENT_APP, "service_unavailable"),
        ({"MAIL": "451 busy"}, FailureClass.TRANSIENT_APP, "service_unavailable"),
        ({"MAIL": "550 not you"}, FailureClass.PERMANENT, "refused"),
        ({"RCPT": "450 full"}, FailureClass.TRANSIENT_APP, "service_unavailable"),
        ({"RCPT": "550 unknown"}, FailureClass.PERMANENT, "refused"),
        ({"DATA": "554 no"}, FailureClass.PERMANENT, "refused"),
        ({"TEXT": "452 disk full"}, FailureClass.TRANSIENT_APP, "service_unavailable"),
        ({"TEXT": "554 spam"}, FailureClass.PERMANENT, "refused"),
        ({"CONNECT": "421 too many"}, FailureClass.TRANSIENT_APP, "service_unavailable"),
        ({"CONNECT": "554 go away"}, FailureClass.PERMANENT, "refused"),
    ],
)
async def test_a_reply_decides_whether_it_is_tried_again(
    smtp: SmtpServer, replies: dict[str, str], cls: FailureClass, code: str
) -> None:
    smtp.replies = replies
    failure = await send(smtp)
    assert failure is not None
    assert (failure.cls, failure.code) == (cls, code)
    assert "localhost refused the e-mail" in failure.message
    assert "open sesame" not in failure.message
    assert smtp.mails == []


async def test_an_address_that_refuses_is_followed_by_the_next(
    smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolved(*_: object) -> tuple[str, ...]:
        return "127.0.0.2", "127.0.0.1"

    monkeypatch.setattr("cortex.runtime.outbox.email.resolve", resolved)
    assert await send(smtp) is None


async def test_mail_refused_for_one_of_two_recipients_is_not_repeated(
    smtp: SmtpServer,
) -> None:
    smtp.replies = {"RCPT li@example.org": "450 full"}
    failure = await send(smtp)
    assert [mail.to for mail in smtp.mails] == [["ana@example.org"]]
    assert failure is not None
    assert (failure.cls, "li@example.org" in failure.message) == (FailureClass.PERMANENT, True)


async def test_without_starttls_neither_the_mail_nor_the_password_is_sent(
    smtp: SmtpServer,
) -> None:
    smtp.has_starttls = False
    failure = await send(smtp)
    assert failure is not None
    assert failure.cls is FailureClass.PERMANENT
    assert {"AUTH", "MAIL"}.isdisjoint(smtp.asked)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_certificate_must_be_trusted_and_name_the_host(
    smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    if host == "localhost":
        monkeypatch.delenv("SSL_CERT_FILE")
    failure = await send(smtp, host=host)
    assert failure is not None
    assert failure.code == "tls_failed"
    assert {"AUTH", "MAIL"}.isdisjoint(smtp.asked)


@pytest.mark.parametrize("stage", ["CONNECT", "EHLO", "STARTTLS", "AUTH", "TEXT"])
async def test_a_server_that_hangs_costs_the_time_of_one_message(
    smtp: SmtpServer, stage: str
) -> None:
    smtp.hangs_at = stage
    with trio.fail_after(WITHIN_S):
        failure = await send(smtp, send_s=0.3)
    assert failure is not None
    assert (failure.cls.is_transient, "no answer within 0.3 s" in failure.message) == (True, True)


@pytest.mark.parametrize("stage", ["CONNECT", "AUTH", "DATA", "TEXT"])
async def test_a_connection_that_breaks_is_tried_again(smtp: SmtpServer, stage: str) -> None:
    smtp.closes_at = stage
    failure = await send(smtp)
    assert failure is not None
    assert failure.cls.is_transient


async def test_a_private_server_is_reached_only_if_it_is_allowed(
    smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.runtime.test_email.LOOPBACK", AllowedAddresses.parse(""))
    failure = await send(smtp)
    assert failure is not None
    assert failure.cls is FailureClass.PERMANENT
    assert smtp.asked == []
