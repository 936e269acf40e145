"""How messages are sent: one sender for each subscription, made from its settings.

A sender returns why a message was not taken, or raises; it knows nothing of attempts, leases or
breakers. The time of a call is limited by its caller.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import attrs
import orjson
import structlog
import trio

from cortex.actors.phases import is_being_cancelled
from cortex.domain.classification import code_of_status, failure_of
from cortex.domain.failure import Failure
from cortex.domain.messages.message import Message
from cortex.domain.messages.quoting import FROM, first_line, quoted
from cortex.domain.messages.subscription import PLACE, Channel, Subscription
from cortex.domain.messages.template import Template
from cortex.domain.messages.topic import RUNTIME_WORDS
from cortex.domain.safe import safe
from cortex.domain.tracing.traceparent import HEADER
from cortex.durable.message_handlers import MessageHandler
from cortex.http_client import secret_files
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster, Target
from cortex.http_client.secret_values import SecretPlace
from cortex.http_client.webhooks import signed_headers
from cortex.runtime.outbox.approval_text import APPROVAL_TOPICS, approval_text
from cortex.runtime.outbox.email import EmailSender
from cortex.runtime.outbox.final_failures import FinalUnlessTransient

SEND_S: Final = 15.0
"""For one message, all in all."""
TEXT_MAX: Final = 4_000
STATUS_GONE: Final = 410
GONE: Final = "gone"
ANSWERS: Final = frozenset(
    code for status in range(300, 600) if (code := code_of_status(status)) is not None
)
"""Codes of failures by a receiver's answer. This pod causes others, such as a secret not set."""
VALUE_MAX: Final = 200

_JSON: Final = ("Content-Type", "application/json")
_log = structlog.get_logger(__name__)


class Sender(Protocol):
    """Sends the messages of one subscription."""

    @property
    def limit_s(self) -> float:
        """For one message."""

    async def send(self, message: Message) -> Failure | None:
        """Send once; return why the receiver did not take it, None if it did."""

    def is_final(self, failure: Failure) -> bool:
        """Return whether another attempt would fail in the same way."""


@attrs.frozen(kw_only=True)
class SenderParts:
    poster: Poster
    allowed: AllowedAddresses
    unix_ms: Callable[[], int]
    handlers: Mapping[str, MessageHandler] = attrs.field(factory=dict)
    send_s: float = SEND_S
    """Limit of one attempt by any channel but a handler, unless its subscription sets one."""

    def sender(self, subscription: Subscription) -> Sender | None:
        """Return the sender of a subscription; None for a handler that this process lacks."""
        config, limit_s = subscription.config, subscription.timeout_s or self.send_s
        for place in _places_of(config):
            if place.file is not None:  # no tool opens it, also before the first message
                secret_files.declare(place.file)
        text = _text_of(config.get("template"))
        match subscription.channel:
            case Channel.LOG:
                level = config.get("level", "info")
                return LogSender(
                    text=text,
                    write=partial(getattr(_log, level), "message"),
                    limit_s=limit_s,
                )
            case Channel.WEBHOOK:
                return WebhookSender(
                    poster=self.poster,
                    unix_ms=self.unix_ms,
                    url=config["url"],
                    secrets=tuple(map(SecretPlace.parse, config["secrets"])),
                    name=subscription.name,
                    limit_s=limit_s,
                    has_fallback=subscription.fallback is not None,
                )
            case Channel.SLACK:
                return SlackSender(
                    poster=self.poster,
                    url=config["url"],
                    text=text,
                    name=subscription.name,
                    limit_s=limit_s,
                )
            case Channel.EMAIL:
                return EmailSender.made(config, text=text, allowed=self.allowed, limit_s=limit_s)
            case Channel.HANDLER:
                handler = self.handlers.get(subscription.name)
                return None if handler is None else HandlerSender(handler)


def _places_of(config: Mapping[str, Any]) -> Iterator[SecretPlace]:
    for value in config.values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str) and PLACE.fullmatch(each):
                yield SecretPlace.parse(each)


async def send_within(sender: Sender, message: Message) -> Failure | None:
    """Send once, within the time of the channel; return why that failed."""
    with trio.move_on_after(sender.limit_s):
        try:
            return await sender.send(message)
        except BaseException as error:  # noqa: ASYNC103 -- a handler's own error, tamed
            if not isinstance(error, Exception) and is_being_cancelled():
                raise
            return failure_of(error)  # noqa: ASYNC104 -- its class is what counts
    return failure_of(TimeoutError(f"no answer within {sender.limit_s:g} s"))


def default_text(message: Message) -> str:
    """Return one text with everything that a message says, for channels without a template."""
    is_approval = message.topic in APPROVAL_TOPICS
    lines = [approval_text(message)] if is_approval else list(_lines(message))
    if message.escalated_from is not None:
        lines.append(f"{message.escalated_from} could not be reached")
    return "\n".join(lines)[:TEXT_MAX]


