"""`cortex approvals show`: everything a decision is based on."""

from typing import Any, Final

import click

from cortex.cli.approvals.page import page
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output, document_of
from cortex.cli.target import session
from cortex.domain.approvals.approval import Approval
from cortex.domain.argument_check import changes
from cortex.store import approvals as store
from cortex.view.approvals import if_approved, if_denied, if_expired, left_s
from cortex.view.spelled import spelled

FIELDS: Final = (
    *("id", "status", "risk", "effect", "reversible", "tool", "key", "policy", "said"),
    *("agent", "agent_version", "job_id", "job_type", "job_status", "job_head", "requested_by"),
    *("asked", "asked_digest", "arguments", "digest", "version", "schema", "people", "agreed"),
    *("votes", "on_deny", "on_expiry", "created_at", "expires_at", "edited_by", "decided_at"),
    *("decided_by", "channel", "address", "client", "reason", "effect_id", "effect_status"),
    *("has_link", "token_by"),
)


@click.command(cls=Command)
@click.argument("name", metavar="ID")
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show the exact call, who requests it, why, and what each answer leads to."""
    options.refuse_columns("one request has no columns")
    output = Output(options)
    with session(options) as call:
        approval = call(store.show, call(store.find, name))
    output.record(
        {"approval": document(approval)},
        name=str(approval.id),
        page=lambda: page(
            spelled(approval) if output.terminal.is_ascii else approval, output.terminal
        ),
        is_whole=True,
    )


def document(approval: Approval) -> dict[str, Any]:
    """Return a request as JSON; digests are hexadecimal."""
    return {
        **document_of(approval, FIELDS),
        "expires_in_s": round(left_s(approval), 3),
        "changes": changes(approval.asked, approval.arguments),
        "if_approved": if_approved(approval),
        "if_denied": if_denied(approval),
        "if_expired": if_expired(approval),
    }
