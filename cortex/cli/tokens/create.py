"""`cortex tokens create`: creates a token and shows it, once."""

import secrets
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import click

from cortex.cli.asking import ACTOR_MAX
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.costs import Span
from cortex.cli.options import Command, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.domain.token import SECRET_BYTES, Role, digest_of_token, token_text
from cortex.store import tokens as store


@click.command(cls=Command)
@click.option(
    "--name",
    type=Text(ACTOR_MAX),
    required=True,
    metavar="NAME",
    help="Its holder, recorded with all changes made with it.",
)
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    required=True,
    metavar="ROLE",
    help="viewer, approver, operator or admin; repeatable.",
)
@click.option(
    "--expires",
    "expires_s",
    type=Span(),
    metavar="SPAN",
    help="Lifetime: 12h, 30d … [unlimited].",
)
@changes()
def create(
    change: ChangeRequest, *, name: str, roles: tuple[str, ...], expires_s: float | None
) -> None:
    """Create a token and print it. It is not stored: it cannot be shown again.

    viewer reads; approver also decides approvals; operator also acts on jobs, dead letters and
    breakers; admin does everything. A repeated run under the same key does not show the token
    again.
    """
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} contains invisible characters")
    request = [role for role in Role if role.value in roles]
    token = token_text(secrets.token_bytes(SECRET_BYTES))
    token_id = system_chance().new_id()
    digest = digest_of_token(token)
    if digest is None:
        raise AssertionError("a new token has a value")
    with session(change.options) as call:
        made: dict[str, Any] = change.write(
            call,
            partial(
                store.create,
                token_id=token_id,
                name=name,
                digest=digest,
                roles=request,
                expires_s=expires_s,
            ),
            operation="tokens.create",
            request={"name": name, "roles": request, "expires_s": expires_s},
        )
    # For a used key, the row is the first one, and its token is unknown.
    is_new = made["id"] == str(token_id)
    _report(change.output, made, token if is_new else None, expires_s=expires_s)


def _report(
    output: Output, made: dict[str, Any], token: str | None, *, expires_s: float | None
) -> None:
    expires_at = made["expires_at"]
    document = {
        "token": token,
        **{key: made[key] for key in ("id", "name", "roles", "created_by")},
        "created_at": datetime.fromisoformat(made["created_at"]),
        "expires_at": None if expires_at is None else datetime.fromisoformat(expires_at),
    }
    output.record(document, name=made["id"], page=lambda: [] if token is None else [token])
    short = short_id(UUID(made["id"]))
    if token is None:
        output.say(
            (
                "the token was shown before and cannot be shown again; if it is lost, "
                f"revoke {short}"
            ),
            "warn",
        )
    elif output.is_for_people:
        until = "until it is revoked" if expires_s is None else f"for {span(expires_s)}"
        output.say(f"{short} of {made['name']}: {', '.join(made['roles'])}, valid {until}", "dim")
        output.say("it is shown only this once", "dim")
