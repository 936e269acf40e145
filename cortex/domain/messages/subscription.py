"""Subscriptions: who gets which messages, by which channel, as people write them in a file.

    subscriptions:
      - name: billing
        topic: order.*
        filter: {tenant: acme}
        channel: webhook
        url: https://billing.example/hooks/cortex
        secrets: [env:BILLING_SECRET]

A file names secrets by their places, `env:NAME` or `file:/PATH`; it never holds them.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.messages.template import Template
from cortex.domain.messages.topic import check_pattern

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
SECRETS_MAX: Final = 2
"""While a secret is being changed, messages are signed with the old and the new one."""
RECIPIENTS_MAX: Final = 50
PLACE: Final = re.compile(r"env:[A-Z_][A-Z0-9_]{0,127}|file:/[^\0-\x1f\x7f]{1,1000}", re.ASCII)
_URL_PLACE: Final = "put the URL where the pods find it, and name that: env:NAME or file:/full/path"
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|api_?key|^key$|^sig$|signature", re.IGNORECASE
)
_ADDRESS: Final = re.compile(r"[^\s@<>,;\"\0-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,253}")
_SERVER: Final = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?", re.ASCII)


class Channel(StrEnum):
    """How the messages of a subscription are sent."""

    LOG = "log"
    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"
    HANDLER = "handler"


@attrs.frozen(kw_only=True)
class Subscription:
    """One subscription; `config` holds the settings of its channel, checked."""

    name: str
    topic: str
    channel: Channel = attrs.field(converter=Channel)
    filter: dict[str, Any] = attrs.field(factory=dict)
    config: dict[str, Any] = attrs.field(factory=dict)
    is_heavy: bool = False

    @property
    def breaker(self) -> str:
        """The name of the circuit breaker before its channel."""
        return f"notify:{self.name}"

    @property
    def has_breaker(self) -> bool:
        """Whether its channel calls something that may be down."""
        return self.channel in (Channel.WEBHOOK, Channel.SLACK, Channel.EMAIL)


def parse_subscription(given: object, *, source: str) -> Subscription:
    """Check one subscription of a file. Raises `UsageError` that names the file and the field."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{source}: a subscription is a mapping, with name, topic and channel")
    values = dict(given)
    name = values.pop("name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{source}: name is {str(name)[:120]!r}",
            hint="lower-case letters, digits, '.', '_' and '-', at most 100",
        )
    source = f"{source}: subscription {name}"
    topic = _topic(values.pop("topic", None), source)
    chosen = values.pop("channel", None)
    if not isinstance(chosen, str) or chosen not in _CHECKS:
        raise UsageError(
            f"{source}: channel is {str(chosen)[:80]!r}", hint="one of " + ", ".join(_CHECKS)
        )
    wanted = values.pop("filter", {})
    if not isinstance(wanted, dict):
        raise UsageError(f"{source}: filter is not a mapping", hint="such as {tenant: acme}")
    is_heavy = values.pop("heavy", False)
    if not isinstance(is_heavy, bool):
        raise UsageError(f"{source}: heavy is {is_heavy!r}, not true or false")
    checks, required = _CHECKS[chosen]
    for key in values:
        if key not in checks:
            close = difflib.get_close_matches(str(key), checks, n=1)
            raise UsageError(
                f"{source}: unknown key {str(key)[:80]!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"there are {', '.join(checks)}",
            )
    for key in required:
        if key not in values:
            raise UsageError(f"{source}: {key} is missing: channel {chosen} needs it")
    config = {key: checks[key](value, f"{source}: {key}") for key, value in values.items()}
    return Subscription(
        name=name, topic=topic, channel=chosen, filter=wanted, config=config, is_heavy=is_heavy
    )


