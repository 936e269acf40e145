"""`cortex approvals deny`: denies requests, with a reason."""

import click

from cortex.cli.approvals.choice import choose, decide, votes_on
from cortex.cli.asking import acting_in, as_option, reason_option, unasked_option
from cortex.cli.completing import known
from cortex.cli.idempotent import idempotent
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.approvals.vote import REASON_CHARS_MAX
from cortex.view.verbs import DENY


@click.command(cls=Command)
@click.argument("names", metavar="ID…", nargs=-1, required=True, shell_complete=known("approval"))
@reason_option(DENY.reason, is_required=DENY.is_reason_required, chars_max=REASON_CHARS_MAX)
@unasked_option
@as_option
@idempotent
@click.pass_obj
def deny(
    options: Options,
    *,
    names: tuple[str, ...],
    reason: str,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Deny requests: their calls do not run.

    The first decision wins; one denial is enough. Several requests at once must have the same shape
    and be LOW or MED: all are denied, or none. Exits with 5 if another decision came first, 7 if
    the request has expired.
    """
    output = Output(options)
    with session(options) as call:
        by = acting_in(call, actor)
        approvals = choose(call, names)
        votes = votes_on(approvals, is_approved=False, by=by, reason=reason)
        decide(call, approvals, votes, output=output, key=idempotency_key)
