"""`cortex subscriptions apply` and `rm`."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import click
import trio

from cortex.agent.yaml_source import Document, parse_documents
from cortex.cli.changes import ChangeRequest, applied_columns, changes
from cortex.cli.files import read_definitions
from cortex.cli.options import Command
from cortex.cli.target import session
from cortex.domain.effect import NotSentError
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.domain.messages.subscription import (
    Subscription,
    fallbacks_first,
    parse_subscriptions,
)
from cortex.domain.safe import safe
from cortex.http_client.addresses import SETTING, AllowedAddresses, resolve
from cortex.postgres.database import Database
from cortex.store.background import subscriptions as store
from cortex.view.cells import Row
from cortex.view.resource import Field
from cortex.view.verbs import APPLY_SUBSCRIPTIONS, REMOVE_SUBSCRIPTION


@click.command(cls=Command)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@changes(APPLY_SUBSCRIPTIONS)
def apply(change: ChangeRequest, *, files: tuple[str, ...]) -> None:
    """Apply subscriptions from YAML files (`-` for stdin): all of them, or none.

    A file names secrets by their places, env:NAME or file:/PATH on the pods. Subscriptions that are
    no longer in a file stay: remove them with `cortex subscriptions rm`.
    """
    places: dict[str, str] = {}
    wanted = read_definitions(files, what="subscriptions", parse=partial(_parse, places))

    async def work(db: Database, *, by: str, reason: str) -> list[dict[str, str]]:
        async def put_all(inside: Database) -> list[dict[str, str]]:
            return [
                {
                    "name": each.name,
                    "change": await store.put(inside, each, by=by, reason=reason),
                    "topic": each.topic,
                    "channel": each.channel.value,
                }
                for each in fallbacks_first(wanted, await store.every(inside), places=places)
            ]

        return await db.transact(lambda connection: put_all(db.bound(connection)))

    request = {"subscriptions": [attrs.asdict(each) for each in wanted]}
    with session(change.options) as call:
        rows = change.write(call, work, operation="subscriptions.apply", request=request)
    change.output.listing("subscriptions", COLUMNS, rows, empty="")
    for remark in trio.run(_refusals, wanted):
        change.output.say(remark, "warn")
    if change.output.is_for_people:
        change.output.say(f"try one: cortex subscriptions test {rows[0]['name']}", "dim")


async def _refusals(wanted: Sequence[Subscription]) -> list[str]:
    """Return a remark for each subscription whose address pods will refuse, as far as is known.

    Pods have settings of their own: the address is not refused here.
    """
    allowed = AllowedAddresses.of_environment()
    remarks = []
    for each in wanted:
        if (endpoint := each.endpoint) is None:
            continue
        try:
            with trio.move_on_after(RESOLVE_S):
                await resolve(*endpoint, allowed)
        except NotSentError:
            pass  # it does not resolve here, and may on a pod
        except ForbiddenError as error:
            place = ":".join(map(str, endpoint))
            remarks.append(
                f"subscription {each.name}: {error.message}: pods refuse to send to it, unless "
                f"their {SETTING} contains {place}"
            )
    return remarks


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@changes(REMOVE_SUBSCRIPTION)
def rm(change: ChangeRequest, *, name: str) -> None:
    """Remove a subscription; its waiting messages fail."""
    change.confirm(f"remove subscription {name}")

    async def work(db: Database, *, by: str, reason: str) -> dict[str, str]:
        await store.remove(db, name, by=by, reason=reason)
        return {"removed": name}

    with session(change.options) as call:
        done = change.write(call, work, operation="subscriptions.rm", request={"remove": name})
    change.output.record(done, name=name, page=lambda: [f"removed {safe(name)}"])


def _parse(places: dict[str, str], text: str, source: str) -> list[Subscription]:
    """Return what a text defines; note in `places` where each fallback is written."""
    found: list[Subscription] = []
    for document in parse_documents(text, source):
        where = partial(_where, document)
        rows = parse_subscriptions(document.value, where=where)
        for index, each in enumerate(rows):
            if each.fallback is not None:
                places[each.name] = where(("subscriptions", index, "fallback"))
        found += rows
    if not found:
        raise UsageError(f"{source}: no subscription in it", hint="name, topic and channel")
    return found


def _where(document: Document, path: tuple[str | int, ...]) -> str:
    return f"{document.source}:{document.line(path)}"


RESOLVE_S: Final = 2.0
"""Limit of one look-up, which only warns of an address that is not public."""

COLUMNS: Final[Sequence[Field[Row]]] = (
    *applied_columns("subscription"),
    Field(name="topic"),
    Field(name="channel"),
)
