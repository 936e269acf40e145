"""Limits per address and per token: token buckets in bounded memory, and a lock-out.

Owns: one bucket for each of the most recent keys; a forgotten key starts with a full one.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import attrs
import trio

from cortex.http.framework.origin import parsed_address, unmapped

K = TypeVar("K")

KEYS_MAX: Final = 10_000
"""Per kind, about 1 MB: a client that changes addresses faster is not limited."""
IPV6_PREFIX: Final = 64
"""Address bits of one household: the rest can be changed at will."""


@attrs.frozen(kw_only=True)
class Rate:
    """A burst, and a long-term rate per second."""

    burst: int
    per_s: float


@attrs.define
class _Bucket:
    level: float
    at: float


class Buckets(Generic[K]):
    """A token bucket for each key. `now` is in seconds of a monotonic clock."""

    def __init__(
        self, rate: Rate, *, keys_max: int = KEYS_MAX, now: Callable[[], float] = trio.current_time
    ) -> None:
        self._rate = rate
        self._keys_max = keys_max
        self._now = now
        self._buckets: OrderedDict[K, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: K) -> float:
        """Take one token; return 0, or the seconds until one is available."""
        now = self._now()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._rate.burst, now)
            if len(self._buckets) > self._keys_max:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.level = min(self._rate.burst, bucket.level + (now - bucket.at) * self._rate.per_s)
        bucket.at = now
        if bucket.level < 1:
            return (1 - bucket.level) / self._rate.per_s
        bucket.level -= 1
        return 0.0


@attrs.define
class _Record:
    misses: int
    since: float
    locked_until: float = -math.inf


class LockOut(Generic[K]):
    """Locks a key for `for_s` seconds after `misses_max` misses within as many seconds."""

    def __init__(
        self,
        *,
        misses_max: int,
        for_s: float,
        keys_max: int = KEYS_MAX,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._misses_max = misses_max
        self._for_s = for_s
        self._keys_max = keys_max
        self._now = now
        self._records: OrderedDict[K, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: K) -> bool:
        """Whether misses of this key are remembered."""
        return key in self._records

    def locked_s(self, key: K) -> float:
        """Return the seconds for which this key is still locked, or 0."""
        record = self._records.get(key)
        return 0.0 if record is None else max(0.0, record.locked_until - self._now())

    def miss(self, key: K) -> bool:
        """Count a miss; return whether it locked the key."""
        now = self._now()
        record = self._records.get(key)
        if record is None or now - record.since > self._for_s:
            record = self._records[key] = _Record(0, now)
            if len(self._records) > self._keys_max:
                self._records.popitem(last=False)
        self._records.move_to_end(key)
        record.misses += 1
        if record.misses < self._misses_max:
            return False
        record.misses, record.since, record.locked_until = 0, now, now + self._for_s
        return True


def household(address: str) -> str:
    """Return the limited unit of an address: itself, or the network of an IPv6 address."""
    parsed = parsed_address(address := unmapped(address))
    if not isinstance(parsed, ipaddress.IPv6Address):
        return address
    return str(ipaddress.ip_network((int(parsed), IPV6_PREFIX), strict=False))
