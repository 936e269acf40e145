"""`cortex tokens create`: creates a token and shows it, once."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Span, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.clock import system_chance
from cortex.domain.errors import ConflictError, InvalidValueError, UsageError
from cortex.domain.names import NAME_MAX, check_name
from cortex.domain.phrases import short_id, span
from cortex.domain.token import SECRET_BYTES, Role, digest_of_token, token_text
from cortex.http_client.secret_values import SecretPlace
from cortex.store import tokens as store
from cortex.store.tokens import Holder
from cortex.view.verbs import CREATE_TOKEN


@click.command(cls=Command)
@click.option(
    "--name",
    type=Text(NAME_MAX),
    required=True,
    metavar="NAME",
    help="The person or program whose it is, recorded with all changes made with it.",
)
@click.option(
    "--role",
    "roles",
    type=click.Choice([role.value for role in Role]),
    multiple=True,
    required=True,
    metavar="ROLE",
    help="metrics, submitter, viewer, approver, operator or admin; repeatable.",
)
@click.option(
    "--expires",
    "expires_s",
    type=Span(above_zero=True),
    metavar="SPAN",
    help="Lifetime: 12h, 30d … [unlimited].",
)
@click.option(
    "--value",
    "place",
    metavar="PLACE",
    help="env:NAME or file:/PATH with the token [a new one is drawn].",
)
@click.option(
    "--tenant",
    type=Text(NAME_MAX),
    metavar="NAME",
    help="The only tenant whose records it reads and changes [all].",
)
@changes(CREATE_TOKEN)
def create(
    change: ChangeRequest,
    *,
    name: str,
    roles: tuple[str, ...],
    expires_s: float | None,
    place: str | None,
    tenant: str | None,
) -> None:
    """Create a token and print it. It is not stored: it cannot be shown again.

    With --value the token comes from a place that you keep, such as a secret of Kubernetes, and is
    not printed; a repeated run changes nothing.

    Several tokens of one name are one person, who counts once in a decision. metrics reads the
    metrics; submitter submits jobs and reads those; viewer reads; approver also decides approvals;
    operator also acts on jobs, dead letters and breakers; admin does everything. A repeated run
    under the same key does not show the token again.
    """
    check_name(name)
    request = [role for role in Role if role.value in roles]
    token = token_text(secrets.token_bytes(SECRET_BYTES)) if place is None else _kept_in(place)
    token_id = system_chance().new_id()
    digest = digest_of_token(token)
    if digest is None:
        raise UsageError(
            f"the value in {place} is no token: cortex_ and 64 hexadecimal digits",
            hint="make one: echo cortex_$(openssl rand -hex 32)",
        )
    with session(change.options) as call:
        if place is not None and (holder := call(store.used, digest)) is not None:
            _report_kept(change.output, holder, name=name, roles=request, tenant=tenant)
            return
        work = partial(
            store.create,
            token_id=token_id,
            name=name,
            digest=digest,
            roles=request,
            expires_s=expires_s,
            tenant=tenant,
        )
        asked = {"name": name, "roles": request, "expires_s": expires_s, "tenant": tenant}
        made: dict[str, Any]
        try:
            made = change.write_as_person(call, work, operation="tokens.create", request=asked)
        except ConflictError:
            # Another run has created it since it was looked up.
            holder = None if place is None else call(store.used, digest)
            if holder is None:
                raise
            _report_kept(change.output, holder, name=name, roles=request, tenant=tenant)
            return
    # For a used key, the row is the first one, and its token is unknown.
    is_new = made["id"] == str(token_id)
    shown = token if is_new and place is None else None
    _report(change.output, made, shown, expires_s=expires_s, is_kept=place is not None)


def _kept_in(place: str) -> str:
    try:
        return SecretPlace.parse(place).read("token").strip()
    except InvalidValueError as error:
        raise UsageError(f"--value: {error.message}", hint=error.hint) from None


def _report_kept(
    output: Output, holder: Holder, *, name: str, roles: Sequence[Role], tenant: str | None
) -> None:
    """Report a token that exists already. Raises `ConflictError` if it is not the wanted one."""
    short = short_id(holder.token_id)
    if not holder.is_good:
        state = "revoked" if holder.is_revoked else "expired"
        raise ConflictError(f"token {short} is {state}", hint="put a new one into its place")
    if (holder.name, holder.roles, holder.tenant) != (name, frozenset(roles), tenant):
        held = ", ".join(role.value for role in Role if role in holder.roles)
        raise ConflictError(
            f"token {short} belongs to {holder.name} as {held}, of {_of(holder.tenant)}",
            hint="use another token, or revoke this one first: cortex tokens revoke",
        )
    document = {
        "id": holder.token_id,
        "name": holder.name,
        "roles": roles,
        "tenant": tenant,
        "token": None,
    }
    output.record(document, name=str(holder.token_id), page=list)
    output.say(f"{short} of {holder.name} exists already", "dim")


def _of(tenant: str | None) -> str:
    return "all tenants" if tenant is None else f"tenant {tenant}"


def _report(
    output: Output,
    made: dict[str, Any],
    token: str | None,
    *,
    expires_s: float | None,
    is_kept: bool,
) -> None:
    expires_at = made["expires_at"]
    document = {
        "token": token,
        **{key: made[key] for key in ("id", "name", "roles", "tenant", "created_by")},
        "created_at": datetime.fromisoformat(made["created_at"]),
        "expires_at": None if expires_at is None else datetime.fromisoformat(expires_at),
    }
    output.record(document, name=made["id"], page=lambda: [] if token is None else [token])
    short = short_id(UUID(made["id"]))
    if is_kept:
        output.say(f"{short} of {made['name']}: {', '.join(made['roles'])}", "dim")
    elif token is None:
        output.say(
            (
                "the token was shown before and cannot be shown again; if it is lost, "
                f"revoke {short}"
            ),
            "warn",
        )
    elif output.is_for_people:
        until = "until it is revoked" if expires_s is None else f"for {span(expires_s)}"
        output.say(
            f"{short} of {made['name']}: {', '.join(made['roles'])}, valid {until}, "
            f"of {_of(made['tenant'])}",
            "dim",
        )
        output.say("it is shown only this once", "dim")
