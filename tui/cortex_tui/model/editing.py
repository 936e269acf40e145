"""The arguments of a request while an operator edits them before approving."""

from typing import Final

from cortex.domain.approvals.vote import check_editable
from cortex.domain.argument_check import changes, edited_arguments
from cortex.domain.canonical import parse
from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.view.arguments import visible_json
from cortex_tui.model.approvals_state import Edit, Subject

CHARS_MAX: Final = 65_536


def why_not_edited(subject: Subject) -> str | None:
    """Return why the arguments cannot be edited, as one safe line; None if they can."""
    try:
        check_editable(subject.approvals)
    except CortexError as error:
        return f"✗ {safe(error.message)}"
    if len(subject.approvals[0].arguments_text) > CHARS_MAX:
        return "too long to be edited here: cortex approvals approve --edit FILE"
    return None


def text_of(subject: Subject) -> str:
    """Return the arguments as text for the editor."""
    return visible_json(subject.approvals[0].arguments)


def edit_of(subject: Subject, text: str) -> Edit | None:
    """Return the edit; None if nothing changed. Raises `CortexError` for an invalid one."""
    approval = subject.approvals[0]
    edited = edited_arguments(text, schema=approval.schema)
    changed = changes(approval.arguments, parse(edited))
    return Edit(text=edited, changes=changed) if changed else None
