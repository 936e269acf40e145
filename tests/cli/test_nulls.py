"""Every command that shows rows, on real rows, each nullable column of the schema null in turn."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import click
import pytest

from cortex.cli import target
from cortex.cli.main import cli
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.eventually import WITHIN_S
from tests.support.in_process import Ended, InProcess
from tests.support.records.nulls import (
    Answers,
    Asked,
    Column,
    Reading,
    at_each_null,
    fill,
    nullable,
    read_by,
    reading,
)
from tests.support.servers.postgres import SharedPostgres, sql
from tests.support.terminal.tui import on_asyncio

NEWEST: Final = {
    "approval": "SELECT id::text FROM cortex.approval ORDER BY created_at, id",
    "waiting": "SELECT id::text FROM cortex.approval WHERE status = 'PENDING' ORDER BY id",
    "job": "SELECT id::text FROM cortex.job ORDER BY created_at, id",
    "unknown": "SELECT id::text FROM cortex.effect WHERE status = 'UNKNOWN' ORDER BY id",
    "effect": "SELECT id::text FROM cortex.effect ORDER BY id",
    "letter": "SELECT job_id::text AS id FROM cortex.dead_letter WHERE state = 'OPEN' ORDER BY 1",
    "agent": "SELECT name AS id FROM cortex.agent",
    "person": "SELECT name AS id FROM cortex.person ORDER BY name",
    "budget": "SELECT name AS id FROM cortex.budget",
    "pod": "SELECT name AS id FROM cortex.pod ORDER BY name",
    "flow": "SELECT name AS id FROM cortex.flow",
    "message": "SELECT id::text FROM cortex.outbox ORDER BY seq",
    "schedule": "SELECT name AS id FROM cortex.schedule ORDER BY name",
}
"""What commands are run on, by the word in braces."""
LOOKS: Final = (
    "config show",
    "jobs ls",
    "jobs show {job}",
    "jobs timeouts {job}",
    "jobs types",
    "jobs cancel {job} --dry-run",
    "jobs retry {job} --dry-run",
    "approvals ls",
    "approvals ls --all",
    "approvals show {approval}",
    "why {job}",
    "agents ls",
    "agents show {agent}",
    "pods ls",
    "runners ls",
    "health",
    "limits ls",
    "queues ls",
    "costs",
    "facts",
    "effects ls",
    "effects show {effect}",
    "freeze status",
    "retention show",
    "quotas ls",
    "flows ls",
    "flows show {flow}",
    "flows graph {flow}",
    "subscriptions ls",
    "outbox ls",
    "outbox show {message}",
    "schedules ls",
    "schedules show {schedule}",
    "schedules preview {schedule}",
    "budgets ls",
    "breakers ls",
    "dead ls",
    "dead ls --each",
    "dead show {letter}",
    "dead retry {letter} --dry-run",
    "dead discard {letter} --dry-run",
    "tokens ls",
    "people ls",
    "people show {person}",
)
ACTS: Final = (
    "approvals approve {waiting} --yes",
    "approvals deny {waiting} --reason no",
    "effects resolve {unknown} not-applied --reason seen --yes",
    "effects resolve {unknown} give-up --reason seen --yes",
    "dead retry {letter} --yes --reason mended",
    "dead discard {letter} --yes --reason old",
    "jobs cancel {job} --yes",
    "jobs retry {job} --yes",
)
"""Each is undone behind it."""
MACHINES: Final = ("--json",)


@attrs.frozen
class Calls:
    """Session given to the commands: their statements see one transaction."""

    rows: Reading
    loop: asyncio.AbstractEventLoop

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        work = method(self.rows, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_S)

    def pause(self, seconds: float) -> None:
        """Let no time pass."""


@pytest.fixture(scope="module")
def everything(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database with one of each thing that a person can look at."""
    dsn = shared_postgres.create_migrated()
    with open_session(Profile(dsn=dsn, hot_path=True)) as call:
        fill(call, dsn)
    yield dsn
    shared_postgres.drop(dsn)


@asynccontextmanager
async def commands(
    dsn: str, folder: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Reading, Callable[..., Any]]]:
    """Run commands on one transaction."""
    async with reading(dsn) as rows:
        calls = Calls(rows, asyncio.get_running_loop())

        @contextmanager
        def opened(_: Profile) -> Iterator[Calls]:
            yield calls

        patch.setattr(target, "open_session", opened)
        cortex = InProcess(dsn, folder)

        async def run(words: Sequence[str], *, is_tty: bool) -> Ended:
            return await asyncio.to_thread(cortex, *words, is_tty=is_tty)

        yield rows, run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", LOOKS)
@on_asyncio
async def test_a_command_shows_rows_whichever_column_is_null(
    everything: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    seen: set[str] = set()
    parts: list[tuple[list[str], Answers]] = []
    async with commands(everything, tmp_path, monkeypatch) as (rows, run):

        async def look(words: list[str], column: Column, _: list[Asked]) -> None:
            for each in await shown(run, words):
                assert "fault in Cortex" not in each.err, (words, str(column), each.err)

        for words in phrases(everything, command):
            rows.asked.clear()
            before = await shown(run, words)
            assert [each.err for each in before if "fault in Cortex" in each.err] == []
            answers = await Answers.to(rows, everything, rows.asked.values(), seen)
            parts.append((words, answers))
        await at_each_null(rows, parts, look)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", ACTS)
@on_asyncio
async def test_a_command_acts_whichever_column_is_null(
    everything: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    async with commands(everything, tmp_path, monkeypatch) as (rows, run):
        (words,) = phrases(everything, command)[:1]
        async with rows.undone():
            await run(words, is_tty=False)
            tables = read_by(everything, {query for query, _ in rows.asked.values()})
        for column in nullable(everything):
            if column.of not in tables:
                continue
            for more, is_tty in (((), True), (MACHINES, False)):
                async with rows.null(column) as is_somewhere:
                    if is_somewhere:
                        kept = await run([*words, *more], is_tty=is_tty)
                        assert "fault in Cortex" not in kept.err, (str(column), kept.err)


async def shown(run: Callable[..., Any], words: Sequence[str]) -> list[Ended]:
    """Output of a command for people and for machines."""
    return [await run(words, is_tty=True), await run([*words, *MACHINES], is_tty=False)]


def phrases(dsn: str, command: str) -> list[list[str]]:
    """Return a command on each thing that it can be run on."""
    found = [name for name in NEWEST if f"{{{name}}}" in command]
    if not found:
        return [command.split()]
    names = [row["id"] for row in sql(dsn, NEWEST[found[0]])]
    assert names, f"there is no {found[0]}"
    return [command.replace(f"{{{found[0]}}}", name).split() for name in names]


def test_every_reading_command_is_covered() -> None:
    here = {" ".join(word for word in each.split() if word.isalpha()) for each in (*LOOKS, *ACTS)}
    lists = {each for each in walked(cli) if each.split()[-1] in ("ls", "show", "status", "types")}
    assert {each for each in lists if not any(each in one for one in here)} == set()


def walked(command: click.Command, *path: str) -> Iterator[str]:
    """Yield the words of every command."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(click.Context(command)):
        one = command.get_command(click.Context(command), name)
        assert one is not None
        yield from walked(one, *path, name)
