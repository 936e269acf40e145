"""Watches as any asyncio process sees them, a terminal for one: to watch, to hear, to be seen."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import attrs
import pytest

from cortex.domain.answer_text import AnswerPiece, Message, PollHint, messages_of, payloads
from cortex.domain.job import Claim
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.dedicated import Dedicated
from cortex.store import watches
from tests.support.eventually import WITHIN_S
from tests.support.records.rows import move_clock, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql


@attrs.frozen
class Terminal:
    """A watching process: its connections and the messages it receives."""

    session: Dedicated
    db: Database
    heard: "asyncio.Queue[str]"
    id: UUID = attrs.field(factory=new_id)

    async def listen(self, channel: str) -> None:
        await self.session.listen(channel, self.heard.put_nowait)

    async def listen_to_output(self) -> None:
        await watches.listen(self.session, lambda: self.heard.put_nowait(""))

    async def hears(self) -> str:
        async with asyncio.timeout(WITHIN_S):
            return await self.heard.get()


def in_terminal(dsn: str, work: Callable[[Terminal], Awaitable[None]]) -> None:
    async def main() -> None:
        profile = Profile(dsn=dsn)
        db = await open_database(profile, rng=seeded_random())
        session = Dedicated(profile, on_lost=lambda: None)
        await session.open()
        try:
            await work(Terminal(session, db, asyncio.Queue()))
        finally:
            await session.close()
            await db.close()

    run_asyncio(main)


def rows(dsn: str) -> list[tuple[UUID, UUID]]:
    query = "SELECT job_id, watcher FROM cortex.watch ORDER BY job_id"
    return [tuple(row.values()) for row in sql(dsn, query)]


def test_watching_notifies_the_pod_of_the_job(
    database: str, running: Callable[..., Claim], pod_id: UUID, submit: Callable[..., UUID]
) -> None:
    watched, other = running().lease.job_id, running().lease.job_id
    waiting = submit()

    async def work(terminal: Terminal) -> None:
        await terminal.listen("cortex_control")
        ids = [waiting, watched, new_id()]
        await watches.watch(terminal.session, watcher=terminal.id, job_ids=ids)
        assert await terminal.hears() == str(pod_id)
        found = await watches.of_pod(terminal.db, pod_id)
        assert set(found) == {watched}
        assert other not in found
        assert 0 < found[watched].left_s <= watches.LAPSE_S
        await watches.unwatch(terminal.session, watcher=terminal.id, job_ids=ids)
        assert await terminal.hears() == str(pod_id)
        assert await watches.of_pod(terminal.db, pod_id) == {}

    in_terminal(database, work)
    assert rows(database) == []


def test_a_renewal_finds_the_pod_that_has_the_job_now(
    database: str, submit: Callable[..., UUID], claim: Callable[..., list[Claim]], pod_id: UUID
) -> None:
    job_id = submit()

    async def work(terminal: Terminal) -> None:
        await watches.watch(terminal.session, watcher=terminal.id, job_ids=[job_id])
        assert await watches.of_pod(terminal.db, pod_id) == {}
        await asyncio.to_thread(claim, pod_id)
        await watches.watch(terminal.session, watcher=terminal.id, job_ids=[job_id])
        assert set(await watches.of_pod(terminal.db, pod_id)) == {job_id}

    in_terminal(database, work)


def test_new_watcher_differs_from_a_renewal(
    database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    job_id = running().lease.job_id

    async def work(terminal: Terminal) -> None:
        async def asked_at(new: tuple[UUID, ...] = ()) -> object:
            await watches.watch(terminal.session, watcher=terminal.id, job_ids=[job_id], new=new)
            return (await watches.of_pod(terminal.db, pod_id))[job_id].asked_at

        first = await asked_at()
        assert await asked_at() == first
        assert await asked_at(new=(job_id,)) != first

    in_terminal(database, work)


@pytest.mark.parametrize("ahead_s", [watches.RENEW_S * 2, watches.LAPSE_S + 1])
def test_a_watch_lapses_unless_it_is_renewed(
    database: str, running: Callable[..., Claim], pod_id: UUID, ahead_s: float
) -> None:
    job_id = running().lease.job_id
    mine = new_id()

    async def work(terminal: Terminal) -> None:
        await watches.watch(terminal.session, watcher=mine, job_ids=[job_id])
        await asyncio.to_thread(move_clock, database, ahead_s)
        is_alive = job_id in await watches.of_pod(terminal.db, pod_id)
        assert is_alive == (ahead_s < watches.LAPSE_S)
        await watches.watch(terminal.session, watcher=mine, job_ids=[job_id])
        assert job_id in await watches.of_pod(terminal.db, pod_id)

    in_terminal(database, work)


def test_lapsed_watches_of_others_are_removed(database: str, running: Callable[..., Claim]) -> None:
    job_id = running().lease.job_id
    gone, here = new_id(), new_id()

    async def work(terminal: Terminal) -> None:
        await watches.watch(terminal.session, watcher=gone, job_ids=[job_id])
        await asyncio.to_thread(move_clock, database, watches.LAPSE_S + 1)
        await watches.watch(terminal.session, watcher=here, job_ids=[job_id])

    in_terminal(database, work)
    assert rows(database) == [(job_id, here)]


def test_listeners_read_sent_pieces_after_one_hint(database: str) -> None:
    job_id = new_id()
    text = "grüße \x01\n" * 3_000
    piece = AnswerPiece(
        job_id=job_id, attempt=1, key="ask", call=1, offset=0, end=len(text), text=text
    )

    async def work(terminal: Terminal) -> None:
        await terminal.listen_to_output()
        sent = payloads([piece, PollHint(job_id)])
        await watches.send(terminal.db, sent)
        assert await terminal.hears() == "", "one hint for all of it"
        found = await watches.said(terminal.session, ())
        assert await watches.said(terminal.session, found) == dict.fromkeys(found)
        heard: list[Message] = []
        for payload in found.values():
            heard += messages_of(payload or "")
        pieces = [each for each in heard if isinstance(each, AnswerPiece)]
        assert "".join(each.text for each in pieces) == text
        assert heard[-1] == PollHint(job_id)

    in_terminal(database, work)
