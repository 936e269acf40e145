"""`cortex approvals link`: a link to a request's page, shown once."""

from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.completing import known
from cortex.cli.options import Command, Options, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session, settings_from
from cortex.config import base_url as checked_base_url
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import why_sign_in
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id, span
from cortex.store import approvals as store
from cortex.view.approvals import left_s
from cortex.view.verbs import LINK_APPROVAL

URL_MAX: Final = 500


@click.command(cls=Command)
@click.argument("name", metavar="ID", shell_complete=known("approval"))
@click.option(
    "--base-url",
    type=Text(URL_MAX),
    metavar="URL",
    help="Base URL of a pod's API [the setting public_url].",
)
@changes(LINK_APPROVAL)
def link(change: ChangeRequest, *, name: str, base_url: str | None) -> None:
    """Create a link that shows a request to anyone who has it, and print it.

    The link replaces the previous one and is not stored. After the decision it shows only the
    outcome, for a week. Each run creates a new link, so there is no idempotency key.
    """
    if base_url is None:
        base = _default(change.options)
    else:
        base = checked_base_url(base_url, source="--base-url")
    with session(change.options) as call:
        approval_id = call(store.find, name)
        token = call(store.link, approval_id, by=change.identity, reason=change.reason)
        approval = call(store.show, approval_id)
    _report(change.output, approval, f"{base}/approvals/{approval_id}?t={token}")


def _report(output: Output, approval: Approval, url: str) -> None:
    why = why_sign_in(approval)
    document = {
        "id": approval.id,
        "url": url,
        "expires_at": approval.expires_at,
        "needs_sign_in": why is not None,
    }
    output.record(document, name=url, page=lambda: [url])
    if not output.is_for_people:
        return
    until = f"good until it is decided, {span(left_s(approval))} at most"
    output.say(f"{short_id(approval.id)}: {until}; shown this once", "dim")
    if why is not None:
        output.say(f"it {why}: the link only shows it, deciding needs a sign-in", "dim")


def _default(options: Options) -> str:
    url = settings_from(options).page_url
    if url is None:
        raise UsageError(
            "the address of the page is unknown",
            hint="give it with --base-url https://cortex.example.org, or configure public_url",
        )
    return url
