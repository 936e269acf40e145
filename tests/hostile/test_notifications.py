"""What an agent writes to people passes for nobody else's text, in any channel."""

import base64
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
import trio
from structlog.testing import capture_logs

from cortex.domain.errors import InvalidValueError
from cortex.domain.messages.message import Message
from cortex.domain.messages.quoting import RESERVED
from cortex.domain.messages.subscription import parse_subscription
from cortex.durable.notifying import Notification
from cortex.http_client.poster import Poster
from cortex.runtime.outbox.approval_text import approval_text
from cortex.runtime.outbox.email import EmailSender
from cortex.runtime.outbox.senders import SenderParts
from tests.support.eventually import WITHIN_S
from tests.support.hostile import LINES, treacherous
from tests.support.knowing import forget_secrets
from tests.support.servers.web_server import WebServer, open_server

JOB = "019a0000-0000-7000-8000-000000000007"
FIRST = f"From agent clerk, job {JOB}, quoted:"
CHANNELS = ("log", "slack", "email", "webhook")
TEMPLATES = (None, "{payload.title}: {payload.text}", "now!\n{payload.text}\n{payload.data|none}")
SETTINGS: dict[str, dict[str, Any]] = {
    "log": {},
    "slack": {"url": "env:CHAT_URL"},
    "email": {
        "server": "smtp.example:587",
        "sender": "cortex@example.org",
        "to": ["ana@example.org"],
        "subject": "{payload.title}",
    },
    "webhook": {"secrets": ["env:HOOK"]},
}


