"""E-mail by SMTP with STARTTLS, in a worker thread: Python's client blocks.

The connection goes to an address that was checked, as for requests. A message keeps its Message-ID
when it is sent again, so that mail systems can drop the second one.
"""

import smtplib
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from typing import Any, Final, Self

import attrs
import trio

from cortex.domain.errors import UnavailableError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.messages.message import Message
from cortex.domain.messages.quoting import FROM
from cortex.domain.messages.subscription import MAIL_PORT
from cortex.domain.messages.template import Template
from cortex.domain.redaction import excerpt
from cortex.domain.safe import safe
from cortex.http_client.addresses import AllowedAddresses, resolve
from cortex.http_client.secret_values import SecretPlace
from cortex.http_client.tls import trusted
from cortex.runtime.outbox.final_failures import FinalUnlessTransient

CONNECT_S: Final = 10.0
SUBJECT: Final = "[Cortex] {topic}"
SUBJECT_MAX: Final = 200
THREADS_MAX: Final = 10
CREDENTIALS: Final = frozenset({530, 534, 535, 538})
"""Replies to a client that must log in, or cannot: RFC 4954."""
PERMANENT_FROM: Final = 500
"""Replies of SMTP from here on mean that the same message will be refused again."""


@attrs.frozen(kw_only=True)
class EmailSender(FinalUnlessTransient):
    """Sends messages to fixed recipients."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    user: SecretPlace | None
    password: SecretPlace | None
    subject: Template
    text: Callable[[Message], str]
    allowed: AllowedAddresses
    limit_s: float
    limiter: trio.CapacityLimiter = attrs.field(
        factory=partial(trio.CapacityLimiter, THREADS_MAX), repr=False
    )

    @classmethod
    def made(
        cls,
        config: Mapping[str, Any],
        *,
        text: Callable[[Message], str],
        allowed: AllowedAddresses,
        limit_s: float,
    ) -> Self:
        host, _, port = config["server"].partition(":")
        place = {
            name: SecretPlace.parse(config[name]) if name in config else None
            for name in ("user", "password")
        }
        return cls(
            host=host,
            port=int(port or MAIL_PORT),
            sender=config["sender"],
            to=tuple(config["to"]),
            user=place["user"],
            password=place["password"],
            subject=Template.parse(config.get("subject", SUBJECT), source="subject"),
            text=text,
            allowed=allowed,
            limit_s=limit_s,
        )

    async def send(self, message: Message) -> Failure | None:
        letter = self._letter(message)
        with trio.fail_after(CONNECT_S):
            addresses = await resolve(self.host, self.port, self.allowed)
        work = partial(self._deliver, letter, addresses)
        # Left behind on a time-out: its own time-outs end it soon after.
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self.limiter)

    def _letter(self, message: Message) -> EmailMessage:
        subject = " ".join(self.subject.render(message.document).split())
        if FROM in message.payload:  # the first line that a person reads
            subject = f"From {safe(str(message.payload[FROM]))}: {subject}"
        letter = EmailMessage()
        letter["From"] = self.sender
        letter["To"] = ", ".join(self.to)
        letter["Subject"] = subject[:SUBJECT_MAX]
        letter["Date"] = format_datetime(message.created_at)
        letter["Message-ID"] = f"<{message.id}@{self.sender.rpartition('@')[2]}>"
        letter.set_content(self.text(message))
        return letter

    def _deliver(self, letter: EmailMessage, addresses: Sequence[str]) -> Failure | None:
        try:
            with _PinnedSmtp(self.host, self.port, addresses) as client:
                client.starttls(context=trusted())
                if self.user is not None and self.password is not None:
                    user = self.user.read_openly("SMTP user")
                    client.login(user, self.password.read("SMTP password"))
                refused = client.send_message(letter)
        except smtplib.SMTPRecipientsRefused as error:
            return _refusal(self.host, max(code for code, _ in error.recipients.values()), error)
        except smtplib.SMTPResponseException as error:
            return _refusal(self.host, error.smtp_code, error)
        except smtplib.SMTPNotSupportedError as error:
            return _refusal(self.host, PERMANENT_FROM, error)
        except smtplib.SMTPException as error:
            raise UnavailableError(f"{self.host}: {excerpt(str(error))}") from error
        if refused:  # others have got it: sending it again would send it to them twice
            code = max(code for code, _ in refused.values())
            return _refusal(self.host, max(code, PERMANENT_FROM), ", ".join(sorted(refused)))
        return None


class _PinnedSmtp(smtplib.SMTP):
    """Connects to the first of these addresses that answers; the certificate must name the host."""

    def __init__(self, host: str, port: int, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        super().__init__(host, port, timeout=CONNECT_S)

    def _get_socket(self, _: str, port: int, timeout: float) -> socket.socket:
        *others, last = self._addresses
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, port), timeout)
        return socket.create_connection((last, port), timeout)


def _refusal(host: str, code: int, why: object) -> Failure:
    is_permanent = code >= PERMANENT_FROM
    permanent = "authentication" if code in CREDENTIALS else "refused"
    return Failure(
        cls=FailureClass.PERMANENT if is_permanent else FailureClass.TRANSIENT_APP,
        code=permanent if is_permanent else "service_unavailable",
        message=f"{host} refused the e-mail: {excerpt(str(why))}",
    )
