"""`cortex dead retry`: new jobs that go on from failed ones."""

from typing import Any, Final

import click

from cortex.cli.dead_choice import Asked, acting, agree, choose, preview, tell
from cortex.cli.idempotent import mutate
from cortex.cli.options import Command, Options
from cortex.cli.output import Output
from cortex.cli.target import session
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import NEWEST
from cortex.store.database import Database
from cortex.store.dead_letters import documents, resubmissions, resubmit

RATE_DEFAULT: Final = 50.0
RATE_MIN: Final = 0.001
RATE_MAX: Final = 10_000.0
VERSION_MAX: Final = 2**31 - 1


class Rate(click.ParamType[float]):
    """A finite number of jobs in a second."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        rate = click.FLOAT.convert(value, param, ctx)
        if not RATE_MIN <= rate <= RATE_MAX:  # also true for NaN
            self.fail(f"{value} is not from {RATE_MIN:g} to {RATE_MAX:,.0f} a second", param, ctx)
        return rate


class Version(click.ParamType[int]):
    """A version of an agent: its number, or `latest`."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "latest":
            return NEWEST
        try:
            return click.IntRange(1, VERSION_MAX).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no version: give its number, or latest", param, ctx)


@click.command(cls=Command)
@acting
@click.option(
    "--rate",
    type=Rate(),
    default=RATE_DEFAULT,
    show_default=True,
    metavar="N",
    help="So many of the new jobs become due each second.",
)
@click.option(
    "--agent-version",
    type=Version(),
    metavar="N",
    help="Another version of the agent, or latest; begins anew if it differs.",
)
@click.option("--from-start", is_flag=True, help="Begin anew: do not go on after the last step.")
@click.pass_obj
def retry(
    options: Options,
    *,
    asked: Asked,
    rate: float,
    agent_version: int | None,
    from_start: bool,
) -> None:
    """Go on from failed jobs in new ones, each after the last step of its origin.

    The old jobs stay FAILED. Give ids, or a filter for many at once.
    Ends with 5 when somebody else had settled a letter that was named.
    """
    output = Output(options)
    with session(options) as call:
        chosen = choose(call, asked)
        if asked.is_dry_run:
            preview(chosen, output, verb="retried")
            return
        if chosen.letters:
            agree(chosen, asked, options, verb="retry")
        wanted = resubmissions(chosen.ids, new_id=system_chance().new_id, rate=rate)

        async def work(db: Database) -> list[dict[str, Any]]:
            done = await resubmit(
                db,
                wanted,
                by=asked.by,
                reason=asked.reason or "",
                agent_version=agent_version,
                from_start=from_start,
            )
            return documents(done)

        told = mutate(
            call,
            work,
            output=output,
            key=asked.key,
            operation="dead.retry",
            request=asked.request
            | {"rate": rate, "agent_version": agent_version, "from_start": from_start},
        )
        tell(call, told, asked, output, verb="retried")