def a_message(**written: Any) -> Message:
    payload = Notification(**written).payload(job=JOB, tenant="default", agent="clerk")
    return Message(
        id=UUID(int=1),
        attempt=1,
        topic="notification.info",
        payload=payload,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


async def received(channel: str, server: WebServer, message: Message, template: str | None) -> str:
    """Return everything that a person reads."""
    config = {"name": "x", "topic": "*", "channel": channel} | SETTINGS[channel]
    if channel == "webhook":
        config["url"] = server.url()
    elif template is not None:
        config["template"] = template
    poster = Poster(server.allowed)
    parts = SenderParts(poster=poster, allowed=server.allowed, unix_ms=lambda: 0)
    sender = parts.sender(parse_subscription(config, where=lambda _: "test"))
    assert sender is not None
    if isinstance(sender, EmailSender):
        letter = sender._letter(message)
        return str(letter.get_content())
    with capture_logs() as lines, trio.fail_after(WITHIN_S):
        assert await sender.send(message) is None
        await poster.aclose()
    if channel == "log":
        return str(lines[0]["text"])
    body = orjson.loads(server.asked[-1].encode("latin-1").partition(b"\r\n\r\n")[2])
    if channel == "slack":
        return str(body["text"])
    data = body["data"]
    return f"From {data['from']}, quoted:\n" + "\n".join(
        f"> {line}" for name in ("title", "text") for line in data[name].split("\n")
    )


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    forget_secrets(monkeypatch)
    server = await open_server(nursery)
    monkeypatch.setenv("CHAT_URL", server.url())
    monkeypatch.setenv("HOOK", base64.b64encode(bytes(range(32))).decode())
    return server


TEXTS = {
    "lines of its own": "hello\n\nHIGH: refund awaits your click\npage: https://evil.example/x",
    "other line ends": "a\rb\x0bc\x85d\u2028e\u2029f",
    "terminal": LINES,
    "slack link": "<https://evil.example|click here>",
    "slack call": "<!channel> <@U123> &lt;x&gt;",
    "markdown link": "[page](https://evil.example/x)",
    "html": '<a href="https://evil.example">page</a>',
    "first line": FIRST,
    "end of quote": "> \n>\nFrom Cortex:",
}
LINKS = (
    "https://evil.example/a?b=c",
    "HTTPS://EVIL.EXAMPLE",
    "http://user:pass@evil.example:80/",
    "//evil.example/x",
    "www.evil.example",
    "evil.example",
    "evil.zip",
    "\u0939\u093f\u0928\u094d\u0926\u0940.com",
    "evil.\u092d\u093e\u0930\u0924",
    "b\u00fccher.example",
    "evil\u3002example",
    "evil\uff0eexample",
    "a@evil.example",
    "mailto:a@evil.example",
    "slack://channel?id=1",
    "http://127.0.0.1:8080/",
    "http://[::1]/",
    "https://evil\u200b.example",
    "file:///etc/passwd",
)
CLICKABLE = re.compile(
    r"\w://|//[^\s/]*\w\.\w|"
    r"(?:[^\W_]|[^\x00-\x7f\s])[.\u3002\uff0e\uff61][^\W\d_](?:[^\W\d_]|[^\x00-\x7f\s])"
)
"""What chats and mail programs turn into a link."""


def without_topic(shown: str) -> str:
    """The topic has dots and no capital letters, and is checked when the job is submitted."""
    return shown.replace("topic: notification.info", "")


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("template", TEMPLATES, ids=str)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_is_quoted_under_its_author(
    server: WebServer, channel: str, template: str | None, text: str
) -> None:
    message = a_message(title=text[:200], text=text, data={"x": text[:500]})
    shown = await received(channel, server, message, template)
    assert treacherous(shown) == []
    first, *rest = shown.splitlines()
    assert first == FIRST
    ours = (">", "topic: ", "risk: ", "data: ", "job: ", "tenant: ", "agent: ")
    assert [line for line in rest if not line.startswith(ours)] == []
    assert CLICKABLE.findall(without_topic(shown)) == []
    assert "<" not in shown or channel != "slack"


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("link", LINKS)
async def test_a_link_is_text(server: WebServer, channel: str, link: str) -> None:
    message = a_message(title=link, text=f"see ({link}).", data={link: [link]})
    shown = await received(channel, server, message, None)
    assert CLICKABLE.findall(without_topic(shown)) == []


def test_the_subject_of_a_mail_names_the_author_first() -> None:
    config = {"name": "x", "topic": "*", "channel": "email"} | SETTINGS["email"]
    parts: Any = SenderParts(poster=None, allowed=None, unix_ms=lambda: 0)  # type: ignore[arg-type]
    sender = parts.sender(parse_subscription(config, where=lambda _: "test"))
    title = "Your bank: act now\r\nBcc: eve@evil.example\u2028https://evil.example"
    letter = sender._letter(a_message(title=title, text="x"))
    assert letter["Subject"].startswith(f"From agent clerk, job {JOB}: Your bank: act now")
    assert "Bcc" not in letter
    assert CLICKABLE.findall(letter["Subject"]) == []


IMITATIONS = (
    *RESERVED,
    "Approval needed: pay 400 euros",
    "HIGH: pay waits  for\na decision",
    "WHO DECIDES: one person",
    "a\u0440\u0440roval n\u0435\u0435ded",  # letters of Cyrillic
    "\u0391pproval needed",  # of Greek
    "app\u200broval ne\u00adeded",
    "\uff41\uff50\uff50\uff52\uff4f\uff56\uff41\uff4c \uff4e\uff45\uff45\uff44\uff45\uff44",
    "a\u0301pproval needed",
    "approval-needed",
    "*approval* _needed_",
    "terminal: cortex approvals show 7f3c",
    "https://cortex.example/approvals/7f3c",
    "approval.requested (default)",
    "job.failed (default)",
    "breaker.opened (default)",
)


@pytest.mark.parametrize("place", ["title", "text", "data", "key", "item"])
@pytest.mark.parametrize("words", IMITATIONS)
def test_words_of_the_runtime_are_refused(words: str, place: str) -> None:
    written: dict[str, Any] = {"text": "hello"}
    match place:
        case "data":
            written["data"] = {"x": {"y": words}}
        case "key":
            written["data"] = {words: 1}
        case "item":
            written["data"] = {"x": [1, [words]]}
        case _:
            written[place] = words
    with pytest.raises(InvalidValueError, match="words of Cortex's own messages"):
        Notification(**written)


@pytest.mark.parametrize(
    "text",
    [
        "The nightly import failed: 3 of 10 files are late.",
        "I approve of the design; a decision about Tuesday is still needed.",
        "The approval of the invoice took 3 days.",
        "Version 1.2.3 costs 48.0 euros, i.e. a lot.",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert a_message(text=text).payload["text"] == text


def test_a_call_to_be_approved_brings_no_link_of_its_own() -> None:
    payload = {
        "approval": "7f3c",
        "risk": "HIGH",
        "people": 1,
        "job": JOB,
        "tenant": "default",
        "tool": "pay",
        "status": "PENDING",
        "expires_at": "2026-01-01T00:00:00+00:00",
        "call": 'pay(note="x\npage: https://evil.example/approvals/7f3c")',
        "reason": "see https://evil.example",
        "link": "https://cortex.example.org/approvals/7f3c",
    }
    message = Message(
        id=UUID(int=1),
        attempt=1,
        topic="approval.requested",
        payload=payload,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    lines = approval_text(message).splitlines()
    assert [line for line in lines if CLICKABLE.search(line)] == [f"page: {payload['link']}"]
    assert [line for line in lines if line.startswith("page:")] == [f"page: {payload['link']}"]


@pytest.mark.parametrize("template", [None, "{payload.job} failed: {payload.error.message}"])
def test_an_error_message_adds_no_lines_to_the_runtimes(template: str | None) -> None:
    config = {"name": "x", "topic": "job.failed", "channel": "log"}
    config |= {} if template is None else {"template": template}
    parts: Any = SenderParts(poster=None, allowed=None, unix_ms=lambda: 0)  # type: ignore[arg-type]
    sender = parts.sender(parse_subscription(config, where=lambda _: "test"))
    error = {"message": f"late\npage: here {LINES}", "code": "x"}
    message = Message(
        id=UUID(int=1),
        attempt=1,
        topic="job.failed",
        payload={"job": JOB, "error": error, "text": "late\npage: here"},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    shown = sender.text(message)
    assert treacherous(shown) == []
    assert not any(line.startswith("page:") for line in shown.splitlines())
