"""The usage of a call, from what the events of its stream report."""

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from cortex.domain.usage import Usage

COUNT_MAX: Final = 10**12
"""A larger count is no count: the sum of a million of them still fits into the database."""
_COUNTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
_USUAL_REGIONS: Final = frozenset({"", "global", "not_available"})
_DIGITS: Final = re.compile(r"[0-9]{1,13}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")


def counted(usage: Usage, reported: object) -> Usage:
    """Return `usage` with what an event reports; some gateways report nothing.

    The API sends totals, and null for unchanged ones. Gateways also send zeros at the end, so that
    the larger of both counts is the one that was used.
    """
    if not isinstance(reported, Mapping):
        return usage
    totals = {ours: as_count(reported.get(theirs)) for theirs, ours in _COUNTS.items()}
    written, tools = _mapping(reported, "cache_creation"), _mapping(reported, "server_tool_use")
    for_an_hour = as_count(written.get("ephemeral_1h_input_tokens"))
    for_minutes = as_count(written.get("ephemeral_5m_input_tokens"))
    totals["cache_write_1h_tokens"] = for_an_hour
    totals["cache_write_tokens"] = max(totals["cache_write_tokens"], for_an_hour + for_minutes)
    totals["web_searches"] = as_count(tools.get("web_search_requests"))
    larger = {name: max(getattr(usage, name), count) for name, count in totals.items()}
    return evolve(_with_terms(usage, reported), **larger)


def _with_terms(usage: Usage, reported: Mapping[str, Any]) -> Usage:
    """Add the terms of the call that change its price, as far as the event names them."""
    tier, region = reported.get("service_tier"), reported.get("inference_geo")
    if tier in ("batch", "priority"):
        usage = evolve(usage, service_tier=tier)
    if reported.get("speed") == "fast":
        usage = evolve(usage, speed="fast")
    if isinstance(region, str) and region not in _USUAL_REGIONS and _REGION.fullmatch(region):
        usage = evolve(usage, inference_geo=region)
    return usage


def _mapping(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = reported.get(name)
    return value if isinstance(value, Mapping) else {}


def as_count(value: object) -> int:
    """Return a count that an event reports, also as text; 0 for what is none."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= COUNT_MAX else 0
