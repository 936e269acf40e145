"""How much of the prompts came from the provider's cache, in words for people."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cortex.view.phrases import money


def hit_of(head: Mapping[str, Any]) -> float | None:
    """Return the share of a job's prompts that was read from the cache; None if none is used."""
    read, prompt = head.get("cache_read_tokens"), head.get("input_tokens")
    return None if read is None or not prompt else read / prompt


def hit_text(share: float, saved_usd: Decimal | None = None) -> str:
    """Return the share, and what it saved if that is known."""
    text = f"cache {share:.0%}"
    if not saved_usd:
        return text
    return (
        f"{text}, saved {money(saved_usd)}"
        if saved_usd > 0
        else f"{text}, cost {money(-saved_usd)} more"
    )
