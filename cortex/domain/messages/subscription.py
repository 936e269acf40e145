"""Subscriptions: who gets which messages, by which channel, as people write them in a file.

    subscriptions:
      - name: billing
        topic: order.*
        tenant: acme
        channel: webhook
        url: https://billing.example/hooks/cortex
        secrets: [env:BILLING_SECRET]
        fallback: ops

A file names secrets by their places, `env:NAME` or `file:/PATH`; it never holds them.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs

from cortex.domain.approvals.approval import Risk
from cortex.domain.errors import UsageError
from cortex.domain.messages.message import AT_ONCE_OR_SOON, FOR_DAYS, Redelivery
from cortex.domain.messages.payload_keys import (
    PAYLOAD_KEYS,
    topics_after,
    topics_of,
    topics_without,
)
from cortex.domain.messages.template import Template
from cortex.domain.messages.topic import RISKLESS_WORDS, check_pattern

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
SECRETS_MAX: Final = 2
"""While a secret is being changed, messages are signed with the old and the new one."""
RECIPIENTS_MAX: Final = 50
TENANT_MAX: Final = 100
TIMEOUT_MAX_S: Final = 300
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


MAIL_PORT: Final = 587
"""The port of a mail server that is named without one."""


@attrs.frozen(kw_only=True)
class Subscription:
    """One subscription; `config` holds the settings of its channel, checked."""

    name: str
    topic: str
    channel: Channel = attrs.field(converter=Channel)
    filter: dict[str, Any] = attrs.field(factory=dict)
    config: dict[str, Any] = attrs.field(factory=dict)
    is_heavy: bool = False
    tenant: str | None = None
    """It gets only messages of this tenant; None: of all."""
    min_risk: Risk | None = attrs.field(default=None, converter=attrs.converters.optional(Risk))
    """It gets only messages that name a risk, at least this one; None: all."""
    fallback: str | None = None
    """The subscription that gets what could not be sent; None: nobody does."""
    attempts: int | None = None
    """Attempts of a message; None: see `redelivery`."""
    timeout_s: int | None = None
    """Limit of one attempt; None: the default of the channel."""

    @property
    def redelivery(self) -> Redelivery:
        """The attempts of a message: over days if it goes outside and no fallback gets it."""
        is_outside = self.has_breaker and self.fallback is None
        default = FOR_DAYS if is_outside else AT_ONCE_OR_SOON
        return default if self.attempts is None else attrs.evolve(default, attempts=self.attempts)

    @property
    def breaker(self) -> str:
        """The name of the circuit breaker before its channel."""
        return f"notify:{self.name}"

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Host and port that its channel calls; None: it calls none, or a secret holds the URL."""
        if self.channel is Channel.EMAIL:
            host, _, port = self.config["server"].partition(":")
            return host, int(port or MAIL_PORT)
        url = self.config.get("url", "")
        if not url or PLACE.fullmatch(url):
            return None
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def has_breaker(self) -> bool:
        """Whether its channel calls something that may be down."""
        return self.channel in (Channel.WEBHOOK, Channel.SLACK, Channel.EMAIL)


Where = Callable[[tuple[str | int, ...]], str]
"""Returns where the value of a path is written: a file and a line."""


