"""`cortex approvals link`: a link to a request's page, shown once."""

from typing import Final
from urllib.parse import urlsplit

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Options, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session, settings_from
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import why_sign_in
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.store import approvals as store
from cortex.view.approvals import left_s

URL_MAX: Final = 500


@click.command(cls=Command)
@click.argument("name", metavar="ID")
@click.option(
    "--base-url",
    type=Text(URL_MAX),
    metavar="URL",
    help="Base URL of a pod's API [http:// and the setting http].",
)
@changes(has_key=False)
def link(change: ChangeRequest, *, name: str, base_url: str | None) -> None:
    """Create a link that shows a request to anyone who has it, and print it.

    The link replaces the previous one and is not stored. After the decision it shows only the
    outcome, for a week. Each run creates a new link, so there is no idempotency key.
    """
    base = _checked(base_url or _default(change.options))
    with session(change.options) as call:
        approval_id = call(store.find, name)
        token = call(store.link, approval_id, by=change.by, reason=change.reason)
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
    address = settings_from(options).http
    if address is None:
        raise UsageError(
            "the address of the page is unknown",
            hint="give it with --base-url https://cortex.example.org, or configure http",
        )
    return f"http://{address}"


def _checked(url: str) -> str:
    wrong = UsageError(f"--base-url {safe(url)!r} is not a URL such as https://cortex.example.org")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise wrong from error
    is_plain = safe(url) == url and not set(url) & set(" ?#")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain:
        raise wrong
    return url.rstrip("/")
