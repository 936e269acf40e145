"""Messages that failed or were not sent yet: to look at, to retry and to discard."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from cortex.domain.messages.message import MessageStatus
from cortex.store.background.outbox import MessageHead, MessageRow
from cortex.view.cells import Cell
from cortex.view.resources.messages import MESSAGES
from cortex.view.verbs import DISCARD_MESSAGE
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.messages import SHOWN_MAX
from cortex_tui.model.selected import Selected
from cortex_tui.render.message_rows import MESSAGE_COLUMNS, message_words, page_head, page_lines
from cortex_tui.screens.listed import DetailScreen
from cortex_tui.screens.reasoned import because, propose

MORE: Final = "more of them: cortex outbox ls --status failed --status pending"


class MessagesScreen(DetailScreen[MessageHead, Sequence[MessageRow]]):
    """Failed messages, the newest first, then those that wait, the oldest first."""

    NAME = "messages"
    COLUMNS = MESSAGE_COLUMNS
    NOTHING = "every message was sent"
    NONE_CHOSEN = "no message under the cursor"
    DEFAULT_CSS = """
    MessagesScreen Page { height: 50%; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context, key=lambda row: row.seq)

    async def rows(self) -> Sequence[MessageHead]:
        return await self.context.backend.messages.page()

    def cut(self, rows: Sequence[MessageHead]) -> str:
        return MORE if len(rows) >= SHOWN_MAX else ""

    async def read_detail(self, row: MessageHead) -> Sequence[MessageRow]:
        return await self.context.backend.messages.show(row)

    def page_head(self, row: MessageHead) -> Cell:
        return page_head(row)

    def page_lines(self, row: MessageHead, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.detail, self.context.session.now, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None

        async def document() -> object:
            return await self.context.backend.messages.show(row)

        async def read() -> MessageRow | None:
            found = await self.context.backend.messages.show(row)
            return next((each for each in found if each.seq == row.seq), None)

        return Selected(
            id=str(row.id),
            key=row.seq,
            command=f"cortex outbox show {row.id}",
            shape=MESSAGES,
            read=read,
            document=document,
        )

    def action_retry(self) -> None:
        """Ask whether to send a failed message again."""
        row = self.current()
        if row is not None and row.status is not MessageStatus.FAILED:
            self.strip.show("only failed messages are retried: this one is sent by itself", "warn")
        elif row is not None:
            self._ask("retry", self.context.backend.messages.retry, row)

    def action_discard(self) -> None:
        """Ask whether to delete a message."""
        row = self.current()
        if row is not None and row.status is MessageStatus.PROCESSING:
            self.strip.show("a pod is sending it now: nothing can be discarded", "warn")
        elif row is not None:
            self._ask("discard", self.context.backend.messages.discard, row)

    def _ask(self, verb: str, work: Callable[..., Awaitable[str]], row: MessageHead) -> None:
        by, text = self.context.session.actor, f"{verb} {message_words(row)}"
        of_one = () if row.subscription is None else ("--subscription", row.subscription)

        async def done(reason: str) -> str:
            return f"{row.topic}: {await work(row, by=by, reason=reason)}"

        def act(reason: str) -> Action:
            words = ("outbox", verb, str(row.id), *of_one, *because(reason), "--yes")
            return Action(question=text, command=words, work=lambda: done(reason))

        propose(self.context, self.strip, text, act, verb=DISCARD_MESSAGE)
