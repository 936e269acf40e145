"""A model speaks in a real pod; who sits at the job's screen reads along."""

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from uuid import UUID

import pytest
import trio
from textual.strip import Strip

from cortex.postgres.database import Profile, open_database
from cortex_tui.app import CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.clock import SystemClock
from cortex_tui.session import Session
from cortex_tui.widgets.stream_lines import StreamLines
from tests.support.eventually import WITHIN_S, eventually_asyncio
from tests.support.people import user
from tests.support.pods import Pods
from tests.support.records.rows import seeded_random, submit
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.stamping_model import stamping_model
from tests.support.terminal.tui import shown

WORDS = 80
STAMP = re.compile(r"\d+\.\d{6}")


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    started = Pods(database, tmp_path)
    yield started
    started.close()


async def sit_until_done(dsn: str, job_id: UUID) -> None:
    """Open the job before any pod has it, and watch it to its end."""
    async with AsyncExitStack() as stack:
        db = await open_database(Profile(dsn=dsn), rng=seeded_random())
        stack.push_async_callback(db.close)
        app = CortexApp(
            Session(identity=user("ana", label="ana"), clock=SystemClock()),
            StoreBackend(db, credential="os:7"),
        )
        await stack.enter_async_context(app.run_test(size=(120, 40)))
        app.context.open("job", job_id)
        await eventually_asyncio(
            lambda: any("✓ done" in line for line in shown(app)),
            what="the end of the job",
            within_s=WITHIN_S,
        )


async def test_words_are_painted_while_the_model_speaks(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, drawn_always: None
) -> None:
    clock = trio.lowlevel.current_clock()
    seen: dict[float, float] = {}
    draw = StreamLines.draw

    def drawn(lines: StreamLines, y: int, width: int) -> Strip:
        strip = draw(lines, y, width)
        for stamp in STAMP.findall(strip.text):
            seen.setdefault(float(stamp), clock.current_time())
        return strip

    monkeypatch.setattr(StreamLines, "draw", drawn)
    payload = {"model": "stamps", "prompt": "go"}
    job_id = await trio.to_thread.run_sync(submit, pods.dsn, "ask", payload)
    async with stamping_model(words=WORDS) as base_url, trio.open_nursery() as nursery:
        pods.environment |= {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "key"}
        nursery.start_soon(
            trio.to_thread.run_sync, lambda: run_asyncio(lambda: sit_until_done(pods.dsn, job_id))
        )
        await trio.to_thread.run_sync(pods.start)
    assert len(seen) > WORDS / 2
    late_s = median(now - said for said, now in seen.items())
    assert late_s < (max(seen) - min(seen)) / 3, "a half if they come at the end"
    left = await trio.to_thread.run_sync(sql, pods.dsn, "SELECT FROM cortex.watch")
    assert left == [], "nobody watches any more"
