"""`--rate N`: at most N operations per second."""

from typing import Any

import click

from cortex.domain.bulk import RATE_MAX, RATE_MIN


class Rate(click.ParamType[float]):
    """A finite number per second."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        rate = click.FLOAT.convert(value, param, ctx)
        if not RATE_MIN <= rate <= RATE_MAX:  # also true for NaN
            self.fail(f"{value} is not from {RATE_MIN:g} to {RATE_MAX:,.0f} per second", param, ctx)
        return rate
