"""Decides requests: the checks, the question, the time to undo it, and the vote."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from cortex.domain.approvals.approval import Risk
from cortex.domain.approvals.vote import Vote, objection
from cortex.domain.canonical import parse
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.approvals import InboxRow, VoteResult
from cortex.view.approval_facts import DENY_REASONS
from cortex.view.approvals import call_of
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.approvals import CHANNEL, StoreApprovals
from cortex_tui.model.approvals_state import ApprovalsState, Edit, OwnActions, Subject
from cortex_tui.model.editing import why_not_edited
from cortex_tui.model.inbox import Tab, is_mine
from cortex_tui.model.question import Prompt
from cortex_tui.model.verdict import ApproveQuestion, DenyQuestion, Guard, Scroll, Silence
from cortex_tui.render import approval_front, approval_lines
from cortex_tui.screens.approvals_controller import ApprovalsController
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.request_pane import RequestPane

FLOWS_S: Final = 1.0
"""After a decision, the next request in front is expected for this long."""

Decided = Callable[[Sequence[UUID]], None]
"""Called when the decision counts."""


REASON_LINES: Final = tuple(
    f"{number}  {safe(reason)}" for number, reason in enumerate(DENY_REASONS, 1)
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
        self._approvals: StoreApprovals = context.backend.approvals
        self.own = OwnActions()

    def approving(self, subject: Subject, edit: Edit | None) -> ApproveQuestion:
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
                rulings = await self._approvals.decide(votes)
            decided(subject.ids)
            return f"{_outcome(rulings, subject)} {subject.name}{_follows(rulings, subject)}"

        return Action(question=question, command=("approvals", *command), work=work, stdin=stdin)

    def _votes(self, subject: Subject, **vote: Any) -> list[Vote]:
        session = self._context.session
        return [
            Vote(
                approval_id=each.id,
                by=session.identity,
                seen=each.digest,
                channel=CHANNEL,
                **vote,
            )
            for each in subject.approvals
        ]


class DecisionFlow:
    """Decides what is in front, as it was shown."""

    def __init__(
        self,
        context: AppContext,
        state: ApprovalsState,
        controller: ApprovalsController,
        decider: Decider,
        frame: Frame,
        *,
        silence: Silence,
        pane: RequestPane,
    ) -> None:
        self._context, self._state, self._controller, self._decider = (
            context,
            state,
            controller,
            decider,
        )
        self._frame, self._strip, self._silence, self._pane = frame, frame.strip, silence, pane

    def approve(self) -> None:
        """Ask whether to approve, once the request was seen in full."""
        subject = self._ready(is_approving=True)
        if subject is None:
            return
        page = self._pane.page
        if not page.is_seen and subject.facts.risk.rank >= Risk.MED.rank:
            page.scroll_page("pagedown")
            self._silence.restart()
            self._strip.show(approval_front.unread_hint(page.below_count), "warn")
            return
        decider, edit = self._decider, self._state.edit
        question = decider.approving(subject, edit)
        self._ask(
            subject,
            question,
            lambda: decider.approval(subject, edit, self._decided, typed=question.typed),
        )

    def approve_edited(self) -> None:
        """Ask about arguments that were edited a moment ago."""
        self._silence.skip()  # the question has its own quiet time
        self.approve()

    def deny(self) -> None:
        """Ask for the reason to deny."""
        subject = self._ready(is_approving=False)
        if subject is None:
            return
        question = self._decider.denying(subject)
        self._frame.add_class("-denying")
        self._ask(
            subject,
            question,
            lambda: self._decider.denial(subject, question.reason, self._decided),
        )

    def edit(self) -> None:
        """Open the arguments in the editor, if they can be edited."""
        subject = self._ready(is_approving=True)
        if subject is None:
            return
        if (refusal := why_not_edited(subject)) is not None:
            self._strip.show(refusal, "warn")
        else:
            self._pane.edit(subject)

    def recall(self) -> None:
        """Take back a decision that was not sent yet, and go to its request."""
        held = self._context.recall.take_back()
        if held is None:
            self._strip.show("there is nothing to recall: what you decided was sent", "dim")
            return
        inbox = self._state.inbox
        if inbox.tab is Tab.DECIDED:
            self._controller.to_tab(Tab.MINE)
        self._strip.show(f"recalled: {safe(held.action.question)}: nothing was sent", "warn")
        inbox.seek(held.ids[0])
        self._controller.moved()

    def _ready(self, *, is_approving: bool) -> Subject | None:
        """Return the subject that this key can decide, or show why there is none."""
        refusal = self._context.actions.why_not()
        if refusal is None and not self._silence.is_over:
            self._silence.fill()
            return None
        if refusal is None:
            refusal = self._why_undecidable(is_approving=is_approving)
        if refusal is not None:
            self._strip.show(refusal, "warn")
            return None
        return self._state.subject

    def _why_undecidable(self, *, is_approving: bool) -> str | None:
        """Return why what is in front cannot be decided; None if it can."""
        state, subject = self._state, self._state.subject
        if subject is None or state.is_seeking or not state.is_fresh:
            return "it is being read" if state.in_front else approval_lines.nothing(state.inbox)
        if self._context.recall.ids & set(subject.ids):
            return "you have just decided it: u recalls that"
        if (over := subject.over(self._context.session.now)) is not None:
            return over
        if is_approving:
            return why_not_mine(state.inbox.row(state.in_front[0]))
        return None

    def _ask(self, subject: Subject, question: Prompt, action: Callable[[], Action]) -> None:
        state = self._state
        state.inbox.is_asking = True

        def answered(is_agreed: bool) -> None:  # noqa: FBT001 -- the strip's
            state.inbox.is_asking = False
            self._frame.remove_class("-denying")
            self._silence.restart()
            if is_agreed:
                state.agreed_at = self._context.session.clock.now()
                self._send(subject, action())
            else:
                self._strip.show("nothing was done", "dim")
            state.inbox.arrange()

        self._strip.ask(question, answered)
        self._silence.fill()

    def _send(self, subject: Subject, action: Action) -> None:
        """Send the decision after a moment in which it can be undone, or at once.

        If nothing may be changed now, say so at once rather than after that moment.
        """
        recall, for_s = self._context.recall, self._decider.recall_s(subject)
        if not for_s or self._context.session.why_not_act() is not None:
            recall.send()
            self._context.actions.agreed(self._strip, action, waits=True)
            return
        recall.hold(self._strip, action, subject.ids, for_s=for_s, changed=self._strip.redraw)
        self._decided(subject.ids)

    def _decided(self, ids: Sequence[UUID]) -> None:
        """Go to the next request, unless the operator has moved or left."""
        state, session = self._state, self._context.session
        is_in_front = self._frame.is_running and tuple(ids) == state.in_front
        state.drop_decided(ids)
        if is_in_front:
            state.inbox.leave(ids, session.now)
            self._controller.refocus(is_flowing=session.clock.now() - state.agreed_at < FLOWS_S)


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
