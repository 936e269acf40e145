"""Prices of models when a pod starts: the list prices, overridden by a file.

    # prices.toml, in US dollars per million tokens
    [claude-sonnet-5]
    input = 1.80

    ["local/llama-4.1"]
    input = 0.10
    output = 0.40

Prices that the file does not give stay as listed.
"""

import tomllib
from decimal import Decimal
from typing import Final

from cortex.cli.files import read_bytes
from cortex.config import Settings
from cortex.domain.errors import UsageError
from cortex.domain.prices import LIST_PRICES, PriceTable
from cortex.domain.usage import Usage

FILE_BYTES_MAX: Final = 1_048_576


def unpriced_warning(agent: str, model: str, prices: PriceTable) -> str:
    """Return a warning if an agent has a money limit and its model no known price; else ""."""
    if prices.cost(model, Usage()) is not None:
        return ""
    return (
        f"agent {agent}: model {model} has no known price, so a budget in dollars "
        "refuses its calls: set its price (setting prices), or limit it with "
        "--tokens"
    )


def prices_of(settings: Settings) -> PriceTable:
    """Return the list prices with the changes of the setting `prices`.

    Raises `UsageError` that names the file, the model, the field and the value.
    """
    if settings.prices is None:
        return LIST_PRICES
    path = str(settings.prices)
    content = read_bytes(path, what="prices", bytes_max=FILE_BYTES_MAX)
    try:
        overrides = tomllib.loads(content.decode(), parse_float=Decimal)
    except ValueError as error:  # also for text that is not UTF-8
        raise UsageError(f"{path}: {error}") from error
    try:
        return LIST_PRICES.with_overrides(overrides)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error
