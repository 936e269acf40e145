"""The screen of pods and queues: its content, moving in both tables, draining and pausing."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.drain import Moved
from cortex.domain.errors import UnavailableError
from cortex.domain.job_filter import parse_filter
from cortex.view.phrases import NOTHING
from cortex_tui.widgets.virtual_table import VirtualTable
from tests.support.hostile import PIECES, treacherous
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_pods import FakePods
from tests.tui.conftest import OpenSession


def line_with(seat: Seat, text: str) -> str:
    (found,) = [line for line in seat.lines if text in line]
    return found


async def show(seat: Seat) -> None:
    """Open the screen; the tables have their room when Textual lays it out, by its own clock."""
    await seat.press("4")
    await seat.pass_time(2)
    pods = seat.app.screen.query(VirtualTable).first()
    while pods.styles.height is None or pods.size.height != pods.styles.height.value:
        await seat.settle()


@on_asyncio
async def test_each_pod_has_a_line(cluster: FakeBackend, sit: OpenSession) -> None:
    pods, ago = cluster.pods, cluster.pods.ago
    pods.add(1)
    leaves = {"draining_at": ago(12), "abort_at": ago(-33), "phase": "jobs"}
    pods.add(2, state="DRAINING", **leaves)
    pods.add(3, heartbeat_at=ago(130))
    pods.add(4, trouble="disk_full", trouble_at=ago(61))
    pods.add(5, state="DRAINING", running=0, drain_requested_at=ago(70), drain_requested_by="li")
    pods.add(6, state="DEAD", ended_at=ago(300))
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        assert "● ready" in line_with(seat, "eu-1 ")
        assert "3/8" in line_with(seat, "eu-1 ")
        assert "0.8ms    92 M" in line_with(seat, "eu-1 ")
        assert "◆ draining 1" in line_with(seat, "eu-2 ")
        assert "s/45s" in line_with(seat, "eu-2 ")
        assert "! silent 2m" in line_with(seat, "eu-3 ")
        assert "! disk full 1m" in line_with(seat, "eu-4 ")
        assert "◆ drained 1m" in line_with(seat, "eu-5 ")
        assert "✗ dead 5m" in line_with(seat, "eu-6 ")


@on_asyncio
async def test_each_poll_of_pods_and_queues_is_one_statement(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.pods.add(1)
    cluster.queues.add(None)
    async with sit() as seat:
        await show(seat)
        before = len(cluster.pods.asked) + len(cluster.queues.asked)
        await seat.pass_time(4)
        asked = len(cluster.pods.asked) + len(cluster.queues.asked) - before
        assert 2 <= asked <= 8
        assert abs(len(cluster.pods.asked) - len(cluster.queues.asked)) <= 1


@on_asyncio
async def test_cursor_moves_from_pods_into_queues(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in (1, 2):
        cluster.pods.add(number)
    cluster.queues.add(None)
    cluster.queues.add("mail")
    async with sit() as seat:
        await show(seat)
        for key, text in (
            ("j", "eu-2 "),
            ("j", "default "),
            ("j", "mail "),
            ("j", "mail "),
            ("g", "eu-1 "),
            ("G", "mail "),
            ("k", "default "),
            ("k", "eu-2 "),
            ("tab", "default "),
            ("tab", "eu-2 "),
        ):
            await seat.press(key)
            (line,) = [line for line in seat.lines if line.startswith("▌")]
            assert text in line


@on_asyncio
async def test_enter_lists_the_jobs_of_a_pod_or_queue(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.pods.add(1, name="eu 1")
    cluster.queues.add(None)
    cluster.queues.add("mail")
    async with sit() as seat:
        await show(seat)
        await seat.press("enter")
        assert '/ status:run pod:"eu 1"' in seat.text
        await seat.press("escape", "j", "enter")
        assert "jobs without a queue have no name" in seat.text
        await seat.press("j", "enter")
        assert "queue:mail" in seat.text
        text = next(line for line in seat.lines if line.startswith(" /")).split("   ")[0]
        assert parse_filter(text.removeprefix(" /")).queues == ("mail",)


@pytest.mark.parametrize(
    "keys, done",
    [
        (["D", "enter", "y"], ("drain", 1, "ana", "")),
        (["D", *"deploy", "enter", "y"], ("drain", 1, "ana", "deploy")),
        (["j", "D", "enter", "y"], ("undrain", 2, "ana", "")),
        (["G", "P", "enter", "y"], None),
        (["G", "P", *"ab", "enter", "y"], None),
        (["G", "P", *"try y", "enter", "y"], ("pause", "mail", "ana", "try y")),
        (["G", "k", "P", "enter", "y"], ("resume", None, "ana", "")),
        (["P", "enter", "y"], None),
        (["G", "D", "enter", "y"], None),
        (["D", *"deploy", "y"], None),
        (["D", *"deploy", "enter", "escape", "y"], None),
        (["D", "escape", "enter", "y"], None),
    ],
)
@on_asyncio
async def test_an_act_is_done_after_its_reason_and_y(
    cluster: FakeBackend, sit: OpenSession, keys: list[str], done: tuple[Any, ...] | None
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press(*keys)
        acted = [
            (what, getattr(which, "int", which), by, why)
            for what, which, by, why in (*cluster.pods.acted, *cluster.queues.acted)
        ]
        assert acted == ([done] if done else [])


@on_asyncio
async def test_drain_shows_where_jobs_move(cluster: FakeBackend, sit: OpenSession) -> None:
    pods = cluster.pods
    first = pods.add(1)
    pods.add(2, running=6)
    pods.add(3, running=8)
    pods.add(4, job_types=["other"])
    pods.add(5, drain_requested_at=pods.ago(9), drain_requested_by="li", drain_reason="")
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        await seat.press("D")
        assert "(3 of 8 jobs): they move to 2 others with 2 free slots" in seat.text
        await seat.press("enter", "y")
        pods.change(first, state="DRAINING")
        await seat.pass_time(6)
        assert "  0 moved · drained by ana" in seat.text
        pods.where[first] = [("runs", "eu-2", 2)]
        pods.change(first, running=1)
        await seat.pass_time(6)
        assert "2 moved (2 to eu-2)" in seat.text
        assert "lost" not in seat.text, "while it still has some nobody knows"
        pods.where[first] = [("runs", "eu-2", 2), ("waits", None, 1)]
        pods.change(first, running=0, oldest_lease_at=None, longest_claim_at=None)
        await seat.pass_time(6)
        assert "drained by ana" in seat.text
        assert "3 moved, 0 lost (2 to eu-2, 1 waits)" in seat.text
        pods.where[first] = [("lost", None, 1)]
        await seat.pass_time(6)
        assert "0 moved, 1 lost" in seat.text
        await seat.press("j")
        assert "lost" not in seat.text, "of another pod"


@on_asyncio
async def test_moved_jobs_are_shown_only_for_their_pod(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = cluster.pods
    drained = {"drain_requested_by": "li", "drain_reason": "", "running": 0}
    first, _ = (pods.add(each, drain_requested_at=pods.ago(9), **drained) for each in (1, 2))
    pods.where[first] = [("runs", "eu-3", 7)]
    moved = type(pods).moved

    async def failing(fake: FakePods, pod_id: UUID) -> Moved:
        if pod_id != first:
            fake.asked.append("in vain")
            raise UnavailableError("cannot reach the database")
        return await moved(fake, pod_id)

    monkeypatch.setattr(FakePods, "moved", failing)
    async with sit(size=(80, 24)) as seat:
        await show(seat)
        await seat.pass_time(6)
        assert "7 moved" in seat.lines[-3]
        await seat.press("j")
        await seat.pass_time(6)
        assert "in vain" in pods.asked
        assert "drained by li" in seat.lines[-3]
        assert "moved" not in seat.lines[-3]


@on_asyncio
async def test_detail_shows_leases_and_connections_of_a_pod(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    pods = cluster.pods
    pods.add(1, oldest_lease_at=pods.ago(130))
    unknown = dict.fromkeys(("code_version", "connections", "oldest_lease_at", "longest_claim_at"))
    pods.add(2, threads_lost=7, **unknown)
    async with sit(size=(120, 24)) as seat:
        await show(seat)
        titles, first, second = seat.lines[1:4]
        assert "  jobs  lease   beat" in titles
        assert "memory  conns    up" in titles
        ends = [titles.index(name) + len(name) for name in ("lease", "conns")]
        assert [first[end - 3 : end].strip() for end in ends] == ["2m", "6"]
        assert [second[end - 3 : end].strip() for end in ends] == [NOTHING, NOTHING]
        assert "code 3f9a1c0b2d4e · oldest lease   2m · longest job  12m" in seat.lines[-4]
        assert " · 6 connections · runs digest" in seat.lines[-5]
        await seat.press("j")
        assert seat.lines[-4].strip() == "7 threads left behind"
        assert " · its connections are unknown · runs digest" in seat.lines[-5]


@on_asyncio
async def test_moved_jobs_are_read_in_turn_with_the_lists(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    pods = cluster.pods
    pods.add(1)
    pods.add(2, drain_requested_at=pods.ago(9), drain_requested_by="li", drain_reason="")
    async with sit() as seat:
        await show(seat)
        await seat.pass_time(4)
        assert "moved" not in pods.asked, "nobody leaves"
        await seat.press("j")
        pods.asked.clear()
        cluster.queues.asked.clear()
        await seat.pass_time(10)
        assert 2 <= pods.asked.count("moved") <= 4
        assert len(pods.asked) + len(cluster.queues.asked) <= 21
        assert min(pods.asked.count("page"), cluster.queues.asked.count("page")) >= 3


@on_asyncio
async def test_late_drain_shows_that_it_came_too_late(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    pod = next(iter(cluster.pods.rows))
    async with sit() as seat:
        await show(seat)
        await seat.press("D", "enter")
        cluster.pods.change(pod, drain_requested_at=cluster.pods.now, drain_requested_by="li")
        await seat.press("y")
        assert "eu-1: nothing was done: it was asked to drain already" in seat.text
        await seat.pass_time(2)
        await seat.press("D", "enter", "escape")
        cluster.pods.change(pod, drain_requested_at=None)
        await seat.pass_time(2)
        await seat.press("D", "enter")
        cluster.pods.change(pod, state="STOPPED", ended_at=cluster.pods.now)
        await seat.press("y")
        assert "✗ pod eu-1 has ended: it is STOPPED" in seat.text


@on_asyncio
async def test_the_log_has_the_commands(cluster: FakeBackend, sit: OpenSession) -> None:
    seed(cluster)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        await seat.press("D", *"new disk", "enter", "y", "G", "P", *"deploy", "enter", "y", "@")
        first = next(iter(cluster.pods.rows))
        assert f"cortex pods drain {first} --reason 'new disk' --as ana" in seat.text
        assert "cortex pause queue:mail --reason deploy --as ana" in seat.text


@on_asyncio
async def test_hostile_names_are_shown_as_they_are(cluster: FakeBackend, sit: OpenSession) -> None:
    for number, text in enumerate(PIECES.values(), 1):
        output = {"drain_requested_by": text, "drain_reason": text}
        cluster.pods.add(number, name=text, version=text, job_types=[text], **output)
        paused = {"paused_by": text, "reason": text, "paused_at": cluster.queues.now}
        cluster.queues.add(text, **paused)
    async with sit(size=(160, 40)) as seat:
        await show(seat)
        for _ in PIECES:
            await seat.press("D")
            assert treacherous(seat.text) == []
            await seat.press("escape", "j")


def seed(cluster: FakeBackend) -> None:
    pods, queues = cluster.pods, cluster.queues
    pods.add(1)
    pods.add(2, state="DRAINING", running=0, drain_requested_at=pods.ago(9), drain_reason="")
    pods.change(next(reversed(pods.rows)), drain_requested_by="li")
    queues.add(None, paused_at=queues.ago(99), paused_by="li", reason="deploy")
    queues.add("mail")
