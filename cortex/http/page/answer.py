"""The decision that a person submitted in the form of a request's page."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from cortex.domain.approvals.vote import VoteError
from cortex.domain.errors import UsageError
from cortex.domain.safe import safe
from cortex.view.approval_facts import DENY_REASONS

NAME_MAX: Final = 100


class FormAction(StrEnum):
    """The button pressed."""

    APPROVE = "approve"
    DENY = "deny"
    REVIEW = "review"
    """Show the changes of an edit."""


@attrs.frozen(kw_only=True)
class ApprovalForm:
    """One submitted form; texts may be empty."""

    act: FormAction
    digest: bytes
    """Digest of the displayed arguments."""
    version: int
    name: str = ""
    canned: str = ""
    reason: str = ""
    confirm: str = ""
    draft: str | None = None
    """Arguments as JSON that may have been edited, with changes not displayed yet."""
    edited: str | None = None
    """Edited arguments with displayed changes."""

    @property
    def why(self) -> str:
        """The reason, from both fields."""
        return ": ".join(text for text in (self.canned, self.reason.strip()) if text)

    def typed_name(self) -> str:
        """Return the typed name. Raises `VoteError`."""
        name = self.name.strip()
        if not name:
            raise VoteError("name", "Enter your name: it is stored with your decision.")
        if len(name) > NAME_MAX or safe(name) != name:
            raise VoteError(
                "name",
                ("This is not a valid name: it is too long, or it contains invisible characters."),
            )
        return name


def answer_of(fields: Mapping[str, str]) -> ApprovalForm:
    """Return the decision in a form. Raises `UsageError` for a form that no page of ours sends."""
    texts: dict[str, Any] = {
        name: fields[name]
        for name in ("name", "canned", "reason", "confirm", "draft", "edited")
        if name in fields
    }
    try:
        made = ApprovalForm(
            act=FormAction(fields["act"]),
            digest=bytes.fromhex(fields["digest"]),
            version=int(fields["version"]),
            **texts,
        )
    except (KeyError, ValueError) as error:
        raise UsageError("this is not the form of an approval") from error
    if made.canned and made.canned not in DENY_REASONS:
        raise UsageError("this is not one of the usual reasons")
    return made
