"""The questions by which an operator decides, and the actions that send the decision."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from cortex.domain.approvals.approval import Approval, Risk
from cortex.domain.approvals.vote import Vote, objection
from cortex.domain.canonical import parse
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.approvals import InboxRow, VoteResult
from cortex.view.approval_facts import DENY_REASONS
from cortex.view.approvals import call_of
from cortex.view.resources.approvals import APPROVAL
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.approvals import CHANNEL
from cortex_tui.model.guard import Guard
from cortex_tui.model.inbox import is_mine
from cortex_tui.model.selected import Selected
from cortex_tui.model.subject import Edit, Subject
from cortex_tui.model.verdict import ApproveQuestion, DenyQuestion, Scroll
from cortex_tui.screens.approval_news import OwnActions

Decided = Callable[[Sequence[UUID]], None]
"""Called when the decision counts."""


def resource_of(context: AppContext, approval_id: UUID) -> Selected:
    """Return a request as the object under the cursor."""

    async def document() -> object:
        return await context.backend.approvals.show([approval_id])

    async def read() -> Approval | None:
        found = await context.backend.approvals.show([approval_id])
        return found[0] if found else None

    command = f"cortex approvals show {approval_id}"
    return Selected(
        id=str(approval_id), command=command, shape=APPROVAL, read=read, document=document
    )


def why_not_mine(row: InboxRow | None) -> str | None:
    """Return why only another person may approve a request; None if this operator may."""
    if row is None or is_mine(row):
        return None
    why = objection("own_request" if row.is_own else "agreed_before", "it")
    return f"{why}: another person has to agree"


class Decider:
    """Asks with one guard, and decides exactly what was shown."""

    def __init__(self, context: AppContext, guard: Guard, *, scroll: Scroll) -> None:
        self._context, self._guard, self._scroll = context, guard, scroll
        self.own = OwnActions()

    def approving(self, subject: Subject, edit: Edit | None) -> ApproveQuestion:
        """Ask whether to approve."""
        facts = subject.facts
        edited = ", as edited" if edit else ""
        name = subject.name
        if len(subject.approvals) == 1:
            call = call_of(subject.approvals[0], parse(edit.text)) if edit else facts.call
            name = f"{short_id(facts.id)} {call}"
        risk = f"{facts.risk}: " if facts.needs_last_digits else ""
        return ApproveQuestion(
            f"{risk}approve {name}{edited}, {facts.undo}",
            wanted=facts.last_digits if facts.needs_last_digits else "y",
            guard=self._guard,
            now=self._context.session.clock.now,
            came=lambda: self._context.session.key_came_at,
            scroll=self._scroll,
        )

    def denying(self, subject: Subject) -> DenyQuestion:
        """Ask for the reason to deny."""
        return DenyQuestion(
            f"deny {subject.name}",
            reasons=DENY_REASONS,
            guard=self._guard,
            now=self._context.session.clock.now,
            came=lambda: self._context.session.key_came_at,
            scroll=self._scroll,
        )

    def recall_s(self, subject: Subject) -> float:
        """Return how long a decision can be undone; 0 if it is grave, or about to expire."""
        session, facts = self._context.session, subject.facts
        left_s = (facts.expires_at - session.now).total_seconds()
        is_light = facts.risk.rank <= Risk.MED.rank and left_s > 2 * session.recall_s
        return session.recall_s if is_light else 0.0

    def approval(
        self, subject: Subject, edit: Edit | None, decided: Decided, *, typed: str
    ) -> Action:
        """Return the action that approves; `typed`: the answer to the question."""
        confirm = typed if subject.facts.needs_last_digits else None
        confirmed = ("--yes",) if confirm is None else (f"--confirm={confirm}",)
        edited = ("--edit", "-") if edit else ()
        return self._action(
            subject,
            f"approve {subject.name}",
            ("approve", *map(str, subject.ids), *edited, *confirmed),
            self._votes(
                subject, is_approved=True, edited=edit.text if edit else None, confirm=confirm
            ),
            decided,
            stdin=edit.text if edit else "",
        )

    def denial(self, subject: Subject, reason: str, decided: Decided) -> Action:
        """Return the action that denies."""
        return self._action(
            subject,
            f"deny {subject.name}",
            ("deny", *map(str, subject.ids), "--reason", reason),
            self._votes(subject, is_approved=False, reason=reason),
            decided,
        )

    def _action(
        self,
        subject: Subject,
        question: str,
        command: tuple[str, ...],
        votes: Sequence[Vote],
        decided: Decided,
        *,
        stdin: str = "",
    ) -> Action:
        async def work() -> str:
            with self.own.acting(subject):
                rulings = await self._context.backend.approvals.decide(votes)
            decided(subject.ids)
            return f"{_outcome(rulings, subject)} {subject.name}{_follows(rulings, subject)}"

        return Action(question=question, command=("approvals", *command), work=work, stdin=stdin)

    def _votes(self, subject: Subject, **vote: Any) -> list[Vote]:
        session = self._context.session
        return [
            Vote(
                approval_id=each.id,
                by=session.actor,
                credential=session.credential,
                seen=each.digest,
                channel=CHANNEL,
                **vote,
            )
            for each in subject.approvals
        ]


REASON_LINES: Final = tuple(
    f"{number}  {safe(reason)}" for number, reason in enumerate(DENY_REASONS, 1)
)


def _outcome(rulings: Sequence[VoteResult], subject: Subject) -> str:
    ruling = rulings[0]
    if ruling.outcome == "agreed":
        return f"{ruling.agreed_count} of {subject.facts.people} agreed to"
    return ruling.outcome


def _follows(rulings: Sequence[VoteResult], subject: Subject) -> str:
    match rulings[0].outcome:
        case "agreed":
            return ": another person must agree, too"
        case "denied":
            return f": {subject.facts.if_denied}"
        case _:
            return ""
