"""The log of a job in the terminal UI."""

from cortex_tui.screens.logs import PAGE_MAX
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession


@on_asyncio
async def test_the_newest_line_is_followed_however_many_come(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job_id = cluster.add(1)
    cluster.logs.add(1, "line 1", job_id=job_id)
    async with sit() as seat:
        await seat.press("L")
        await seat.pass_time(1.0)
        assert "line 1" in seat.text
        count = 20 * PAGE_MAX
        for number in range(2, count + 1):
            cluster.logs.add(number, f"line {number}", job_id=job_id)
        await seat.pass_time(2.0)
        assert f"line {count}" in seat.text
