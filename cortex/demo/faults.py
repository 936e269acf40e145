"""A script with faults by rules, laid over another script; `fault_file` describes the rules.

A rule has two halves: the calls that it matches, and the one outcome that they get.
"""

from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final

import attrs
from attrs import field, frozen

from cortex.demo.script import Call, Fault, Refusal, Reply, Script
from cortex.demo.script_tools import ToolCall, tool_blocks
from cortex.durable.structuring import UnfitError

STATUS_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The API's error type for a status; "api_error" for the others."""

# Fields that are only valid together with another one.
_NEEDS: Final = {
    "error_code": "status",
    "message": "status",
    "retry_after": "status",
    "retry_after_date_s": "status",
    "body": "status",
    "fault_after": "fault",
    "ping_s": "fault",
    "fault_s": "fault",
}
_OF_ANSWERS: Final = ("fault", "text", "tools", "stop_reason", "chunks", "delay_s")
_OUTCOMES: Final = ("status", *_OF_ANSWERS, "first_delay_s")


def _within(low: float, high: float) -> Any:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
        if value is not None and not low <= value <= high:
            raise UnfitError(
                f"must be from {low:g} to {high:g}, got {value}", path=(attribute.name,)
            )

    return check


def _header(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        raise UnfitError(f"must fit into a header, got {value!r}", path=(attribute.name,))


def _span(_: object, attribute: "attrs.Attribute[Any]", value: int | str | None) -> None:
    if value is not None and _parse_span(value) is None:
        raise UnfitError(f'must be like 3, "1-3" or "7-", got {value!r}', path=(attribute.name,))


_SECONDS: Final = _within(0, 1e9)
_COUNT: Final = _within(0, 1e9)


@frozen(kw_only=True)
class Rule:
    """One rule of a fault file; the head of `fault_file` describes its fields."""

    name: str = ""
    model: str = "*"
    prompt: str = ""
    calls: int | str | None = field(default=None, validator=_span)
    after_s: float | None = field(default=None, validator=_SECONDS)
    for_s: float | None = field(default=None, validator=_SECONDS)
    share: float = field(default=1.0, validator=_within(0, 1))
    times: int | None = field(default=None, validator=_within(1, 1e9))

    status: int | None = field(default=None, validator=_within(300, 599))
    error_type: str | None = None
    error_code: str | None = None
    message: str | None = None
    retry_after: int | str | None = field(default=None, validator=_header)
    retry_after_date_s: float | None = field(default=None, validator=_within(-1e8, 1e8))
    body: str | None = None

    fault: Fault | None = None
    fault_after: int | None = field(default=None, validator=_COUNT)
    ping_s: float | None = field(default=None, validator=_within(0.001, 1e9))
    fault_s: float | None = field(default=None, validator=_SECONDS)

    text: str | None = None
    tools: list[ToolCall] | None = None
    stop_reason: str | None = None
    chunks: int | None = field(default=None, validator=_within(1, 1e6))
    delay_s: float | None = field(default=None, validator=_SECONDS)
    first_delay_s: float | None = field(default=None, validator=_SECONDS)

    def __attrs_post_init__(self) -> None:
        given = {each for each in (*_NEEDS, *_OUTCOMES) if getattr(self, each) is not None}
        if not given & set(_OUTCOMES):
            raise UnfitError(f"has no outcome: give one of {', '.join(_OUTCOMES)}")
        if self.status is not None and (both := sorted(given & set(_OF_ANSWERS))):
            raise UnfitError("cannot be combined with status", path=(both[0],))
        for each, needed in _NEEDS.items():
            if each in given and needed not in given:
                raise UnfitError(f"means nothing without {needed}", path=(each,))
        if self.error_type and self.status is None and self.fault is not Fault.ERROR_EVENT:
            raise UnfitError("means nothing without status or error_event", path=("error_type",))

    def meets(self, call: Call, *, strikes: int, first_s: float | None, salt: int) -> bool:
        """Return whether the rule matches, after `strikes` matches, the first at `first_s`."""
        first, last = _parse_span(self.calls) or (1, None)
        since_s = call.at_s if first_s is None else first_s
        if self.after_s is not None:
            since_s = self.after_s
        # Calls come here in another order than they began in: without `after_s`, one that began
        # before the first match belongs to the span, too.
        return (
            (self.times is None or strikes < self.times)
            and fnmatchcase(call.model, self.model)
            and call.user_text(0).startswith(self.prompt)
            and first <= call.ordinal
            and (last is None or call.ordinal <= last)
            and (self.after_s is None or self.after_s <= call.at_s)
            and (self.for_s is None or call.at_s < since_s + self.for_s)
            and _lot(salt, call.ordinal) < self.share
        )


class Faults:
    """A script that lays rules over another one. Counts the matches of each rule."""

    def __init__(self, rules: tuple[Rule, ...], base: Script) -> None:
        self._rules = rules
        self._base = base
        self._strikes = [0] * len(rules)
        self._first_s: list[float | None] = [None] * len(rules)

    def __call__(self, call: Call, /) -> Reply | Refusal:
        """Return the answer of the first rule that matches, else that of the script."""
        for index, rule in enumerate(self._rules):
            strikes, first_s = self._strikes[index], self._first_s[index]
            if rule.meets(call, strikes=strikes, first_s=first_s, salt=index):
                self._strikes[index] += 1
                self._first_s[index] = call.at_s if first_s is None else first_s
                return _outcome(rule, rule.name or f"rule {index + 1}", call, self._base)
        return self._base(call)


def _outcome(rule: Rule, name: str, call: Call, base: Script) -> Reply | Refusal:
    if rule.status is not None:
        return Refusal(
            status=rule.status,
            error_type=rule.error_type or STATUS_TYPES.get(rule.status, "api_error"),
            error_code=rule.error_code,
            message=rule.message or f"scripted by {name}",
            retry_after=None if rule.retry_after is None else str(rule.retry_after),
            retry_after_date_s=rule.retry_after_date_s,
            body=rule.body,
            first_delay_s=rule.first_delay_s or 0.0,
            rule=name,
        )
    reply = base(call)
    if isinstance(reply, Refusal):
        reply = Reply(content=({"type": "text", "text": "scripted"},))
    if rule.text is not None or rule.tools is not None:
        blocks = [{"type": "text", "text": rule.text}] if rule.text else []
        reply = attrs.evolve(reply, content=(*blocks, *tool_blocks(rule.tools or (), call)))
    changes: dict[str, Any] = {
        "fault": rule.fault,
        "fault_after": rule.fault_after,
        "ping_s": rule.ping_s,
        "fault_s": rule.fault_s,
        "error_type": rule.error_type,
        "stop_reason": rule.stop_reason,
        "chunk_count": rule.chunks,
        "delay_s": rule.delay_s,
        "first_delay_s": rule.first_delay_s,
    }
    given = {field_: value for field_, value in changes.items() if value is not None}
    return attrs.evolve(reply, **given, rule=name)


def _parse_span(calls: int | str | None) -> tuple[int, int | None] | None:
    """Return the first and last number of a span of calls; None if it is invalid."""
    first, dash, last = str(calls).partition("-")
    ends = [each.strip() for each in (first, last)]
    if not ends[0].isdecimal() or not (ends[1].isdecimal() or not ends[1]):
        return None
    low = int(ends[0])
    high = int(ends[1]) if ends[1] else None if dash else low
    return None if low < 1 or (high is not None and high < low) else (low, high)


def _lot(salt: int, ordinal: int) -> float:
    """Return a number from 0 up to 1 for a call: the same in every run, different for each rule."""
    return int.from_bytes(sha256(f"{salt}:{ordinal}".encode()).digest()[:6]) / 2**48
