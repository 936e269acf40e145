"""Reads what the inbox shows, one query at a time: the list, the requests in front, the rest."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import check_batch
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.approvals import InboxRow
from cortex_tui.app_context import AppContext
from cortex_tui.model.approvals_state import ApprovalsState, Subject, subject_of
from cortex_tui.model.inbox import ROWS_MAX, Tab
from cortex_tui.render import approval_lines
from cortex_tui.screens.approval_briefs import ArgumentReader
from cortex_tui.screens.approvals_controller import ApprovalsController
from cortex_tui.screens.steps_beside import StepsBeside
from cortex_tui.widgets.strip_line import StripLine
from cortex_tui.widgets.virtual_table import VirtualTable

LONG_CHARS: Final = 20_000
"""Longer arguments are laid out outside the event loop."""


class ApprovalsLoader:
    """The requests in front come before the arguments and steps that only help."""

    def __init__(
        self,
        context: AppContext,
        state: ApprovalsState,
        controller: ApprovalsController,
        *,
        strip: StripLine,
        table: VirtualTable[InboxRow],
        arguments: ArgumentReader,
        steps: StepsBeside,
    ) -> None:
        self._context, self._state, self._controller = context, state, controller
        self._strip, self._table, self._arguments, self._steps = strip, table, arguments, steps

    async def look(self) -> bool:
        """Run the next query; return whether it brought news."""
        state = self._state
        if not state.inbox.is_read or state.wants_first:
            return await self._read_list()
        if state.in_front and not state.is_fresh:
            return await self._read_in_front()
        if unread := self._arguments.unread(state.inbox.window.visible or ()):
            await self._arguments.read(unread)
            return True
        return await (self._steps.look() if self._steps.wants else self._read_list())

    async def _read_list(self) -> bool:
        state, inbox, session = self._state, self._state.inbox, self._context.session
        approvals = self._context.backend.approvals
        tab, is_anew = inbox.tab, state.wants_first or not inbox.is_read
        also = inbox.held
        if tab is Tab.DECIDED:
            rows = await approvals.decided(limit=ROWS_MAX)
        else:
            rows = await approvals.waiting(by=session.identity, also=also, limit=ROWS_MAX)
        if tab is not inbox.tab:
            return True
        is_news = inbox.take(rows)
        if inbox.give_up(also):
            self._strip.show("that request waits no more", "warn")
        self._table.show_cut(approval_lines.cut(inbox))
        if is_anew and state.wants_first:
            state.wants_first = False
            inbox.go_first(session.now)
        self._controller.refocus()
        return is_news

    async def _read_in_front(self) -> bool:
        state, wanted = self._state, self._state.in_front
        by_id = {each.id: each for each in await self._context.backend.approvals.show(wanted)}
        approvals = [by_id[each] for each in wanted if each in by_id]
        if wanted != state.in_front or len(approvals) < len(wanted):
            return wanted != state.in_front
        try:
            check_batch(approvals)
        except UsageError as error:
            state.batch = ()
            self._strip.show(f"✗ {safe(_shortened(error.message, wanted))}", "fail")
            self._controller.refocus()
            return True
        subject = await _subject_of(approvals)
        if wanted == state.in_front:
            self._controller.update(subject)
        return True


def _shortened(message: str, ids: Sequence[UUID]) -> str:
    """Replace ids by the short ones that the list shows."""
    for each in ids:
        message = message.replace(str(each), short_id(each))
    return message


async def _subject_of(approvals: Sequence[Approval]) -> Subject:
    if sum(len(each.arguments_text) for each in approvals) > LONG_CHARS:
        return await asyncio.to_thread(subject_of, approvals)
    return subject_of(approvals)