def parse_subscriptions(given: object, *, source: str) -> list[Subscription]:
    """Check a document of a file: a list under `subscriptions`. Raises `UsageError`."""
    document = given if isinstance(given, Mapping) else {}
    rows = document.get("subscriptions")
    if not isinstance(rows, list) or len(document) != 1:
        raise UsageError(f"{source}: expected `subscriptions:` with a list, and nothing else")
    found: dict[str, Subscription] = {}
    for row in rows:
        each = parse_subscription(row, source=source)
        if each.channel is Channel.HANDLER:
            raise UsageError(
                f"{source}: subscription {each.name}: handlers are declared in code",
                hint=f'@handler("{each.topic}") in the app; its pods subscribe it',
            )
        if found.setdefault(each.name, each) is not each:
            raise UsageError(f"{source}: subscription {each.name} is given twice")
    return list(found.values())


def _topic(value: object, source: str) -> str:
    if not isinstance(value, str):
        shown = "missing" if value is None else f"{str(value)[:80]!r}, not a text"
        raise UsageError(f"{source}: topic is {shown}", hint="such as job.failed or order.*")
    return check_pattern(value, source=source)


def _text(value: object, source: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{source} is not a text")
    return Template.parse(value, source=source).text


def _line(value: object, source: str) -> str:
    text = _text(value, source)
    if not text.isprintable():
        raise UsageError(f"{source} is not one line")
    return text


def _place(value: object, source: str) -> str:
    if not isinstance(value, str) or not PLACE.fullmatch(value):
        # Without the text: it may be the secret itself.
        raise UsageError(
            f"{source} is not the place of a secret", hint="env:NAME or file:/full/path"
        )
    return value


def _places(value: object, source: str) -> list[str]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= SECRETS_MAX:
        raise UsageError(f"{source}: {len(given)} places, at most {SECRETS_MAX}")
    return [_place(each, source) for each in given]


def _url(value: object, source: str) -> str:
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_fine = False
    if not is_fine or not text.isascii() or not text.isprintable() or " " in text:
        # Its beginning may be a password.
        shown = "not a URL" if "@" in text else f"{str(value)[:120]!r}, not a URL"
        raise UsageError(f"{source} is {shown}", hint="such as https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{source} contains a password", hint=_URL_PLACE)
    for name in parse_qs(parts.query, keep_blank_values=True):
        if _SECRET_NAME.search(name):
            raise UsageError(f"{source} has a secret in {name[:80]!r}", hint=_URL_PLACE)
    return text


def _url_or_place(value: object, source: str) -> str:
    if isinstance(value, str) and PLACE.fullmatch(value):
        return value
    return _url(value, source)


def _secret_url(value: object, source: str) -> str:
    """Check the place of an incoming webhook's URL, with which everybody could post."""
    if not isinstance(value, str) or not PLACE.fullmatch(value):
        raise UsageError(f"{source} is a secret, which no file may contain", hint=_URL_PLACE)
    return value


def _server(value: object, source: str) -> str:
    if not isinstance(value, str) or not _SERVER.fullmatch(value):
        raise UsageError(f"{source} is {str(value)[:80]!r}", hint="such as smtp.example.org:587")
    return value


def _address(value: object, source: str) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise UsageError(f"{source} is {str(value)[:120]!r}", hint="such as ops@example.org")
    return value


def _addresses(value: object, source: str) -> list[str]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= RECIPIENTS_MAX:
        raise UsageError(f"{source}: {len(given)} addresses, at most {RECIPIENTS_MAX}")
    return [_address(each, source) for each in given]


def _level(value: object, source: str) -> str:
    if value not in ("info", "warning", "error"):
        raise UsageError(f"{source} is {str(value)[:80]!r}", hint="info, warning or error")
    return str(value)


Check = Callable[[object, str], Any]

_CHECKS: Final[Mapping[str, tuple[Mapping[str, Check], tuple[str, ...]]]] = {
    "log": ({"template": _text, "level": _level}, ()),
    "webhook": ({"url": _url_or_place, "secrets": _places}, ("url", "secrets")),
    "slack": ({"url": _secret_url, "template": _text}, ("url",)),
    "email": (
        {
            "server": _server,
            "sender": _address,
            "to": _addresses,
            "user": _place,
            "password": _place,
            "subject": _line,
            "template": _text,
        },
        ("server", "sender", "to"),
    ),
    "handler": ({}, ()),
}
"""Per channel the keys of its settings, and those that are required."""
