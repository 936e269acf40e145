"""The filter for jobs as an argument, and the completion of its terms."""

from typing import Final

import click

from cortex.cli.options import completions
from cortex.domain.job_filter import KEY_WORDS, TEXT_KEYS


def complete_filter(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the terms that may complete one; bash makes three words of `status:run`."""
    before = context.params.get("filters") or ()
    if before[-1:] == (":",):
        return completions(KEY_WORDS.get((*before[-2:-1], "")[0], ()), incomplete)
    if incomplete == ":" and before and before[-1] in KEY_WORDS:
        return [*KEY_WORDS[before[-1]]]
    key, colon, word = incomplete.partition(":")
    if colon:
        return [f"{key}:{each}" for each in completions(KEY_WORDS.get(key, ()), word)]
    keys = [each for each in TEXT_KEYS if each.startswith(incomplete)]
    if len(keys) == 1 and keys[0] in KEY_WORDS:
        return [f"{keys[0]}:{each}" for each in KEY_WORDS[keys[0]]]
    return [f"{each}:" for each in keys]


filter_argument: Final = click.argument(
    "filters", metavar="[FILTER…]", nargs=-1, shell_complete=complete_filter
)