def parse_subscription(
    given: object, *, where: Where, path: tuple[str | int, ...] = ()
) -> Subscription:
    """Check one subscription of a file. Raises `UsageError` that says where, and the field."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{where(path)}: a subscription is a mapping, with name, topic and channel"
        )
    values = dict(given)
    name = values.pop("name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{where((*path, 'name'))}: name is {str(name)[:120]!r}",
            hint="lower-case letters, digits, '.', '_' and '-', at most 100",
        )

    def source(key: str) -> str:
        return f"{where((*path, key))}: subscription {name}"

    topic = _topic(values.pop("topic", None), source("topic"))
    chosen = values.pop("channel", None)
    if not isinstance(chosen, str) or chosen not in _CHECKS:
        raise UsageError(
            f"{source('channel')}: channel is {str(chosen)[:80]!r}",
            hint="one of " + ", ".join(_CHECKS),
        )
    wanted = values.pop("filter", {})
    if not isinstance(wanted, dict):
        raise UsageError(f"{source('filter')}: filter is not a mapping", hint="such as {job: ID}")
    is_heavy = values.pop("heavy", False)
    if not isinstance(is_heavy, bool):
        raise UsageError(f"{source('heavy')}: heavy is {is_heavy!r}, not true or false")
    terms = _terms_of(values, source, topic=topic, name=name)
    config = _config_of(values, source, channel=chosen)
    _check_keys(config, source, topic=topic, is_filtered=bool(wanted))
    return Subscription(
        name=name,
        topic=topic,
        channel=chosen,
        filter=wanted,
        config=config,
        is_heavy=is_heavy,
        **terms,
    )


def _terms_of(
    values: dict[str, Any], source: Callable[[str], str], *, topic: str, name: str
) -> dict[str, Any]:
    """Take the keys that any channel may have from `values`, and check them."""
    terms = {
        key: check(values.pop(key), f"{source(key)}: {key}")
        for key, check in _TERMS.items()
        if key in values
    }
    if "min_risk" in terms and topic.partition(".")[0] in RISKLESS_WORDS:
        raise UsageError(
            f"{source('min_risk')}: min_risk is given, but no message of {topic} names a risk",
            hint="approval.* and what jobs send by send_notification do",
        )
    if terms.get("fallback") == name:
        raise UsageError(f"{source('fallback')}: fallback is the subscription itself")
    return terms


def _config_of(
    values: Mapping[str, Any], source: Callable[[str], str], *, channel: str
) -> dict[str, Any]:
    """Check the keys of a channel."""
    checks, required = _CHECKS[channel]
    for key in values:
        if key not in checks:
            close = difflib.get_close_matches(str(key), [*checks, *_TERMS], n=1)
            raise UsageError(
                f"{source(key)}: unknown key {str(key)[:80]!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"there are {', '.join(checks)}",
            )
    for key in required:
        if key not in values:
            raise UsageError(f"{source(key)}: {key} is missing: channel {channel} needs it")
    return {key: checks[key](value, f"{source(key)}: {key}") for key, value in values.items()}


def _check_keys(
    config: Mapping[str, Any], source: Callable[[str], str], *, topic: str, is_filtered: bool
) -> None:
    """Refuse a template that no message of its topic can fill in, as far as that is known."""
    matched = topics_of(topic)
    topics = [*matched, *topics_after(matched)]
    for field in _TEMPLATES & config.keys() if topics else ():
        template = Template.parse(config[field], source=source(field))
        for key, has_default in template.payload_keys():
            lacking = topics_without(key, topics)
            # As the fallback of another subscription it gets messages of that one's topics, too.
            is_elsewhere = len(topics_without(key, [*PAYLOAD_KEYS])) < len(PAYLOAD_KEYS)
            if lacking == topics and not (has_default and is_elsewhere):
                raise UsageError(
                    f"{source(field)}: {field}: no message of {topic} has {{payload.{key}}}",
                    hint=_nearest_key(key, topics),
                )
            # A filter may select those messages alone that have it.
            is_certain = is_filtered and not {*lacking} - {*matched}
            if lacking and not has_default and not is_certain:
                raise UsageError(
                    f"{source(field)}: {field}: messages of {lacking[0]} have no {{payload.{key}}}",
                    hint=f"give a default: {{payload.{key}|none}}",
                )


def _nearest_key(key: str, topics: Sequence[str]) -> str:
    known = sorted(set().union(*(PAYLOAD_KEYS[topic] for topic in topics)))
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {{payload.{close[0]}}}?"
    return f"its payload has {', '.join(known)}"


def parse_subscriptions(given: object, *, where: Where) -> list[Subscription]:
    """Check a document of a file: a list under `subscriptions`. Raises `UsageError`."""
    document = given if isinstance(given, Mapping) else {}
    rows = document.get("subscriptions")
    if not isinstance(rows, list) or len(document) != 1:
        raise UsageError(f"{where(())}: expected `subscriptions:` with a list, and nothing else")
    found: dict[str, Subscription] = {}
    for index, row in enumerate(rows):
        path = ("subscriptions", index)
        each = parse_subscription(row, where=where, path=path)
        if each.channel is Channel.HANDLER:
            raise UsageError(
                f"{where((*path, 'channel'))}: subscription {each.name}: handlers are declared "
                "in code",
                hint=f'@handler("{each.topic}") in the app; its pods subscribe it',
            )
        if found.setdefault(each.name, each) is not each:
            raise UsageError(f"{where((*path, 'name'))}: subscription {each.name} is given twice")
    return list(found.values())


def fallbacks_first(
    wanted: Sequence[Subscription],
    existing: Iterable[Subscription],
    *,
    places: Mapping[str, str],
) -> list[Subscription]:
    """Return subscriptions in an order in which each may be written; `existing`: those there are.

    `places`: where the fallback of a subscription of this name is written, a file and a line.
    Raises `UsageError` for a fallback that does not exist, and for one that leads back.
    """

    def source(name: str) -> str:
        return f"{places[name]}: subscription {name}"

    by_name = {each.name: each for each in (*existing, *wanted)}
    ordered: dict[str, Subscription] = {}
    for each in sorted(wanted, key=lambda one: one.name):
        chain = [each.name]
        while (name := by_name[chain[-1]].fallback) is not None:
            if name not in by_name:
                close = difflib.get_close_matches(name, by_name, n=1)
                raise UsageError(
                    f"{source(chain[-1])}: fallback {name!r} does not exist",
                    hint=f"did you mean {close[0]!r}?" if close else "apply it, too",
                )
            if name in chain:
                raise UsageError(
                    f"{source(each.name)}: its fallbacks lead back: " + " → ".join((*chain, name))
                )
            chain.append(name)
        mine = {one.name for one in wanted}
        for name in reversed(chain):
            if name in mine:
                ordered.setdefault(name, by_name[name])
    return list(ordered.values())


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
        parts, is_fine = urlsplit(""), False
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


def _tenant(value: object, source: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= TENANT_MAX:
        raise UsageError(f"{source} is {str(value)[:120]!r}", hint="the name of one tenant")
    return value


def _risk(value: object, source: str) -> Risk:
    try:
        return Risk(str(value).upper())
    except ValueError:
        known = ", ".join(Risk)
        raise UsageError(f"{source} is {str(value)[:80]!r}", hint=f"one of {known}") from None


def _name(value: object, source: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise UsageError(f"{source} is {str(value)[:120]!r}", hint="the name of a subscription")
    return value


def _level(value: object, source: str) -> str:
    if value not in ("info", "warning", "error"):
        raise UsageError(f"{source} is {str(value)[:80]!r}", hint="info, warning or error")
    return str(value)


def _attempts(value: object, source: str) -> int:
    return _whole(value, source, most=FOR_DAYS.attempts)


def _timeout_s(value: object, source: str) -> int:
    return _whole(value, source, most=TIMEOUT_MAX_S)


def _whole(value: object, source: str, *, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UsageError(f"{source} is {str(value)[:80]!r}", hint=f"a whole number, 1 to {most}")
    return value


Check = Callable[[object, str], Any]

_TERMS: Final[Mapping[str, Check]] = {
    "tenant": _tenant,
    "min_risk": _risk,
    "fallback": _name,
    "attempts": _attempts,
    "timeout_s": _timeout_s,
}
"""Keys of any channel that are fields of a subscription."""

_TEMPLATES: Final = frozenset({"subject", "template"})

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
