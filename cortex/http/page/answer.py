"""What somebody answered on the page of a request, out of its form."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from cortex.domain.approval_vote import VoteError
from cortex.domain.errors import UsageError
from cortex.domain.safe import safe
from cortex.view.approval_facts import DENY_REASONS

NAME_MAX: Final = 100


class FormAction(StrEnum):
    """Which button was pressed."""

    APPROVE = "approve"
    DENY = "deny"
    REVIEW = "review"
    """Show what an edit would change."""


@attrs.frozen(kw_only=True)
class ApprovalForm:
    """One form as it was sent; texts may be empty."""

    act: FormAction
    digest: bytes
    """Of the arguments that were shown."""
    version: int
    name: str = ""
    canned: str = ""
    reason: str = ""
    confirm: str = ""
    draft: str | None = None
    """Arguments as JSON that may have been edited; what they change has not been shown yet."""
    edited: str | None = None
    """Edited arguments whose changes were shown."""

    @property
    def why(self) -> str:
        """The reason, from both fields."""
        return ": ".join(text for text in (self.canned, self.reason.strip()) if text)

    def typed_name(self) -> str:
        """Return the name that somebody gave. Raises `VoteError`."""
        name = self.name.strip()
        if not name:
            raise VoteError("name", "Say who you are: it is kept with your decision.")
        if len(name) > NAME_MAX or safe(name) != name:
            raise VoteError("name", "This cannot be a name: it is too long, or it hides something.")
        return name


def answer_of(fields: Mapping[str, str]) -> ApprovalForm:
    """Return the answer in a form. Raises `UsageError` for one that no page of ours sends."""
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
