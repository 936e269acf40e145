"""`cortex people`: who acts, and the operating-system users and logins that are theirs."""

from functools import partial
from typing import Final

import click

from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Group, Options, Text
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.names import NAME_MAX
from cortex.domain.token import of_login, of_user
from cortex.store import people as store
from cortex.view.resources.people import PEOPLE
from cortex.view.verbs import ADD_PERSON, DISABLE_PERSON, ENABLE_PERSON, Verb

LOGIN_MAX: Final = 63
UID_MAX: Final = 2**32 - 1

people = Group(
    "people",
    help=(
        "Say who acts: a decision counts people, not credentials.\n\nTokens are given with "
        "cortex tokens create. An operating-system user is the same on every host, and becomes "
        "a person of its own when it first decides, unless it is given to one."
    ),
    sections={
        "Inspect": {
            "ls": ("cortex.cli.people:ls", "List people and what proves them."),
            "show": ("cortex.cli.people:show", "Show one person."),
        },
        "Change": {
            "add": ("cortex.cli.people:add", "Make a person, or give them credentials."),
            "disable": ("cortex.cli.people:disable", "End all access of a person."),
            "enable": ("cortex.cli.people:enable", "Give a disabled person access again."),
        },
    },
)

ls: Final = list_by_name(PEOPLE, help="List people by name, and what proves them.")


@click.command(cls=Command, columns=PEOPLE.fields)
@click.argument("name")
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show one person."""
    with session(options) as call:
        row = call(store.show, name)
    Output(options).resource(PEOPLE, [row])


@click.command(cls=Command, columns=PEOPLE.fields)
@click.argument("name", type=Text(NAME_MAX))
@click.option(
    "--os",
    "uids",
    type=click.IntRange(0, UID_MAX),
    multiple=True,
    metavar="UID",
    help="An operating-system user, on every host; repeatable.",
)
@click.option(
    "--login",
    "logins",
    type=Text(LOGIN_MAX),
    multiple=True,
    metavar="LOGIN",
    help="A database login of this person alone; repeatable.",
)
@changes(ADD_PERSON)
def add(
    change: ChangeRequest, *, name: str, uids: tuple[int, ...], logins: tuple[str, ...]
) -> None:
    """Make a person, or find the one of this name, and give them credentials.

    Credentials of another person pass over. A login needs the role cortex_operator to decide.
    """
    credentials = [*map(of_user, uids), *map(of_login, logins)]
    work = partial(store.add, name=name, credentials=credentials)
    with session(change.options) as call:
        change.write_as_person(
            call, work, operation="people.add", request={"name": name, "credentials": credentials}
        )
        _shown(change, call(store.show, name))


def _switch(verb: Verb, *, is_enabled: bool, help: str) -> click.Command:  # noqa: A002 -- click's
    word = verb.command.split()[-1]

    @click.command(word, cls=Command, help=help, columns=PEOPLE.fields)
    @click.argument("name")
    @changes(verb)
    def switch(change: ChangeRequest, *, name: str) -> None:
        with session(change.options) as call:
            row = call(store.show, name)
            change.confirm(f"{word} {row.name}")
            work = partial(store.switch, name=name, is_enabled=is_enabled)
            change.write_as_person(call, work, operation=f"people.{word}", request={"name": name})
            _shown(change, call(store.show, name))

    return switch


def _shown(change: ChangeRequest, row: store.Person) -> None:
    change.output.resource(PEOPLE, [row])


disable: Final = _switch(
    DISABLE_PERSON,
    is_enabled=False,
    help=(
        "End all access of a person: none of their credentials is valid from then on.\n\n"
        "What they have agreed to no longer counts for requests that still wait; decisions stay. "
        "Exits with 5 if they are disabled already."
    ),
)
enable: Final = _switch(
    ENABLE_PERSON,
    is_enabled=True,
    help="Give a disabled person access again.\n\nExits with 5 if they are not disabled.",
)