def _lines(message: Message) -> Iterator[str]:
    """Yield the author and the quoted text first, if a person is to read one; then the rest."""
    payload = message.payload
    written = [name for name in ("title", "text") if isinstance(payload.get(name), str)]
    if FROM in payload:
        yield first_line(str(payload[FROM]))
    else:
        yield f"{message.topic} ({message.tenant})"
    for name in written:
        yield quoted(safe(payload[name], newline="\n"))
    if FROM in payload:
        yield f"topic: {message.topic}"
    for name, value in payload.items():
        if name not in {*written, FROM}:
            yield f"{safe(name)}: {_shown(value)}"


def _shown(value: Any) -> str:
    text = safe(value if isinstance(value, str) else orjson.dumps(value).decode())
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"


def _text_of(template: str | None) -> Callable[[Message], str]:
    if template is None:
        return default_text
    parsed = Template.parse(template, source="template")

    def text(message: Message) -> str:
        # What the runtime announces keeps to its lines, whatever stands in an error message.
        is_runtime = message.topic.partition(".")[0] in RUNTIME_WORDS
        rendered = parsed.render(message.document, newline=" " if is_runtime else "\n")
        if FROM in message.payload:
            rendered = f"{first_line(str(message.payload[FROM]))}\n{quoted(rendered)}"
        return rendered[:TEXT_MAX]

    return text


@attrs.frozen(kw_only=True)
class LogSender(FinalUnlessTransient):
    """Writes messages to the pod's log."""

    text: Callable[[Message], str]
    write: Callable[..., object]
    limit_s: float

    async def send(self, message: Message) -> Failure | None:
        self.write(topic=message.topic, id=str(message.id), text=self.text(message))
        return None


@attrs.frozen(kw_only=True)
class WebhookSender:
    """Posts messages as the Standard Webhooks specification describes, signed."""

    poster: Poster
    unix_ms: Callable[[], int]
    url: str
    secrets: tuple[SecretPlace, ...]
    name: str
    limit_s: float
    has_fallback: bool = False

    async def send(self, message: Message) -> Failure | None:
        body = orjson.dumps(
            {
                "type": message.topic,
                "timestamp": message.created_at,
                "data": message.payload,
                "key": message.key,
                "tenant": message.tenant,
                "headers": message.headers,
                "escalated_from": message.escalated_from,
            }
        )
        signed = signed_headers(
            str(message.id),
            body,
            timestamp=self.unix_ms() // 1000,
            secrets=[place.read(f"webhook {self.name}"[:64]) for place in self.secrets],
        )
        headers = [_JSON, *signed.items()]
        if message.trace is not None:
            headers.append((HEADER, message.trace))
        target = _target(self.url, name=f"URL of {self.name}")
        answer = await self.poster.post(target, headers, body)
        failure = answer.failure(target)
        if failure is None or answer.status != STATUS_GONE:
            return failure
        return attrs.evolve(failure, code=GONE)

    def is_final(self, failure: Failure) -> bool:
        """Any answer but 410 may be due to a deployment or a mistake at the receiver.

        With a fallback, a message whose answer would stay the same goes there at once.
        """
        if failure.cls.is_transient:
            return False
        return self.has_fallback or failure.code not in ANSWERS


@attrs.frozen(kw_only=True)
class SlackSender(FinalUnlessTransient):
    """Posts messages to an incoming webhook of Slack, or of what understands the same."""

    poster: Poster
    url: str
    text: Callable[[Message], str]
    name: str
    limit_s: float

    async def send(self, message: Message) -> Failure | None:
        target = _target(self.url, name=f"slack {self.name}")
        given = {"payload": message.payload, "tenant": message.tenant, "key": message.key}
        shown = attrs.evolve(message, **_without_markup(given))
        body = orjson.dumps({"text": self.text(shown)})
        answer = await self.poster.post(target, [_JSON], body)
        return answer.failure(target)


_parsed = lru_cache(maxsize=256)(Target.parse)


def _target(url: str, *, name: str) -> Target:
    """Return where to post: a URL, or the one that stands where a place says."""
    if PLACE.fullmatch(url):
        url = SecretPlace.parse(url).read(name[:64]).strip()
    return _parsed(url)


def _without_markup(value: Any) -> Any:
    """Return a payload that calls nobody and hides no link: Slack reads <…> as commands."""
    if isinstance(value, str):
        return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if isinstance(value, dict):
        return {_without_markup(name): _without_markup(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_markup(each) for each in value]
    return value


@attrs.frozen
class HandlerSender(FinalUnlessTransient):
    """Calls a handler of the application."""

    handler: MessageHandler

    @property
    def limit_s(self) -> float:
        return self.handler.timeout_s

    async def send(self, message: Message) -> Failure | None:
        await self.handler(message)
        return None
