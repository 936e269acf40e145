"""Takes a decision from the key to the vote: checks, the question, and the time to undo it."""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from cortex.domain.approvals.approval import Risk
from cortex.domain.safe import safe
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.model.approvals_state import ApprovalsState
from cortex_tui.model.editing import why_not_edited
from cortex_tui.model.inbox import Tab
from cortex_tui.model.question import Prompt
from cortex_tui.model.subject import Subject
from cortex_tui.render import approval_front, approval_lines
from cortex_tui.screens import approval_decisions
from cortex_tui.screens.approval_decisions import Decider
from cortex_tui.screens.approval_news import over_of
from cortex_tui.screens.approval_silence import Silence
from cortex_tui.screens.approvals_controller import ApprovalsController
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.request_pane import RequestPane

FLOWS_S: Final = 1.0
"""After a decision, the next request in front is expected for this long."""


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
        if (over := over_of(subject, self._context.session.now)) is not None:
            return over
        if is_approving:
            return approval_decisions.why_not_mine(state.inbox.row(state.in_front[0]))
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
