"""`cortex tokens create`: makes a token and shows it, this once."""

import secrets
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from cortex.cli.asking import ACTOR_MAX, acting_name, as_option, unasked_option
from cortex.cli.costs import Span
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options, Text
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
    help="Who holds it: recorded with all that is done by it.",
)
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    required=True,
    metavar="ROLE",
    help="viewer, approver, operator or admin; may be given again.",
)
@click.option(
    "--expires",
    "expires_s",
    type=Span(),
    metavar="SPAN",
    help="It is good for 12h, 30d … [always].",
)
@unasked_option
@as_option
@idempotent
@click.pass_obj
def create(
    options: Options,
    *,
    name: str,
    roles: tuple[str, ...],
    expires_s: float | None,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Make a token and write it to stdout. It is kept nowhere: nobody can show it again.

    viewer reads; approver also decides approvals; operator also acts on jobs, dead letters and
    breakers; admin does everything. Run again under its key, it does not show the token again.
    """
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} holds characters that nobody sees")
    output = Output(options)
    by = acting_name(actor)
    asked = [role for role in Role if role.value in roles]
    token = token_text(secrets.token_bytes(SECRET_BYTES))
    token_id = system_chance().new_id()
    digest = digest_of_token(token)
    if digest is None:
        raise AssertionError("what was just made is a token")
    with session(options) as call:
        made: dict[str, Any] = mutate(
            call,
            lambda db: store.create(
                db,
                token_id=token_id,
                name=name,
                digest=digest,
                roles=asked,
                expires_s=expires_s,
                by=by,
            ),
            output=output,
            key=idempotency_key,
            operation="tokens.create",
            request={"name": name, "roles": asked, "expires_s": expires_s, "by": by},
        )
    # Under a key that was used before, the row is that of then, and its token is not known.
    is_new = made["id"] == str(token_id)
    _tell(output, made, token if is_new else None, expires_s=expires_s)


def _tell(
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
            f"the token was shown then, and cannot be again; if it is lost, revoke {short}", "warn"
        )
    elif output.is_for_people:
        until = "until it is revoked" if expires_s is None else f"for {span(expires_s)}"
        output.say(f"{short} of {made['name']}: {', '.join(made['roles'])}, good {until}", "dim")
        output.say("this is the only time that it is shown", "dim")
