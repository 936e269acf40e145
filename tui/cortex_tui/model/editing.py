"""Arguments of a request as an operator edits them before agreeing."""

from typing import Final

from cortex.domain.argument_check import edited_arguments
from cortex.domain.argument_diff import changes
from cortex.domain.canonical import parse
from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.view.arguments import visible_json
from cortex_tui.model.subject import Edit, Subject

CHARS_MAX: Final = 65_536


def why_not_edited(subject: Subject) -> str | None:
    """Say in one safe line why nothing can be edited; None: it can."""
    if len(subject.approvals) > 1:
        return "a batch is decided as it stands: edit one by one"
    approval = subject.approvals[0]
    if approval.schema is None:
        try:
            edited_arguments("{}", schema=None)
        except CortexError as error:
            return f"✗ {safe(error.message)}"
    if len(approval.arguments_text) > CHARS_MAX:
        return "too long to be edited here: cortex approvals approve --edit FILE"
    return None


def text_of(subject: Subject) -> str:
    """Return the arguments as they are edited."""
    return visible_json(subject.approvals[0].arguments)


def edit_of(subject: Subject, text: str) -> Edit | None:
    """Return what was edited; None: nothing was changed. Raises `CortexError`s that say why not."""
    approval = subject.approvals[0]
    edited = edited_arguments(text, schema=approval.schema)
    found = changes(approval.arguments, parse(edited))
    return Edit(text=edited, changes=found) if found else None
