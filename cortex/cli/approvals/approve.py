"""`cortex approvals approve`: approves requests, with the arguments as they are or edited."""

import sys
from typing import Any, Final

import attrs
import click

from cortex.cli.approvals.choice import agree, choose, decide, present, votes_on
from cortex.cli.asking import acting_in, as_option, reason_option
from cortex.cli.completing import known
from cortex.cli.files import read_bytes
from cortex.cli.idempotent import idempotent
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import REASON_CHARS_MAX, check_editable, edit_in
from cortex.domain.argument_check import EDITED_BYTES_MAX, WHAT
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.view.arguments import visible_json
from cortex.view.verbs import APPROVE

OTHER_EDIT: Final = "set EDITOR, or give the arguments with --edit FILE"


@click.command(cls=Command)
@click.argument("names", metavar="ID…", nargs=-1, required=True, shell_complete=known("approval"))
@reason_option(APPROVE.reason, chars_max=REASON_CHARS_MAX)
@click.option(
    "--edit",
    "edit_file",
    metavar="FILE",
    help="Run with these arguments: all of them as JSON; - is stdin.",
)
@click.option("--edit-in-editor", is_flag=True, help="Edit the arguments in $EDITOR first.")
@click.option("--yes", is_flag=True, help="Do not ask, if the risk is LOW or MED.")
@click.option("--confirm", metavar="ID", help="The last 4 characters of the id: do not ask.")
@as_option
@idempotent
@click.pass_obj
def approve(
    options: Options,
    *,
    names: tuple[str, ...],
    reason: str,
    edit_file: str | None,
    edit_in_editor: bool,
    yes: bool,
    confirm: str | None,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Approve requests: each call runs with exactly the shown arguments, once.

    The first decision wins. To approve a HIGH or CRITICAL request, type the end of its id. A
    CRITICAL request needs two people, each with a token or a database login of their own, who have
    nothing to do with its job. You are the holder of the token in CORTEX_TOKEN, or your
    operating-system user; --as is only a label.
    Several requests at once must have the same shape and be LOW or MED: all are approved, or none.
    Exits with 5 if another decision came first, 7 if the request has expired.
    """
    output = Output(options)
    if edit_file is not None and edit_in_editor:
        raise UsageError("--edit and --edit-in-editor exclude each other")
    with session(options) as call:
        approvals = choose(call, names)
        votes = votes_on(
            approvals,
            is_approved=True,
            by=acting_in(call, actor),
            reason=reason or None,
            edited=_edited(approvals, edit_file, options, in_editor=edit_in_editor),
        )
        if all(each.is_open for each in approvals):
            edited = edit_in(approvals[0], votes[0])
            present(approvals, edited, output)
            typed = agree(approvals, edited, options, is_agreed=yes, confirmed=confirm)
            votes = [attrs.evolve(each, confirm=typed) for each in votes]
        decide(call, approvals, votes, output=output, key=idempotency_key)


def _edited(
    approvals: list[Approval],
    edit_file: str | None,
    options: Options,
    *,
    in_editor: bool,
) -> str | None:
    """Return the edited arguments; None if they stay as they are."""
    if edit_file is None and not in_editor:
        return None
    check_editable(approvals)  # fail before the editor opens
    if edit_file is not None:
        return _read(edit_file)
    return _in_editor(approvals[0].arguments, options)


def _read(name: str) -> str:
    content = read_bytes(name, what=WHAT, bytes_max=EDITED_BYTES_MAX)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{WHAT} are not UTF-8") from error


def _in_editor(arguments: dict[str, Any], options: Options) -> str:
    if options.no_input or not sys.stdin.isatty():
        raise UsageError(
            "cannot edit without a terminal", hint="give the arguments with --edit FILE"
        )
    try:
        edited = click.edit(visible_json(arguments), extension=".json", require_save=False)
    except click.ClickException as error:
        text = f"the editor failed: {error.message.partition(':')[0]}"
        raise UsageError(text, hint=OTHER_EDIT) from error
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{WHAT} are not UTF-8") from error
    except OSError as error:
        text = f"cannot read the edited file: {error.strerror}"
        raise UsageError(text, hint=OTHER_EDIT) from error
    if edited is None:
        raise UsageError("the editor returned nothing", hint=OTHER_EDIT)
    return edited
