"""`--read-only`: the database refuses, whatever the view does; and the screen says which way."""

from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from cortex.domain.errors import CortexError
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import read_only_profile
from cortex_tui.backend.store import StoreBackend
from cortex_tui.session import AS_READER, SET_SO
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.terminal.tui_terminal import on_jobs, shows, visit_all

Try = Callable[[StoreBackend, UUID, UUID], Awaitable[object]]
TRIES: dict[str, Try] = {
    "cancel": lambda on, job, _: on.jobs.cancel(job, by="ana"),
    "retry": lambda on, job, _: on.jobs.retry(job, by="ana"),
    "drain": lambda on, _, pod: on.pods.drain(pod, by="ana", reason="x"),
    "pause": lambda on, _, __: on.queues.pause(Pausable(PauseKind.QUEUE), by="ana", reason="x"),
}


@pytest.fixture
def plain(database: str) -> Iterator[str]:
    """A login that may do what pods do, and cannot change its role."""
    name = f"plain_{new_id().hex[:12]}"
    sql(database, f"CREATE ROLE {name} LOGIN")
    sql(database, f"GRANT cortex_runtime TO {name}")
    yield database.replace("//postgres@", f"//{name}@")
    sql(database, f"DROP ROLE {name}")


@pytest.fixture(params=["reader", "setting"])
def way(request: pytest.FixtureRequest, database: str, plain: str) -> tuple[str, str, str]:
    """The address, what the log of commands says, and how the database refuses."""
    if request.param == "reader":
        return database, AS_READER, "permission denied"
    return plain, SET_SO, "read-only transaction"


@pytest.mark.parametrize("act", TRIES.values(), ids=TRIES)
def test_database_refuses_every_action_in_read_only_mode(
    life: Life, way: tuple[str, str, str], act: Try
) -> None:
    life.type()
    pod, job = life.pod(), life.job()
    dsn, _, refused = way

    async def main() -> None:
        db = await open_database(await read_only_profile(Profile(dsn=dsn)), rng=seeded_random())
        try:
            with pytest.raises(CortexError, match=refused):
                await act(StoreBackend(db, credential="os:7@test"), job, pod)
        finally:
            await db.close()  # noqa: ASYNC102 -- bounded

    run_asyncio(main)


def test_read_only_mode_shows_everything_and_its_enforcement(
    cortex: Cortex, life: Life, way: tuple[str, str, str]
) -> None:
    life.type()
    life.pod()
    job = life.job()
    dsn, output, _ = way
    with on_jobs(Cortex(cortex.folder, dsn), "--read-only") as screen:
        screen.until(lambda text: job.hex[-6:] in text and "read-only" in text, what="the job")
        screen.type("K")
        screen.until(lambda text: "start cortex tui without --read-only" in text, what="why not")
        screen.type("\r")
        screen.until(lambda text: "no step is recorded yet" in text, what="the job alone")
        visit_all(screen)
        for words in ("permission denied", "read-only transaction", "✗"):
            assert words not in screen.text
        screen.type("\x1b")
        is_held = shows("> log", output)
        screen.until(lambda text: is_held(text) and "> keys" not in text, what="how it is held")
        screen.type("q")
        assert screen.end() == 0
        assert b"permission denied" not in screen.written
        assert b"does not take writes" not in screen.written
        assert b"STALE" not in screen.written
