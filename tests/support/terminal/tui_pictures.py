"""Pictures of the terminal UI: `python -m tests.support.terminal.tui_pictures [FOLDER]`.

They show the real app on a real Postgres whose clock is stopped: made again they are the same.
"""

import asyncio
import random
import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from textual.pilot import Pilot

from cortex.domain.answer_text import AnswerPiece, payloads
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import open_session
from cortex_tui.app import CortexApp
from cortex_tui.backend.store import StoreBackend
from cortex_tui.session import Session
from tests.support.eventually import eventually_asyncio
from tests.support.people import user
from tests.support.picture_cluster import SAYING, Cluster
from tests.support.servers.postgres import (
    SharedPostgres,
    make_run_dir,
    remove_servers,
    run_asyncio,
    sql,
)

WIDTH: Final = 112
BYTES_MAX: Final = 120_000
FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
"""Those of the reader's machine: nothing is loaded from anywhere."""
FEET: Final = 4
ANSWERED_S: Final = 0.002
ROUNDS: Final = 50
"""Turns in which nothing may change any more."""


class StandingClock:
    """Time that stands until it is moved; waiters for an instant are woken all the same."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self.is_held = False
        """Nobody is woken any more."""

    def now(self) -> float:
        return self._now

    def came(self, waited_s: float) -> float:  # noqa: ARG002 -- by no clock of ours
        return self._now

    def move(self, seconds: float) -> None:
        self._now += seconds

    async def wait(self, event: asyncio.Event, *, until: float) -> None:  # noqa: ARG002 -- it never comes
        if self.is_held:
            await asyncio.Event().wait()
        try:
            async with asyncio.timeout(0.01):
                await event.wait()
        except TimeoutError:
            return


async def pictures(dsn: str, job: UUID) -> dict[str, str]:
    """Return the pictures as SVG, by their names."""
    return {
        "pulse": await _picture(dsn, lambda seat: seat.shows("tool:search"), lines=21),
        "job": await _picture(dsn, lambda seat: seat.job(job), lines=27),
        "approvals": await _picture(dsn, lambda seat: seat.approval(), lines=44),
    }


async def _picture(
    dsn: str, go: Callable[["_Seat"], Coroutine[Any, Any, None]], *, lines: int
) -> str:
    """Run the app for one picture."""
    clock = StandingClock()
    db = await open_database(Profile(dsn=dsn, connections_max=2), rng=random.Random(1))
    try:
        app = CortexApp(
            Session(identity=user("ana", label="ana"), clock=clock, place="demo"),
            StoreBackend(db, credential="os:7"),
        )
        async with app.run_test(size=(WIDTH, lines)) as pilot:
            seat = _Seat(app, pilot, clock, dsn)
            await go(seat)
            return await seat.taken()
    finally:
        await db.close()


class _Seat:
    """Somebody in front of the app."""

    def __init__(self, app: CortexApp, pilot: Pilot[int], clock: StandingClock, dsn: str) -> None:
        self.app, self.pilot, self.clock, self.dsn = app, pilot, clock, dsn

    @property
    def text(self) -> str:
        update: Any = self.app.screen._compositor.render_update(full=True)
        return "\n".join("".join(part.text for part in strip) for strip in update.strips)

    async def shows(self, text: str) -> None:
        """Wait until the screen shows this."""
        try:
            await eventually_asyncio(lambda: text in self.text, what=text)
        except BaseException as error:
            error.add_note(self.text)
            raise

    async def job(self, job_id: UUID) -> None:
        """Go to one job, whose model speaks, and there to the step that a person decided."""
        self.app.context.open("job", job_id)
        await self.shows("running")
        said = AnswerPiece(
            job_id=job_id,
            attempt=3,
            key="5 model",
            call=1,
            offset=0,
            end=len(SAYING),
            text=SAYING,
        )
        for payload in payloads([said]):
            while SAYING[:20] not in self.text:  # repeat until there is a listener
                say = """
                    WITH s AS (INSERT INTO cortex.said (payload) VALUES ($1))
                    SELECT pg_notify('cortex_stream', '')
                """
                await asyncio.to_thread(sql, self.dsn, say, payload)
                await self.pilot.pause(0.1)
        await self.pilot.press("k", "k")
        await self.shows("ana")

    async def approval(self) -> None:
        """Go to the request that waits, and be asked whether one agrees."""
        await self.pilot.press("A")
        await self.shows("customers@")
        self.clock.move(1.0)
        await self.pilot.press("a")
        await self.shows("y yes")  # all of it is in sight: else the first a scrolls
        self.clock.move(1.0)

    async def taken(self) -> str:
        """Take the picture when nothing changes any more."""
        same, before = 0, ""
        while same < ROUNDS:
            await asyncio.sleep(0.02)
            same, before = (same + 1 if self.text == before else 0), self.text
        self.clock.is_held = True
        await asyncio.sleep(0.1)
        for _ in range(ROUNDS):
            self.app.session.link.answered(self.clock.now(), took_s=ANSWERED_S)
        self.app.refresher.repaint()
        await self.pilot.pause()
        return self_contained(self.app.export_screenshot(title="cortex tui"))


def self_contained(svg: str) -> str:
    """Return a picture that asks the network for nothing."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]+;", f"font-family: {FONTS};", svg)
    svg = re.sub(r"<!-- .*? -->\s*", "", svg)
    # Rich cuts the feet off the letters of the last line.
    return re.sub(
        r'(clip-terminal">\s*<rect [^>]*height=")([\d.]+)',
        lambda found: f"{found[1]}{float(found[2]) + FEET:g}",
        svg,
    )


def main(folder: Path) -> None:
    """Start what is needed and write the pictures."""
    run_dir, lock = make_run_dir()
    postgres = SharedPostgres(run_dir)
    found: dict[str, str] = {}
    try:
        dsn = postgres.create_migrated()
        with open_session(Profile(dsn=dsn, hot_path=True)) as call:
            job = Cluster(call, dsn).make()

        async def take() -> None:
            found.update(await pictures(dsn, job))

        run_asyncio(take)
    finally:
        postgres.release()
        remove_servers(run_dir)
        lock.close()
    folder.mkdir(exist_ok=True)
    for name, svg in found.items():
        path = folder / f"tui-{name}.svg"
        path.write_text(svg, "utf-8")
        size = path.stat().st_size
        assert size < BYTES_MAX, f"{path} has {size:,} bytes"
        sys.stdout.write(f"{path}: {size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "packaging/pictures"))
